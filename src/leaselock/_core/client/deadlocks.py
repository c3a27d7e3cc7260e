"""Deadlocks: cycles of owners, each of which waits for a lock that the next one holds.

An owner is a thread or a task, by its host, its process and its number there. A snapshot of a
store is not atomic over all its locks, so a cycle in one may never have existed. It is a deadlock
if two snapshots show it with the same grants and the same waits: then all of them existed at once
between the two, and none of its owners can go on by itself.

The method is that of a wait-for graph (Holt, "Some Deadlock Properties of Computer Systems", 1972).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.client.inspection import Waiter, held_while_waiting, lock_infos, waiter_of
from leaselock._core.contract.backend import COMPATIBLE_MODES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.inspection import Holder, LockInfo
    from leaselock._core.contract.backend import Claim, LockState, Mode

OwnerKey = tuple[str, int, str, str]
# The most locks that a search asks for one by one. If its wait leads to more, it lists all.
MOST_ASKED = 256


class WaitEdge(NamedTuple):
    """An edge of the wait-for graph: one owner that waits for another one.

    >>> for edge in client.deadlocks()[0]:
    ...     print(edge.waiter, "waits for", edge.name, "of", edge.holder)
    """

    name: str
    """The lock."""
    waiter: Waiter
    """Who waits for it."""
    holder: Holder
    """Who holds it."""


Deadlock = tuple[WaitEdge, ...]


def owner_of(one: Holder | Waiter) -> OwnerKey | None:
    """The owner, if it is known: that of another program or an older version is not."""
    return (one.host, one.pid, one.process, one.owner) if one.owner else None


def waits(
    locks: Sequence[LockInfo], among: Collection[OwnerKey] | None = None
) -> dict[OwnerKey, list[WaitEdge]]:
    """The edges of the wait-for graph, by the owner that waits; only those *among* some owners."""
    edges: dict[OwnerKey, list[WaitEdge]] = {}
    for lock in locks:
        holders = [(owner_of(one), one) for one in lock.holders if not one.detached]
        known = [each for each in holders if each[0] and (among is None or each[0] in among)]
        if not known:
            continue
        ahead: set[str] = set()
        for waiter in _waiters(lock):
            owner = owner_of(waiter)
            if owner is None:
                ahead.add(waiter.mode)
                continue
            if among is not None and owner not in among:
                continue
            against = {waiter.mode, *(ahead - _beside(waiter.mode))}
            for following, holder in known:
                # Permits may be released by another thread or task than the one that acquired them.
                other = following != owner or waiter.mode not in ("upgrading", "permits")
                if other and any(holder.mode not in _beside(mode) for mode in against):
                    edges.setdefault(owner, []).append(WaitEdge(lock.name, waiter, holder))
            ahead.add(waiter.mode)
    return edges


# Permits are counted: any other holder of some is in the way of a claim that does not fit.
_BESIDE: dict[str, frozenset[Mode]] = {
    mode: frozenset() if mode == "permits" else beside for mode, beside in COMPATIBLE_MODES.items()
}


def _beside(mode: str) -> frozenset[Mode]:
    """The modes beside which *mode* may hold. A mode of another version of this library, or of a
    damaged record, is taken for exclusive.
    """
    return _BESIDE.get(mode, _BESIDE["exclusive"])


def _waiters(lock: LockInfo) -> list[Waiter]:
    """The waiters of a lock, before them the hold that waits to become exclusive. That one does not
    search for deadlocks, so its wait counts as the oldest: another member ends the deadlock.
    """
    upgrading = [
        Waiter(*one[:3], 0.0, one.label, mode="upgrading", owner=one.owner, process=one.process)
        for one in lock.holders
        if one.mode == "upgrading"
    ]
    return [*upgrading, *lock.waiters]


def blocked(locks: Sequence[LockInfo]) -> set[OwnerKey]:
    """The owners that cannot go on, whatever the others do.

    An owner that does not wait goes on, and releases what it holds; then others can go on, and so
    forth. Those that are left are blocked: they are part of a deadlock, or wait for one.
    """
    reasons: dict[OwnerKey, set[int]] = {}
    indices: dict[OwnerKey, set[int]] = {}
    for i, lock in enumerate(locks):
        waiters = _waiters(lock)
        for owner in filter(None, map(owner_of, waiters)):
            reasons.setdefault(owner, set()).add(i)
        everyone: list[Holder | Waiter] = [*waiters, *lock.holders]
        for owner in filter(None, map(owner_of, everyone)):
            indices.setdefault(owner, set()).add(i)
    pending = set(range(len(locks)))
    while pending:
        i = pending.pop()
        for owner in _going_on(locks[i], reasons):
            reasons[owner].discard(i)
            if not reasons[owner]:
                del reasons[owner]
                pending |= indices[owner]
    return set(reasons)


def _going_on(lock: LockInfo, stuck: Collection[OwnerKey]) -> set[OwnerKey]:
    """The waiters that can be granted a lock when all holders but the *stuck* ones release."""
    remaining = [one for one in lock.holders if not one.detached and owner_of(one) in stuck]
    modes, used = {one.mode for one in remaining}, sum(one.permits for one in remaining)
    ahead: set[str] = set()
    going: set[OwnerKey] = set()
    kept: set[OwnerKey] = set()
    for waiter in _waiters(lock):
        owner = owner_of(waiter)
        beside = COMPATIBLE_MODES["permits"] if waiter.mode == "permits" else _beside(waiter.mode)
        if waiter.mode == "permits":
            free = not ahead and modes <= beside and used + waiter.permits <= lock.permits
        else:
            others = modes
            if waiter.mode == "upgrading":
                others = {one.mode for one in remaining if owner_of(one) != owner}
            free = others <= beside and ahead <= beside
        if not free:
            ahead.add(waiter.mode)
        if owner is not None and owner in stuck:
            (going if free else kept).add(owner)
    return going - kept


def cycles(locks: Sequence[LockInfo]) -> list[Deadlock]:
    """The cycles of one snapshot. Each begins with the owner whose wait is the youngest."""
    edges = waits(locks, blocked(locks))
    distinct: dict[frozenset[WaitEdge], Deadlock] = {}
    done: set[OwnerKey] = set()
    for start in edges:
        if start not in done:
            _search(start, edges, done, distinct)
    return sorted(distinct.values(), key=lambda cycle: cycle[0].waiter.since)


def _search(
    start: OwnerKey,
    edges: dict[OwnerKey, list[WaitEdge]],
    done: set[OwnerKey],
    distinct: dict[frozenset[WaitEdge], Deadlock],
) -> None:
    """Follow all waits of an owner, depth first, and those of the owners they lead to. A chain of
    waits may be longer than Python can call functions within functions.
    """
    path: list[WaitEdge] = []
    # Where an owner is on the path, and its waits that are still to be followed.
    position = {start: 0}
    pending = [(start, iter(edges[start]))]
    while pending:
        owner, waits_left = pending[-1]
        wait = next(waits_left, None)
        if wait is None:
            pending.pop()
            del position[owner]
            done.add(owner)
            del path[-1:]
            continue
        following = owner_of(wait.holder)
        assert following is not None
        if following in position:
            cycle = (*path[position[following] :], wait)
            distinct.setdefault(frozenset(cycle), _from_the_youngest(cycle))
        elif following not in done:
            path.append(wait)
            position[following] = len(path)
            pending.append((following, iter(edges.get(following, ()))))


def _from_the_youngest(cycle: Deadlock) -> Deadlock:
    first = max(range(len(cycle)), key=lambda i: (cycle[i].waiter.since, owner_of(cycle[i].waiter)))
    return cycle[first:] + cycle[:first]


def unchanged(cycle: Deadlock) -> frozenset[tuple[object, ...]]:
    """What two snapshots of one deadlock have in common."""
    return frozenset(
        (wait.name, wait.holder.token, owner_of(wait.waiter), wait.waiter.since) for wait in cycle
    )


def deadlocks(first: Sequence[LockInfo], second: Sequence[LockInfo]) -> list[Deadlock]:
    """The cycles that two snapshots, one taken after the other, have in common."""
    present = cycles(second)
    before = {unchanged(cycle) for cycle in cycles(first)} if present else frozenset()
    return [cycle for cycle in present if unchanged(cycle) in before]


async def find(registry: ClaimRegistry) -> list[Deadlock]:
    """The deadlocks of a store."""
    first = lock_infos(await registry.inspect(None, "*"))
    return deadlocks(first, lock_infos(await registry.inspect(None, "*"))) if cycles(first) else []


async def find_for(registry: ClaimRegistry, claim: Claim, held: Sequence[str]) -> list[Deadlock]:
    """The deadlocks that the owner of a waiting claim, who holds the locks *held*, is part of.

    It is part of none unless it holds a lock that another owner waits for. So only the locks that
    are reached from there are asked for. All locks of the store are listed only if these are too
    many, or not known.
    """
    owner = owner_of(waiter_of(claim))
    if owner is None or not held:
        return []
    first = await _reached(registry, claim, held)
    if first is None:
        return _of(owner, await find(registry))
    if not _of(owner, cycles(lock_infos(first))):
        return []
    second = [each for state in first for each in await registry.inspect(state.name, "*")]
    return _of(owner, deadlocks(lock_infos(first), lock_infos(second)))


async def _reached(
    registry: ClaimRegistry, claim: Claim, held: Sequence[str]
) -> list[LockState] | None:
    """The lock that a claim waits for, those that its owner holds, those that the owners hold who
    wait for one of these, and so forth; None if they are too many, or not known.
    """
    states: dict[str, LockState] = {}
    pending = [claim.name, *held]
    while pending:
        name = pending.pop()
        if name in states:
            continue
        if len(states) == MOST_ASKED:
            return None
        (state,) = await registry.inspect(name, "*")
        states[name] = state
        if name == claim.name:
            continue  # the others that wait for it do not wait for this owner
        # An owner that waits for permits may need those of several others.
        if state.limit or any(hold.record.mode == "upgrading" for hold in state.holds):
            return None
        for waiter in state.waiting:
            names = held_while_waiting(waiter.metadata)
            if names is None:
                return None
            pending += names
    return [states[name] for name in sorted(states)]


def _of(owner: OwnerKey, deadlocks: Sequence[Deadlock]) -> list[Deadlock]:
    return [cycle for cycle in deadlocks if any(owner_of(wait.waiter) == owner for wait in cycle)]


def description(cycle: Deadlock) -> str:
    """A deadlock in one sentence."""
    parts = [f"{wait.waiter} waits for {wait.name!r}, held by {wait.holder}" for wait in cycle]
    return "; ".join(parts)
