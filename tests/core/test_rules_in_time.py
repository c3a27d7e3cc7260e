"""The rules of a lock's row while time passes: what replies say, how long a lock stays taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.memory.store import MemoryRow, Table
from leaselock._core.contract.backend import (
    WATCH_INTERVAL,
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Convert,
    Converted,
    Grant,
    Inspect,
    LockState,
    Mismatch,
    Release,
    SetLifetime,
    Watch,
)
from leaselock._core.rows import rules
from leaselock._core.rows.rules import NEVER, RECHECK_INTERVAL, LockRow

if TYPE_CHECKING:
    from leaselock._core.contract.backend import HoldRecord, Mode

LEASE = 30.0


class Lock:
    """One lock, its clock, and the clients that have died."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.dead: set[str] = set()
        self.watched: list[str] = []
        self.table = Table(
            lambda: self.time,
            lambda: int(self.time * 1e6),
            lambda client: client not in self.dead,
            lambda client, claim_id: None,
            lambda client, other: self.watched.append(other),
        )

    def ask(self, request: Any) -> Any:
        return self.table.answer(request.claim.client, request)

    def acquire(self, claim: Claim, *, wait: bool = False) -> Any:
        return self.ask(Acquire(claim, wait))

    def granted(self, claim: Claim) -> Claim:
        assert isinstance(self.acquire(claim), Grant)
        return claim

    def shown(self) -> LockState:
        states: Any = self.table.answer("other", Inspect("a", "*"))
        (state,) = states
        assert isinstance(state, LockState)
        return state

    def holds(self) -> list[HoldRecord]:
        return list(self.table.entries["a"].holds.values())


@pytest.fixture
def lock() -> Lock:
    return Lock()


def claim(client: str, mode: Mode = "exclusive", **terms: Any) -> Claim:
    made = Claim("a", f"{client}:1", client, LEASE, "{}", 0.0, mode=mode)
    return made._replace(**terms)


# --- for how long a lock stays taken after its release --------------------------------------------


@pytest.mark.parametrize(
    ("mode", "least"), [("exclusive", 10.0), ("shared", 10.0), ("exclusive", 0.5)]
)
def test_a_released_lock_stays_taken_until_min_hold_is_over(
    lock: Lock, mode: Mode, least: float
) -> None:
    held = lock.granted(claim("one", mode, min_hold=least))
    lock.time += least / 4
    lock.ask(Release(held, False))
    busy = lock.acquire(claim("other"))
    assert isinstance(busy, Busy)
    assert busy.retry_after == pytest.approx(least * 3 / 4)
    lock.time += least * 3 / 4 + 0.001
    lock.granted(claim("other"))


def test_an_aligned_time_ends_with_the_multiple_of_the_clock(lock: Lock) -> None:
    lock.time = 1003.0
    held = lock.granted(claim("one", min_hold=10.0, aligned=True))
    lock.ask(Release(held, False))
    assert lock.acquire(claim("other")).retry_after == pytest.approx(7.0)


def test_a_hold_that_has_lasted_for_min_hold_leaves_nothing(lock: Lock) -> None:
    held = lock.granted(claim("one", min_hold=10.0))
    lock.time += 11.0
    lock.ask(Release(held, False))
    assert lock.holds() == []


def test_a_hold_with_min_hold_outlives_its_client_for_that_time(lock: Lock) -> None:
    lock.granted(claim("one", min_hold=10.0))
    lock.dead.add("one")
    assert isinstance(lock.acquire(claim("other")), Busy)
    lock.time += 11.0
    lock.granted(claim("other"))


def test_a_repeated_request_does_not_prolong_it(lock: Lock) -> None:
    held = lock.granted(claim("one", min_hold=10.0))
    lock.time += 4.0
    lock.granted(held)
    lock.ask(Release(held, False))
    assert lock.acquire(claim("other")).retry_after == pytest.approx(6.0)


def test_a_detached_hold_outlives_its_client_until_its_lease_ends(lock: Lock) -> None:
    held = lock.granted(claim("one"))
    assert lock.ask(SetLifetime(held, "lease")).held
    assert not lock.ask(SetLifetime(claim("other"), "lease")).held
    lock.dead.add("one")
    assert isinstance(lock.acquire(claim("other"), wait=True), Busy)
    assert lock.watched == []
    lock.time += LEASE + 1.0
    lock.granted(claim("other"))


def test_only_numbers_and_permits_are_marked_in_the_metadata(lock: Lock) -> None:
    lock.granted(claim("one", min_hold=10.0))
    (hold,) = lock.holds()
    assert (hold.metadata, hold.free_from, hold.step) == ("{}", 1010.0, 0)
    lock.time += 41.0
    lock.granted(lock.granted(claim("other")))
    (hold,) = lock.holds()
    assert hold.free_from == 0.0


# --- when to ask again ----------------------------------------------------------------------------


def test_a_try_learns_when_the_first_hold_in_its_way_ends(lock: Lock) -> None:
    lock.granted(claim("one", "shared"))
    lock.granted(claim("two", "shared", lease=12.0))
    lock.time += 2.0
    busy = lock.acquire(claim("other"))
    assert busy.retry_after == pytest.approx(10.0)
    assert busy.held.client == "one"
    assert lock.acquire(claim("other"), wait=True).retry_after == RECHECK_INTERVAL


