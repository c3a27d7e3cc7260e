"""The rules of a lock's row, by themselves: who is watched, and who is notified."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from leaselock._backends.memory.store import Table
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Convert,
    Converted,
    Grant,
    Inspect,
    Mismatch,
    Release,
    Released,
    Resize,
    Resized,
)
from leaselock._core.rows import rules

if TYPE_CHECKING:
    from leaselock._core.contract.backend import LockState, Mode


class Clients:
    """A table, its dead clients, and the notifications and watches that it asked for."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.notified: list[tuple[str, str]] = []
        self.observed: list[tuple[str, str]] = []
        self.table = Table(
            lambda: 1.0,
            lambda: 1,
            lambda client: client not in self.dead,
            lambda client, claim_id: self.notified.append((client, claim_id)),
            lambda client, other: self.observed.append((client, other)),
        )

    def acquire(self, client: str) -> object:
        return self.table.answer(client, Acquire(claim_of(client), True))


def claim_of(client: str) -> Claim:
    return Claim("a", f"{client}:1", client, 30.0, "{}", 0.0)


def test_a_waiter_watches_the_next_living_one_ahead() -> None:
    clients = Clients()
    assert isinstance(clients.acquire("holder"), Grant)
    for client in ("one", "two", "three"):
        assert isinstance(clients.acquire(client), Busy)
    assert clients.observed == [("one", "holder"), ("two", "one"), ("three", "two")]
    clients.dead = {"one", "two"}
    assert isinstance(clients.acquire("three"), Busy)
    assert clients.observed[3:] == [("three", "holder")]
    assert list(clients.table.entries["a"].queue) == ["three:1"]


def test_the_waiter_behind_one_that_leaves_the_queue_is_notified() -> None:
    clients = Clients()
    for client in ("holder", "one", "two"):
        clients.acquire(client)
    left = clients.table.answer("one", Release(claim_of("one"), False))
    assert left == ("waiting", ())
    assert clients.notified == [("two", "two:1")]
    left = clients.table.answer("two", Release(claim_of("two"), False))
    assert left == ("waiting", ())
    assert clients.notified == [("two", "two:1")]


# --- modes and permits ----------------------------------------------------------------------------


class Lock:
    """One lock of a table whose clock is moved by hand; each client has one claim."""

    def __init__(self) -> None:
        self.now = 100.0
        self.notified: list[str] = []
        self.dead: set[str] = set()
        self.tokens = itertools.count(1)
        self.table = Table(
            lambda: self.now,
            lambda: next(self.tokens),
            lambda client: client not in self.dead,
            lambda client, claim_id: self.notified.append(client),
            lambda client, watched: None,
        )

    def claim(self, client: str, mode: Mode = "exclusive", permits: int = 1) -> Claim:
        limit = 4 if mode == "permits" else 0
        claim = Claim("a", f"{client}:1", client, 30.0, "{}", 0.0)
        return claim._replace(mode=mode, permits=permits, limit=limit)

    def acquire(
        self, client: str, mode: Mode = "exclusive", permits: int = 1, *, wait: bool = True
    ) -> str:
        reply = self.table.answer(client, Acquire(self.claim(client, mode, permits), wait))
        return type(reply).__name__

    def release(self, client: str) -> str:
        released = self.table.answer(client, Release(self.claim(client), False))
        assert isinstance(released, Released)
        return released.was

    def convert(self, client: str, step: int, mode: Mode) -> Mode | None:
        reply = self.table.answer(client, Convert(self.claim(client), step, mode))
        assert isinstance(reply, Converted)
        return reply.held and reply.held.mode

    def resize(self, limit: int) -> int | None:
        reply = self.table.answer("operator", Resize("a", limit))
        assert isinstance(reply, Resized)
        return reply.limit

    def state(self) -> LockState:
        (state,) = cast("tuple[LockState, ...]", self.table.answer("", Inspect("a", "*")))
        return state

    def holders(self) -> list[str]:
        return [f"{hold.record.client} {hold.record.mode}" for hold in self.state().holds]

    def waiters(self) -> list[str]:
        return [claim.client for claim in self.state().waiting]

    def heard(self) -> list[str]:
        notified, self.notified = self.notified, []
        return notified


def test_readers_share_and_a_waiting_writer_blocks_later_readers_and_tries() -> None:
    lock = Lock()
    assert [lock.acquire("r1", "shared"), lock.acquire("r2", "shared")] == ["Grant", "Grant"]
    assert lock.acquire("w") == "Busy"
    assert lock.acquire("r3", "shared") == "Busy"
    assert lock.acquire("r4", "shared", wait=False) == "Busy"
    assert lock.waiters() == ["w", "r3"]
    assert lock.release("r1") == "held"
    assert lock.heard() == ["w"]  # the first waiter, for the holds have changed
    assert lock.release("r2") == "held"
    assert (lock.holders(), lock.heard()) == (["w exclusive"], ["w", "r3"])


