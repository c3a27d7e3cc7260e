"""The masters of a Redlock, each a store of its own, opened as one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.backends import Opened, check_protocol, open_store
from leaselock.backends.redlock.protocol import Redlock
from leaselock.core.backend import Capabilities, CollectGarbage, Doctor, Finding, Setup
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

VOTE = "vote"
PROTOCOLS = ("redlock",)
FEWEST = 3


class Master(NamedTuple):
    """One of them, as the protocol knows it."""

    node: str
    """What the driver asks."""
    shown: str
    forget: Callable[[str], None]
    wake_all: Callable[[], None]


def open_masters(
    targets: Sequence[object], now: Callable[[], float], *, aio: bool = False
) -> Opened:
    """A Redlock of several Redis masters; ValueError if they are too few, or one is named twice."""
    opened = [open_store(_plain(target), now, aio=aio) for target in targets]
    _check(opened)
    masters = [
        Master(f"master{i}", one.shown, one.nodes[VOTE].forget, one.nodes[VOTE].wake_all)
        for i, one in enumerate(opened)
    ]
    nodes: dict[str, Any] = {
        m.node: one.nodes[VOTE] for m, one in zip(masters, opened, strict=True)
    }
    nodes["store"] = (_AioUpkeep if aio else _Upkeep)(opened)

    def backend(protocol: str | None) -> Redlock:
        check_protocol(protocol, PROTOCOLS, "Redlock")
        return Redlock(masters, _capabilities(opened), now, _random)

    return Opened(backend, "redlock", nodes, _shown(opened), native=aio)


def _plain(target: object) -> object:
    """Without the word that says what several masters say anyway."""
    if not isinstance(target, str):
        return target
    place, _, query = target.partition("?")
    words = query.split("&") if query else []
    for word in words:
        if word.startswith("protocol="):
            check_protocol(word.removeprefix("protocol="), PROTOCOLS, "Redlock")
    rest = "&".join(word for word in words if not word.startswith("protocol="))
    return f"{place}?{rest}" if rest else place


def _check(opened: Sequence[Opened]) -> None:
    if len(opened) < FEWEST:
        raise ValueError(
            f"a Redlock needs at least {FEWEST} independent masters, not {len(opened)}: with "
            "fewer, there is no majority without each of them"
        )
    shown = [one.shown for one in opened]
    for one in opened:
        if VOTE not in one.nodes:
            raise ValueError(f"a Redlock is made of Redis masters, and {one.shown} is none")
        if shown.count(one.shown) > 1:
            raise ValueError(f"{one.shown} is named twice: a Redlock needs independent masters")


def _shown(opened: Sequence[Opened]) -> str:
    return ",".join(one.shown for one in opened)


def _capabilities(opened: Sequence[Opened]) -> Capabilities:
    """As careful as the worst of them."""
    each = [one.backend(None).capabilities for one in opened]
    drift, margin = max(c.clock_drift for c in each), max(c.clock_margin for c in each)
    return Capabilities(drift, margin, life=False, inheritable=False)


def _random() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


def _of_all(masters: int) -> Finding:
    lost = (masters - 1) // 2
    what = f"{masters} masters: a lock lives through the loss of {lost}"
    if masters % 2:
        return Finding("ok", what)
    return Finding("warn", what, "an odd number: one fewer is as good, one more is better")


def _joined(opened: Sequence[Opened], request: object, answers: Sequence[Any]) -> object:
    if isinstance(request, CollectGarbage):
        return sum(answers)
    found = tuple(part for answer in answers for part in answer)
    if not isinstance(request, Doctor):
        return found
    return (_of_all(len(opened)), *_doubles(opened, answers), *found)


def _doubles(opened: Sequence[Opened], answers: Sequence[tuple[Finding, ...]]) -> Iterator[Finding]:
    """One server under two names would have two votes (hazard H3)."""
    names: dict[str, str] = {}
    for one, answer in zip(opened, answers, strict=True):
        for server in {finding.server for finding in answer} - {""}:
            if server in names:
                what = f"{names[server]} and {one.shown} are one server, whose vote counts twice"
                yield Finding("fail", what, "name each of several independent masters once")
            names[server] = one.shown


def _failed(one: Opened, request: object, error: StoreError) -> tuple[Finding, ...]:
    if not isinstance(request, Doctor):
        raise error
    return (Finding("fail", f"{one.shown}: {error}", "a lock needs a majority, not all of them"),)


class _Upkeep:
    """What is asked of the store as a whole: of each master, one after the other."""

    def __init__(self, opened: Sequence[Opened]) -> None:
        self.opened = opened
        self.stores = [one.nodes["store"] for one in opened]

    def call(self, request: Doctor | Setup | CollectGarbage, until: float) -> object:
        """The answers of all."""
        answers = []
        for one, store in zip(self.opened, self.stores, strict=True):
            try:
                answers.append(store.call(request, until))
            except StoreError as error:
                answers.append(_failed(one, request, error))
        return _joined(self.opened, request, answers)

    def interrupt(self) -> None:
        """Let endless calls end."""
        for store in self.stores:
            store.interrupt()

    def close(self) -> None:
        """Close all lines."""
        for store in self.stores:
            store.close()

    def after_fork(self) -> None:
        """Let go of what is the parent's."""
        for store in self.stores:
            store.after_fork()


class _AioUpkeep(_Upkeep):
    """The same for asyncio."""

    async def call(self, request: Doctor | Setup | CollectGarbage, until: float) -> object:
        """The answers of all."""
        answers = []
        for one, store in zip(self.opened, self.stores, strict=True):
            try:
                answers.append(await store.call(request, until))
            except StoreError as error:
                answers.append(_failed(one, request, error))
        return _joined(self.opened, request, answers)

    async def finish(self) -> None:
        """Return when everything is done."""
        for store in self.stores:
            await store.finish()

    def retire(self) -> None:
        """The loop is closed."""
        for store in self.stores:
            store.retire()