def test_a_try_behind_a_waiter_looks_only_at_offers(lock: Lock) -> None:
    held = lock.granted(claim("one"))
    lock.acquire(claim("waiter"), wait=True)
    assert lock.acquire(claim("other")).retry_after == NEVER
    lock.acquire(claim("second"), wait=True)
    lock.ask(Release(held, False))
    assert lock.acquire(claim("other")).retry_after == pytest.approx(rules.CONFIRM_WITHIN)


def test_an_upgrade_looks_again_when_another_hold_ends(lock: Lock) -> None:
    update = lock.granted(claim("update", "update"))
    lock.granted(claim("reader", "shared", lease=1.0))
    waiting = lock.ask(Convert(update, 1, "exclusive"))
    assert isinstance(waiting, Converted)
    assert waiting.held is not None
    assert (waiting.held.mode, waiting.retry_after) == ("upgrading", 1.0)
    assert lock.watched == ["reader"]
    kept = lock.ask(Convert(update, 2, "update"))
    assert kept.retry_after == NEVER


def test_a_watcher_looks_again_when_the_first_hold_ends(lock: Lock) -> None:
    lock.granted(claim("one", "shared"))
    lock.granted(claim("two", "shared", lease=12.0))
    watched = lock.ask(Watch(claim("other")))
    assert watched.retry_after == pytest.approx(min(12.0, WATCH_INTERVAL))
    assert lock.watched == ["one", "two"]
    lock.time += 11.75
    assert lock.ask(Watch(claim("other"))).retry_after == pytest.approx(0.25)


# --- what is refused and what is shown ------------------------------------------------------------


def test_a_conversion_with_the_number_of_an_earlier_one_changes_nothing(lock: Lock) -> None:
    held = lock.granted(claim("one"))
    assert lock.ask(Convert(held, 1, "update")).held.mode == "update"
    assert lock.ask(Convert(held, 1, "shared")).held.mode == "update"
    assert lock.ask(Convert(held, 2, "shared")).held.mode == "shared"


def test_a_name_in_use_as_another_kind_says_as_what(lock: Lock) -> None:
    held = lock.granted(claim("one", "permits", limit=3))
    assert lock.acquire(claim("other")) == Mismatch(3)
    lock.ask(Release(held, False))
    lock.granted(claim("other"))
    assert lock.acquire(claim("one", "permits", limit=3)) == Mismatch(None)


def test_a_break_with_another_token_shows_the_hold(lock: Lock) -> None:
    lock.granted(claim("one"))
    (hold,) = lock.holds()
    kept: Any = lock.table.answer("other", BreakLock("a", hold.token + 1))
    assert (kept.held, kept.done) == (hold, False)
    broken: Any = lock.table.answer("other", BreakLock("a", hold.token))
    assert (broken.held, broken.done) == (hold, True)
    assert lock.holds() == []


def test_all_dead_waiters_are_removed_at_once(lock: Lock) -> None:
    lock.granted(claim("one"))
    for client in ("dead", "living", "dead too"):
        lock.acquire(claim(client), wait=True)
    lock.dead |= {"dead", "dead too"}
    rules.tidy(MemoryRow(lock.table, "", "a"))
    assert list(lock.table.entries["a"].queue) == ["living:1"]


def test_a_row_without_an_index_finds_the_neighbours_of_a_claim() -> None:
    """The defaults of `LockRow`, which a store of others may leave as they are."""

    class Queue:
        def queue(self) -> list[Claim]:
            return [claim(client) for client in ("one", "two", "three")]

    row: Any = Queue()

    def clients(claims: Any) -> list[str]:
        return [each.client for each in claims]

    assert clients(LockRow.ahead(row, "three:1")) == ["two", "one"]
    assert clients(LockRow.ahead(row, "none")) == ["three", "two", "one"]
    assert LockRow.behind(row, "one:1") == claim("two")
    assert LockRow.behind(row, "three:1") is None
    assert LockRow.behind(row, "none") is None
    assert LockRow.queued(row, "two:1")
    assert not LockRow.queued(row, "none")


def test_a_break_of_all_readers_shows_the_oldest(lock: Lock) -> None:
    for client in ("one", "two"):
        lock.granted(claim(client, "shared"))
    broken: Any = lock.table.answer("other", BreakLock("a", None))
    assert (broken.held.client, broken.done, lock.holds()) == ("one", True, [])


def test_what_is_shown_of_a_lock_and_of_a_semaphore(lock: Lock) -> None:
    held = lock.granted(claim("one"))
    for client in ("dead", "living"):
        lock.acquire(claim(client), wait=True)
    lock.dead.add("dead")
    state = lock.shown()
    assert (state.limit, [each.client for each in state.waiting]) == (0, ["living"])
    lock.ask(Release(claim("living"), False))
    lock.ask(Release(held, False))
    lock.granted(claim("one", "permits", limit=3))
    state = lock.shown()
    assert state.limit == 3
