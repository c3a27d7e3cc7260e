"""The wait-for graph: every deadlock is found, and nothing else."""

from __future__ import annotations

import itertools
import random
import sys
from typing import TYPE_CHECKING, cast

import pytest

from leaselock._core.client.deadlocks import (
    cycles,
    deadlocks,
    description,
    find_for,
    owner_of,
    waits,
)
from leaselock._core.client.inspection import (
    LONGEST_HOLDS,
    Holder,
    LockInfo,
    Waiter,
    held_while_waiting,
    metadata_of,
)
from leaselock._core.contract.backend import Claim, HoldRecord, HoldState, LockState, Mode

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.deadlocks import Deadlock


def holder(owner: str, token: int = 1, *, detached: bool = False) -> Holder:
    return Holder("h", 1, owner, 0.0, None, token, 30.0, detached=detached, owner=owner)


def waiter(owner: str, since: float = 0.0) -> Waiter:
    return Waiter("h", 1, owner, since, None, owner=owner)


def lock(name: str, held_by: str, *waiters: Waiter) -> LockInfo:
    return LockInfo(name, holder(held_by), waiters, (holder(held_by),))


def names(cycle: tuple[object, ...]) -> list[str]:
    return [wait.name for wait in cycle]  # type: ignore[attr-defined]


def test_two_owners_that_wait_for_one_another() -> None:
    locks = [lock("a", "1", waiter("2", 5.0)), lock("b", "2", waiter("1", 4.0))]
    (cycle,) = cycles(locks)
    assert names(cycle) == ["a", "b"], "it begins with the youngest wait"
    assert description(cycle).startswith("h, process 1, 2 waits for 'a', held by h, process 1, 1")


def test_an_unknown_mode_counts_as_exclusive_and_hides_no_deadlock() -> None:
    """Another version of this library may write a mode that this one does not know."""
    odd_holder = holder("7")._replace(mode="odd")
    odd_waiter = waiter("8", 2.0)._replace(mode="odd")
    odd = LockInfo("odd", odd_holder, (odd_waiter,), (odd_holder,))
    known = [lock("a", "1", waiter("2", 5.0)), lock("b", "2", waiter("1", 4.0))]
    (cycle,) = cycles([odd, *known])
    assert names(cycle) == ["a", "b"]
    back = LockInfo("back", holder("8"), (waiter("7", 1.0)._replace(mode="odd"),), (holder("8"),))
    assert [names(cycle) for cycle in cycles([odd, back])] == [["odd", "back"]]


def test_a_circle_longer_than_the_stack_of_python() -> None:
    count = 2 * sys.getrecursionlimit()
    locks = [lock(str(i), str(i), waiter(str((i - 1) % count), float(i))) for i in range(count)]
    (cycle,) = cycles(locks)
    assert len(cycle) == count
    assert cycles(locks[1:]) == []


def test_holders_without_an_identity_are_left_out() -> None:
    unknown = Waiter("h", 1, "t", 0.0, None)
    assert owner_of(unknown) is None
    assert (
        cycles([LockInfo("a", holder("1"), (unknown,), (holder("1"),)), LockInfo("b", None, ())])
        == []
    )
    assert cycles([LockInfo("a", holder(""), (waiter("1"),), (holder(""),))]) == []


def test_waiters_beside_a_deadlock_are_no_part_of_it() -> None:
    """Neither one whose owner is unknown, nor one that holds nothing."""
    unknown = Waiter("h", 1, "t", 0.0, None)
    locks = [
        lock("a", "1", unknown, waiter("2", 2.0), waiter("9", 9.0)),
        lock("b", "2", waiter("1", 1.0)),
        lock("c", "8", waiter("7", 7.0)),
        shared("r", ["1", ""], waiter("5", 5.0), mode="shared"),
    ]
    (cycle,) = cycles(locks)
    assert {wait.waiter.owner for wait in cycle} == {"1", "2"}
    assert {wait.waiter.owner for each in waits(locks).values() for wait in each} == set("1279")


def test_an_owner_that_waits_for_two_locks_is_blocked_by_one() -> None:
    locks = [
        lock("free soon", "9", waiter("2", 3.0)),
        lock("a", "1", waiter("2", 2.0)),
        lock("b", "2", waiter("1", 1.0)),
    ]
    (cycle,) = cycles(locks)
    assert names(cycle) == ["a", "b"]


def test_a_detached_lease_waits_for_nobody() -> None:
    detached = holder("2", detached=True)
    left = LockInfo("b", detached, (waiter("1"),), (detached,))
    assert cycles([lock("a", "1", waiter("2")), left]) == []


