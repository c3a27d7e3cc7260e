"""Opening a Redlock: its masters, each a Redis store of its own, as one store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends import Opened, StoreType, chance, open_store
from leaselock._backends.redlock.master import Master, VotingStore
from leaselock._backends.redlock.protocol import Redlock
from leaselock._core.contract.backend import Capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FEWEST = 3
CAPABILITIES = Capabilities(0.0, 0.0, detects_death=False, inheritable=False, indexed=True)


def open_masters(
    targets: Sequence[object],
    now: Callable[[], float],
    *,
    aio: bool = False,
    prefix: str | None = None,
) -> Opened:
    """A Redlock of several Redis masters; ValueError if they are too few, or two are one server."""
    opened = [
        open_store(_without_protocol(target), now, aio=aio, prefix=prefix) for target in targets
    ]
    stores = _checked(opened)
    masters = [
        Master(one.shown, store.voting_locks()) for one, store in zip(opened, stores, strict=True)
    ]

    def backend(protocol: str | None) -> Redlock:
        STORE.check_protocol(protocol)
        return Redlock(masters, _capabilities(masters), now, chance)

    shown = ",".join(one.shown for one in opened)
    parts = tuple(part for one in opened for part in one.parts)
    return Opened(backend, "redlock", shown, parts=parts)


def _without_protocol(target: object) -> object:
    """The URL without ``protocol=redlock``, which several masters mean anyway."""
    if not isinstance(target, str):
        return target
    location, _, query = target.partition("?")
    words = query.split("&") if query else []
    for word in words:
        if word.startswith("protocol="):
            STORE.check_protocol(word.removeprefix("protocol="))
    rest = "&".join(word for word in words if not word.startswith("protocol="))
    return f"{location}?{rest}" if rest else location


def _checked(opened: Sequence[Opened]) -> list[VotingStore]:
    if len(opened) < FEWEST:
        raise ValueError(
            f"a Redlock needs at least {FEWEST} independent masters, not {len(opened)}: with "
            "fewer, there is no majority without each of them"
        )
    stores: list[VotingStore] = []
    known: dict[str, str] = {}
    for one in opened:
        store = one.parts[0] if one.parts else None
        if not isinstance(store, VotingStore):
            raise ValueError(f"a Redlock is made of Redis masters, and {one.shown} is none")
        for address in store.server_addresses():
            if address in known:
                # Databases of one server, too, are lost together, and one failure has all votes.
                raise ValueError(
                    f"{known[address]} and {one.shown} are one server: a Redlock needs "
                    "independent masters, and its vote would count twice"
                )
            known[address] = one.shown
        stores.append(store)
    return stores


def _capabilities(masters: Sequence[Master]) -> Capabilities:
    """The least of what the masters can promise."""
    each = [master.locks.capabilities for master in masters]
    return CAPABILITIES._replace(
        clock_drift=max(c.clock_drift for c in each), clock_margin=max(c.clock_margin for c in each)
    )


STORE = StoreType("Redlock", {"redlock": CAPABILITIES}, open_masters, prefixes=True)
