"""Where the truth lives: from a URL to a backend and its nodes, loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.core.backend import Backend


class Node(Protocol):
    """What a backend gives the driver to ask (the driver's own words for it say more)."""

    def call(self, request: object, until: float) -> object:
        """Answer one request."""
        ...

    def interrupt(self) -> None:
        """End an endless call."""
        ...

    def close(self) -> None:
        """Let go of the system."""
        ...

    def after_fork(self) -> None:
        """Let go of the parent's."""
        ...


class Opened(NamedTuple):
    """A store, ready to be asked; nothing has been asked yet."""

    backend: Callable[[str | None], Backend]
    """The way of locking that a protocol names (None: the store's default); else ValueError."""
    protocol: str
    """The default: what the URL says, else the store's."""
    nodes: Mapping[str, Node]
    shown: str
    """The URL without its secrets."""


SCHEMES = {
    "memory": "holdfast.backends.memory.nodes",
    "sqlite": "holdfast.backends.sqlite.nodes",
}


def open_store(url: str, now: Callable[[], float]) -> Opened:
    """The store that *url* names; ValueError when no backend knows it."""
    scheme = url.partition(":")[0].lower()
    module = SCHEMES.get(scheme)
    if module is None:
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
        raise ValueError(f"no store is known for {scheme!r}://; known are {known}")
    opened: Opened = import_module(module).open_store(url, now)
    return opened


def default_protocol(url: str, known: tuple[str, ...], store: str) -> str:
    """What ``?protocol=`` in *url* says, else the first known; ValueError for other words there."""
    query = url.partition("#")[0].partition("?")[2]
    wanted = None
    for word in filter(None, query.split("&")):
        key, _, value = word.partition("=")
        if key != "protocol":
            raise ValueError(f"the URL of a {store} store knows ?protocol=, but not {key!r}")
        wanted = value
    return check_protocol(wanted, known, store)


def check_protocol(wanted: str | None, known: tuple[str, ...], store: str) -> str:
    """The protocol to use, the first known being the default."""
    if wanted is None:
        return known[0]
    if wanted not in known:
        choice = ", ".join(known)
        raise ValueError(f"protocol {wanted!r} is not one of the {store} store; it knows {choice}")
    return wanted