@pytest.mark.parametrize("changed", ["token", "since"])
def test_a_cycle_that_no_moment_had_is_none(changed: str) -> None:
    first = [lock("a", "1", waiter("2", 1.0)), lock("b", "2", waiter("1", 1.0))]
    assert len(deadlocks(first, first)) == 1
    if changed == "token":
        newer = holder("2", token=2)
        moved = LockInfo("b", newer, (waiter("1", 1.0),), (newer,))
    else:
        moved = lock("b", "2", waiter("1", 2.0))
    assert deadlocks(first, [first[0], moved]) == []
    assert deadlocks(first, first[:1]) == []


def test_every_graph_of_four_owners() -> None:
    """Beside a search by brute force, on all ways in which four owners can wait for locks."""
    owners = "1234"
    for waited in itertools.product([None, *owners], repeat=4):
        locks = [
            lock(
                f"lock of {owner}",
                owner,
                *(waiter(w) for w, of in zip(owners, waited, strict=True) if of == owner),
            )
            for owner in owners
        ]
        follow = dict(zip(owners, waited, strict=True))
        on_cycles = {o for o in owners if _returns(o, follow)}
        found = cycles(locks)
        assert {wait.waiter.owner for cycle in found for wait in cycle} == on_cycles
        assert sum(len(cycle) for cycle in found) == len(on_cycles)


def _returns(owner: str, follow: dict[str, str | None]) -> bool:
    at = follow[owner]
    for _ in follow:
        if at is None or at == owner:
            break
        at = follow[at]
    return at == owner


def shared(
    name: str, holders: list[str], *waiters: Waiter, mode: str, permits: int = 0
) -> LockInfo:
    """A lock with several holders of one mode."""
    held = tuple(holder(owner)._replace(mode=mode) for owner in holders)
    return LockInfo(name, held[0], tuple(w._replace(mode=mode) for w in waiters), held, permits)


def test_an_owner_waits_for_its_own_permits_without_a_deadlock() -> None:
    """It has acquired them for workers, which return them."""
    semaphore = shared("s", ["1", "1"], waiter("1", 1.0), waiter("2", 2.0), mode="permits")
    assert cycles([semaphore._replace(permits=2)]) == []
    mine = lock("a", "1", waiter("1", 1.0))
    assert len(cycles([mine])) == 1, "an exclusive lock of another client is another matter"


def test_a_later_process_with_the_same_number_is_another_owner() -> None:
    dead = holder("1")._replace(process="boot:1:100")
    again = waiter("1", 1.0)._replace(process="boot:1:200")
    assert cycles([LockInfo("a", dead, (again,), (dead,))]) == []


def test_a_permit_that_another_holder_returns_ends_the_wait() -> None:
    other = lock("l", "2", waiter("1", 1.0))
    semaphore = shared("s", ["1", "3"], waiter("2", 2.0), mode="permits", permits=2)
    assert cycles([semaphore, other]) == []
    more = lock("m", "2", waiter("3", 3.0))
    found = cycles([semaphore, other, more])
    assert {wait.waiter.owner for cycle in found for wait in cycle} == {"1", "2", "3"}


def test_a_reader_is_not_in_the_way_of_an_update() -> None:
    readers = shared("r", ["1"], mode="shared")
    update = waiter("2", 2.0)._replace(mode="update")
    held = (*readers.holders, holder("3")._replace(mode="update"))
    locks = [readers._replace(holders=held, waiters=(update,)), lock("l", "2", waiter("1", 1.0))]
    assert cycles(locks) == [], "3 releases, and 2 goes on beside 1"
    blocked_too = lock("m", "2", waiter("3", 1.0))
    assert len(cycles([*locks, blocked_too])) == 1


def test_a_writer_ahead_is_in_the_way_of_a_reader() -> None:
    """2 could read beside 1 but for the writer, which waits for 1."""
    reading = waiter("2", 3.0)._replace(mode="shared")
    readers = shared("r", ["1"], mode="shared")._replace(waiters=(waiter("9", 2.0), reading))
    (cycle,) = cycles([readers, lock("l", "2", waiter("1", 1.0))])
    assert {wait.waiter.owner for wait in cycle} == {"1", "2"}


def test_a_writer_of_another_program_is_in_the_way_of_a_reader() -> None:
    reading = waiter("2", 3.0)._replace(mode="shared")
    writing = Waiter("h", 1, "t", 0.0, None)
    readers = shared("r", ["1"], mode="shared")._replace(waiters=(writing, reading))
    assert len(cycles([readers, lock("l", "2", waiter("1", 1.0))])) == 1