def test_all_readers_up_to_the_next_writer_are_granted_together() -> None:
    lock = Lock()
    lock.acquire("w")
    for client, mode in (("r1", "shared"), ("u", "update"), ("r2", "shared"), ("w2", "exclusive")):
        lock.acquire(client, cast("Mode", mode))
    lock.acquire("r3", "shared")
    lock.heard()
    lock.release("w")
    assert lock.holders() == ["r1 shared", "u update", "r2 shared"]
    assert lock.heard() == ["r1", "u", "r2", "w2"]
    assert lock.waiters() == ["w2", "r3"]


def test_a_reader_passes_a_waiting_update_that_it_is_compatible_with() -> None:
    lock = Lock()
    lock.acquire("u1", "update")
    assert lock.acquire("u2", "update") == "Busy"
    assert lock.acquire("r", "shared") == "Grant"


def test_an_upgrade_waits_for_the_present_readers_and_overtakes_the_queue() -> None:
    lock = Lock()
    lock.acquire("r", "shared")
    lock.acquire("u", "update")
    lock.acquire("w")
    token = lock.state().holds[1].record.token
    assert lock.convert("u", 1, "exclusive") == "upgrading"
    assert lock.acquire("r2", "shared") == "Busy"
    lock.heard()
    lock.release("r")
    assert lock.holders() == ["u exclusive"]
    assert lock.heard() == ["u", "w"]
    assert lock.state().holds[0].record.token > token
    assert lock.convert("u", 1, "exclusive") == "exclusive"


def test_an_upgrade_that_is_given_up_lets_readers_in_and_late_copies_do_nothing() -> None:
    lock = Lock()
    lock.acquire("r", "shared")
    lock.acquire("u", "update")
    assert lock.convert("u", 1, "exclusive") == "upgrading"
    lock.acquire("r2", "shared")
    assert lock.convert("u", 2, "update") == "update"
    assert lock.holders() == ["r shared", "u update", "r2 shared"]
    assert lock.convert("u", 1, "exclusive") == "update"


def test_an_upgrade_that_is_asked_for_again_makes_older_conversions_late() -> None:
    """The request that gave up the first try was lost, and arrives after the second try."""
    lock = Lock()
    lock.acquire("r", "shared")
    lock.acquire("u", "update")
    assert lock.convert("u", 1, "exclusive") == "upgrading"
    assert lock.convert("u", 3, "exclusive") == "upgrading"
    assert lock.convert("u", 2, "update") == "upgrading"


def test_a_downgrade_lets_readers_in_and_a_reader_cannot_become_more() -> None:
    lock = Lock()
    lock.acquire("w")
    lock.acquire("r", "shared")
    assert lock.convert("w", 1, "shared") == "shared"
    assert lock.holders() == ["w shared", "r shared"]
    assert lock.convert("w", 2, "exclusive") == "shared"
    assert lock.convert("nobody", 1, "shared") is None


def test_permits_are_counted_and_a_large_claim_is_not_overtaken() -> None:
    lock = Lock()
    assert lock.acquire("a", "permits", 2) == "Grant"
    assert lock.acquire("b", "permits", 3) == "Busy"
    assert lock.acquire("c", "permits", 1) == "Busy"
    assert lock.acquire("d", "permits", 1, wait=False) == "Busy"
    lock.release("a")
    assert lock.holders() == ["b permits", "c permits"]


def test_a_name_in_use_is_of_one_kind_and_has_one_limit() -> None:
    lock = Lock()
    assert lock.acquire("a", "permits", 5) == "Mismatch"
    assert lock.acquire("a", "permits", 2) == "Grant"
    assert lock.acquire("b") == "Mismatch"
    other = lock.claim("b", "permits")._replace(limit=3)
    assert lock.table.answer("b", Acquire(other, True)) == Mismatch(4, ())
    unlimited = other._replace(limit=0)
    assert isinstance(lock.table.answer("b", Acquire(unlimited, True)), Grant)
    assert lock.state().limit == 4
    lock.release("a")
    lock.release("b")
    assert lock.acquire("w") == "Grant"
    assert lock.acquire("a", "permits") == "Mismatch"
    assert lock.resize(3) is None


