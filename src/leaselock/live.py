"""The live state of a store, as `leaselock top` and `leaselock web` show it.

A `Monitor` reads all locks of a store at most once in an interval, however many viewers ask. From
two snapshots it derives what happened in between. A store reports states and not events, so this
is a lower bound: what began and ended between two snapshots is not seen.

    monitor = Monitor(client)
    view = await monitor.next()
    while True:
        show(view)
        view = await monitor.next(view.number)
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from leaselock._core.client.deadlocks import Deadlock, deadlocks, owner_of
from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from leaselock._api.aio import AsyncClient
    from leaselock._core.client.inspection import Holder, LockInfo, Waiter

__all__ = ["Change", "Deadlock", "Monitor", "View", "advance", "fail", "key_of"]

Kind = Literal[
    "granted",
    "released",  # by its owner, by the end of its process, or by force of another client
    "expired",  # its lease ended without a renewal: its holder is dead, frozen or cut off
    "broken",  # by force, by this client
    "waiting",
    "left",  # it waits no more: it gave up, or its hold began and ended between two snapshots
]
# A hold in a store: the name and the token or, of other programs, what else is known of it.
Key = tuple[object, ...]

# Seconds over which rates are averaged, at most.
RATE_WINDOW = 60.0
# How many changes a view keeps.
RECENT = 500


class Change(NamedTuple):
    """What happened to a lock between two snapshots."""

    kind: Kind
    """What happened."""
    name: str
    """The lock."""
    at: float
    """When it was seen, in Unix time."""
    who: Holder | Waiter
    """Whose hold or wait it was."""
    seconds: float | None = None
    """How long it held the lock ("released", "expired", "broken"), or waited for it ("granted",
    "left"); None where that is unknown.
    """


class View(NamedTuple):
    """All that is known after a read of the store."""

    number: int = 0
    """How many reads there were, failed ones included."""
    at: float = 0.0
    """When the locks were read, in Unix time; 0.0 before the first successful read."""
    clock: float = 0.0
    """The same on a clock that is never set."""
    took: float = 0.0
    """How many seconds that read took."""
    error: str | None = None
    """Why the newest read failed. Then the rest is of the last successful one."""
    locks: tuple[LockInfo, ...] = ()
    """All locks that are held or waited for, by name."""
    deadlocks: tuple[Deadlock, ...] = ()
    """The cycles that the last two snapshots have in common, as of `Client.deadlocks`."""
    changes: tuple[Change, ...] = ()
    """What happened since the snapshot before."""
    recent: tuple[Change, ...] = ()
    """What happened lately, the newest last: at most `RECENT`."""
    grants_per_second: float = 0.0
    """How many grants were seen a second, on average over the last minute at most."""
    losses: int = 0
    """How many holds have expired since the first snapshot, but for detached leases."""
    leases: Mapping[Key, float] = {}
    """The longest time left that was seen of each hold: about the length of its lease."""
    grants: tuple[tuple[float, int], ...] = ()
    """The clock of each snapshot of the last minute, and the number of grants seen in it."""

    @property
    def deadlocked(self) -> frozenset[str]:
        """The names of the locks that are part of a deadlock."""
        return frozenset(wait.name for deadlock in self.deadlocks for wait in deadlock)


def advance(
    before: View,
    locks: Sequence[LockInfo],
    *,
    at: float,
    clock: float,
    took: float = 0.0,
    broken: Collection[Key] = (),
) -> View:
    """The view after the view *before*, from what was read at the Unix time *at*. *broken* are the
    keys of the holds that this client has ended by force.
    """
    locks = tuple(sorted(locks, key=lambda lock: lock.name))
    first = not before.at
    leases = {
        key: max(hold.remaining, before.leases.get(key, 0.0))
        for key, hold in _holds(locks).items()
        if hold.remaining is not None
    }
    changes = () if first else tuple(_changes(before, locks, at, clock - before.clock, broken))
    granted = sum(change.kind == "granted" for change in changes)
    grants = tuple(pair for pair in before.grants if pair[0] > clock - RATE_WINDOW)
    grants = (*grants, (clock, granted))
    # The grants of the first snapshot in the window happened before it.
    span = clock - grants[0][0]
    lost = sum(_is_loss(change) for change in changes)
    return View(
        before.number + 1,
        at,
        clock,
        took,
        None,
        locks,
        tuple(deadlocks(before.locks, locks)),
        changes,
        (*before.recent, *changes)[-RECENT:],
        sum(count for _, count in grants[1:]) / span if span > 0 else 0.0,
        before.losses + lost,
        leases,
        grants,
    )


def fail(before: View, error: str) -> View:
    """The view after a read that failed."""
    return before._replace(number=before.number + 1, error=error, changes=())


def key_of(name: str, hold: Holder) -> Key:
    """A key that no other hold has."""
    if hold.token is not None:
        return (name, hold.token)
    return (name, hold.host, hold.pid, hold.owner or hold.thread, hold.since)


def _holds(locks: Iterable[LockInfo]) -> dict[Key, Holder]:
    return {key_of(lock.name, hold): hold for lock in locks for hold in lock.holders}


def _waits(locks: Iterable[LockInfo]) -> dict[Key, Waiter]:
    return {(lock.name, _who(one), one.since): one for lock in locks for one in lock.waiters}


def _who(one: Holder | Waiter) -> Key:
    return owner_of(one) or (one.host, one.pid, one.thread)


def _changes(
    before: View,
    locks: Sequence[LockInfo],
    at: float,
    elapsed: float,
    broken: Collection[Key],
) -> Iterator[Change]:
    """What happened between two snapshots: what ended before what began."""
    old, new = _holds(before.locks), _holds(locks)
    old_waits, new_waits = _waits(before.locks), _waits(locks)
    for key, hold in old.items():
        if not hold.cooling_down and (key not in new or new[key].cooling_down):
            lease = before.leases.get(key, 0.0)
            kind = "broken" if key in broken else _end_of(hold, elapsed, lease)
            yield Change(kind, str(key[0]), at, hold, _since(hold, at))
    waited = {key[:2]: wait for key, wait in old_waits.items()}
    granted = set()
    for key, hold in new.items():
        who = (key[0], _who(hold))
        if key not in old:
            granted.add(who)
            # A hold that nothing was seen to wait for has waited less than the interval.
            seconds = 0.0
            if who in waited:
                seconds = max(0.0, (hold.since or at) - waited[who].since)
            yield Change("granted", str(key[0]), at, hold, seconds)
    for key, wait in old_waits.items():
        if key not in new_waits and key[:2] not in granted:
            yield Change("left", str(key[0]), at, wait, _since(wait, at))
    for key, wait in new_waits.items():
        if key not in old_waits:
            yield Change("waiting", str(key[0]), at, wait)


def _end_of(hold: Holder, elapsed: float, lease: float) -> Kind:
    """Whether a hold that is gone has expired. A hold that is renewed always has more than half of
    its lease left, so one with less, which could have ended by now, was not renewed.
    """
    remaining = hold.remaining
    late = (
        remaining is not None and remaining <= elapsed and (hold.detached or remaining < lease / 2)
    )
    return "expired" if late else "released"


def _is_loss(change: Change) -> bool:
    return change.kind == "expired" and not getattr(change.who, "detached", False)


def _since(one: Holder | Waiter, at: float) -> float | None:
    return max(0.0, at - one.since) if one.since else None


class Monitor:
    """Reads the locks of a store for any number of viewers, while at least one asks.

    *client* is an `AsyncClient`, *interval* the least number of seconds between two reads, and
    *pattern* selects the locks. A store that takes long to answer is read less often.

    >>> monitor = Monitor(client, interval=1.0)
    >>> view = await monitor.next()
    >>> print(len(view.locks), view.grants_per_second, view.error)
    12 3.5 None
    """

    def __init__(self, client: AsyncClient, *, interval: float = 1.0, pattern: str = "*") -> None:
        self.client = client
        self.interval = interval
        self.pattern = pattern
        self.view = View()
        """The newest view."""
        self._due = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._broken: set[Key] = set()

    async def next(self, seen: int = 0) -> View:
        """Return the newest view whose number is greater than *seen*, and which is not older than
        the interval. All viewers share one read, and the cancellation of one does not end it.
        """
        if self.view.number <= seen or time.monotonic() >= self._due:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="leaselock-monitor")
            await asyncio.shield(self._reading)
        return self.view

    async def _read(self) -> None:
        await asyncio.sleep(max(0.0, self._due - time.monotonic()))
        began = time.monotonic()
        try:
            locks = await self.client.locks(self.pattern)
        except LeaselockError as error:
            self.view = fail(self.view, str(error))
        else:
            clock = time.monotonic()
            took = clock - began
            self.view = advance(
                self.view, locks, at=time.time(), clock=clock, took=took, broken=self._broken
            )
            # This read may have begun before the hold was ended.
            self._broken &= _holds(locks).keys()
        now = time.monotonic()
        self._due = max(began + self.interval, now + (now - began))

    async def break_lock(self, name: str, hold: Holder) -> Holder | None:
        """End one hold by force, as `AsyncClient.break_lock` does; the next view says so.

        Return the holder, or None if the lock has become free. Raises NotHeld if others hold it.
        """
        key = key_of(name, hold)
        repeated = key in self._broken
        self._broken.add(key)
        broken = None
        try:
            broken = await self.client.break_lock(name, token=hold.token)
        finally:
            if broken is None and not repeated:
                self._broken.discard(key)
        return broken

    async def close(self) -> None:
        """End a read that is in progress. The client stays open."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