def test_a_hold_that_is_upgraded_waits_for_the_readers() -> None:
    """It does not search, so it does not come first."""
    upgrading = holder("1")._replace(mode="upgrading", since=9.0)
    reader = holder("2")._replace(mode="shared")
    locks = [
        LockInfo("a", upgrading, (), (upgrading, reader)),
        lock("l", "1", waiter("2", 1.0)),
    ]
    (cycle,) = cycles(locks)
    assert names(cycle) == ["l", "a"]
    assert cycles(locks[:1]) == []


def test_many_readers_before_many_writers_are_no_work() -> None:
    """None of them both holds and waits."""
    readers = shared("a", [f"r{i}" for i in range(2000)], mode="shared")
    waiting = tuple(waiter(f"w{i}") for i in range(2000))
    assert cycles([readers._replace(waiters=waiting)]) == []


def test_order_of_the_snapshot_does_not_matter() -> None:
    locks = [lock(str(n), str(n), waiter(str((n + 1) % 6), float(n))) for n in range(6)]
    expected = cycles(locks)
    for seed in range(20):
        shuffled = locks[:]
        random.Random(seed).shuffle(shuffled)
        assert cycles(shuffled) == expected


# --- which locks a search asks for ----------------------------------------------------------------


class Asked:
    """Answers a search from locks by their names; it remembers what it was asked for."""

    def __init__(self, *states: LockState) -> None:
        self.states = {state.name: state for state in states}
        self.names: list[str | None] = []

    async def inspect(self, name: str | None, pattern: str) -> list[LockState]:
        self.names.append(name)
        if name is None:
            return list(self.states.values())
        return [self.states.get(name, LockState(name, (), ()))]

    def search(self, waits_for: str, owner: str, held: list[str]) -> list[Deadlock]:
        operation = find_for(cast("ClaimRegistry", self), claim(waits_for, owner), held)
        with pytest.raises(StopIteration) as done:
            operation.send(None)
        found: list[Deadlock] = done.value.value
        return found


def described(owner: str, holds: list[str] | None) -> str:
    return metadata_of("h", 1, owner, None, owner, holds=holds)


def claim(name: str, owner: str, holds: list[str] | None = None) -> Claim:
    since = float(ord(owner))
    return Claim(name, f"claim of {owner}", owner, 30.0, described(owner, holds), since)


def state(name: str, held_by: str, *waiting: Claim, mode: Mode = "exclusive") -> LockState:
    record = HoldRecord(
        f"hold of {held_by}", held_by, "either", 1, 30.0, described(held_by, []), 0.0, mode=mode
    )
    return LockState(name, (HoldState(record, 30.0),), waiting)


# Three owners, of which "3" searches, and one that waits beside them.
CIRCLE = (
    state("a", "1", claim("a", "3")),
    state("b", "2", claim("b", "1", ["a", "elsewhere"])),
    state("c", "3", claim("c", "2", ["b"]), claim("c", "9", [])),
)
FOREIGN = tuple(state(f"foreign {n}", "8", claim(f"foreign {n}", "7", [])) for n in range(3))


def test_a_search_follows_the_waits_for_what_the_owner_holds() -> None:
    store = Asked(*CIRCLE, *FOREIGN)
    (found,) = store.search("a", "3", ["c"])
    assert {wait.name for wait in found} == {"a", "b", "c"}
    assert set(store.names) == {"a", "b", "c", "elsewhere"}


def test_a_wait_that_leads_nowhere_is_asked_for_once() -> None:
    store = Asked(*CIRCLE[1:], *FOREIGN)
    assert store.search("a", "3", ["c"]) == []
    assert sorted(filter(None, store.names)) == ["a", "b", "c", "elsewhere"]


UPGRADING = state("b", "2", claim("b", "1", ["a"]), mode="upgrading")


@pytest.mark.parametrize(
    "instead",
    [
        state("c", "3", claim("c", "2")),
        state("c", "3", claim("c", "2", ["x" * LONGEST_HOLDS])),
        CIRCLE[2]._replace(limit=1),
        CIRCLE[2]._replace(holds=CIRCLE[2].holds + UPGRADING.holds),
    ],
    ids=["not said", "too much to say", "permits", "an upgrade"],
)
def test_where_the_waits_are_not_known_all_locks_are_listed(instead: LockState) -> None:
    store = Asked(*CIRCLE[:2], instead, *FOREIGN)
    store.search("a", "3", ["c"])
    assert store.names[-1] is None


def test_a_waiter_of_another_program_holds_nothing_that_counts() -> None:
    stranger = claim("c", "5")._replace(metadata='{"host": "h", "pid": 1, "owner": ""}')
    store = Asked(state("c", "3", stranger))
    assert store.search("a", "3", ["c"]) == []
    assert None not in store.names
    assert held_while_waiting("no JSON") is None