def test_an_idle_name_whose_waiters_are_all_dead_takes_the_limit_of_the_newcomer() -> None:
    lock = Lock()
    lock.acquire("a", "permits", 4)
    lock.acquire("b", "permits", 4)
    lock.dead = {"a", "b"}
    newcomer = lock.claim("c", "permits")._replace(limit=2)
    assert isinstance(lock.table.answer("c", Acquire(newcomer, True)), Grant)
    assert lock.state().limit == 2


def test_resize_ends_no_hold_and_refuses_larger_claims_in_the_queue() -> None:
    lock = Lock()
    lock.acquire("a", "permits", 3)
    lock.acquire("b", "permits", 4)
    lock.acquire("c", "permits", 2)
    assert lock.resize(2) == 2
    assert (lock.holders(), lock.waiters()) == (["a permits"], ["c"])
    assert "b" in lock.heard()
    assert lock.acquire("b", "permits", 4) == "Mismatch"
    assert lock.acquire("c", "permits", 2) == "Busy"  # it was queued before
    assert lock.resize(5) == 5
    assert lock.holders() == ["a permits", "c permits"]


def test_a_break_by_token_ends_that_hold_only() -> None:
    lock = Lock()
    lock.acquire("r1", "shared")
    lock.acquire("r2", "shared")
    token = lock.state().holds[0].record.token
    broken = lock.table.answer("", BreakLock("a", token))
    assert isinstance(broken, Broken)
    assert (broken.done, lock.holders()) == (True, ["r2 shared"])
    broken = lock.table.answer("", BreakLock("a", token))
    assert isinstance(broken, Broken)
    assert (broken.done, lock.holders()) == (False, ["r2 shared"])


# --- waiters that do not react --------------------------------------------------------------------


def test_stopped_waiters_delay_a_living_one_by_one_confirmation_time_in_all() -> None:
    lock = Lock()
    lock.acquire("holder")
    for client in ("stopped1", "stopped2", "living"):
        lock.acquire(client)
    lock.now += 1.0
    lock.release("holder")
    released = lock.now
    lock.now += 0.5
    assert lock.acquire("living") == "Busy"
    lock.now = released + rules.CONFIRM_WITHIN
    assert lock.acquire("living") == "Grant"
    assert lock.holders() == ["living exclusive"]
    # They keep their places, and count again when their client is heard of.
    assert lock.waiters() == ["stopped2"]
    lock.release("living")
    assert lock.holders() == []
    assert lock.acquire("stopped2") == "Grant"


def test_all_waiters_of_a_client_are_passed_over_until_it_is_heard_of() -> None:
    lock = Lock()
    lock.acquire("holder")
    for number in (1, 2, 3):
        claim = lock.claim("stopped")._replace(id=f"stopped:{number}")
        lock.table.answer("stopped", Acquire(claim, True))
    lock.acquire("living")
    lock.now += 1.0
    lock.release("holder")
    lock.now += rules.CONFIRM_WITHIN
    assert lock.acquire("living") == "Grant"
    assert lock.acquire("later") == "Busy"
    claim = lock.claim("stopped")._replace(id="stopped:3")
    assert isinstance(lock.table.answer("stopped", Acquire(claim, True)), Busy)
    assert lock.table.entries["a"].lapsed_offer == 0.0
    lock.release("living")
    assert lock.state().holds[0].record.id == "stopped:2"


def test_a_claim_that_has_not_asked_for_long_is_dropped() -> None:
    lock = Lock()
    lock.acquire("holder")
    lock.acquire("silent")
    lock.now += rules.FORGET_AFTER
    assert lock.acquire("other") == "Busy"
    assert lock.waiters() == ["other"]


def test_a_reader_watches_the_nearest_claim_that_conflicts_with_it() -> None:
    lock, watched = Lock(), list[tuple[str, str]]()
    lock.table.observe_client = lambda client, other: watched.append((client, other))
    lock.acquire("r0", "shared")
    lock.acquire("w1")
    lock.acquire("w2")
    lock.acquire("r1", "shared")
    lock.acquire("r2", "shared")
    assert watched == [("w1", "r0"), ("w2", "w1"), ("r1", "w2"), ("r2", "w2")]


def test_a_grant_to_a_waiter_lasts_until_it_must_be_confirmed() -> None:
    lock = Lock()
    lock.acquire("holder")
    lock.acquire("waiter")
    lock.release("holder")
    (hold,) = lock.state().holds
    assert (hold.record.offered, hold.remaining) == (True, rules.CONFIRM_WITHIN)
    lock.acquire("waiter")
    (hold,) = lock.state().holds
    assert (hold.record.offered, hold.remaining) == (False, 30.0)
