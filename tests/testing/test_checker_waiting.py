"""Unjustified refusals, and locks that stay idle while an attempt waits."""

from __future__ import annotations

import pytest
from tests.testing.histories import BOUNDS, HistoryBuilder

from leaselock.testing.checker import Rules
from leaselock.testing.record_format import Event
from leaselock.testing.verdict import Kind

# --- refusals -----------------------------------------------------------------------------------


def test_unjustified_refusal_is_found() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.refuse(30, 32)
    assert builder.check().kinds() == {Kind.REFUSAL}


@pytest.mark.parametrize(
    ("asked", "refused", "justified"),
    [(8, 9, True), (15, 16, True), (5, 60, True), (21, 25, True), (7, 8, False), (22, 25, False)],
)
def test_possible_hold_justifies_a_refusal(asked: int, refused: int, justified: bool) -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.refuse(asked, refused)
    assert builder.check().ok is justified


def test_refusal_of_a_timed_attempt_is_not_checked() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.refuse(30, 32, timeout=5)
    assert builder.check().ok


def test_waiter_but_not_a_refusal_justifies_a_refusal() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.refuse(30, 32, pid=8)
    builder.refuse(31, 33, pid=9)
    assert len(builder.check().violations) == 2
    builder.refuse(25, 50, timeout=20)
    assert builder.check().ok


def test_unknown_attempt_justifies_refusals_until_its_lease_ends() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.put(35, Event.UNKNOWN, builder.acquiring(30, pid=2), pid=2)
    builder.refuse(150, 151)
    assert builder.check().ok
    assert builder.check(Rules(ghost_bound=200)).ok
    assert builder.check(Rules(ghost_bound=100)).kinds() == {Kind.REFUSAL}


# --- idleness -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("granted", "kinds"), [(120, set()), (121, {Kind.GHOST})])
def test_ghost_hold_that_outlives_its_lease_is_found(granted: int, kinds: set[Kind]) -> None:
    builder = HistoryBuilder()
    builder.grant(10, 1, pid=1)
    builder.kill(20, pid=1)
    builder.release(builder.grant(granted, 2, pid=2, began=15), granted + 5, pid=2)
    for rules in (BOUNDS, Rules(ghost_bound=100)):
        verdict = builder.check(rules)
        assert verdict.kinds() == kinds
        assert [violation.holds for violation in verdict.violations] == [(1, 2)] * len(kinds)
    assert builder.check(Rules(hand_over_bound=1)).ok


def test_ghost_bound_counts_from_the_first_sign_of_loss() -> None:
    for signs in ([Event.LOST_REPORTED, Event.RELEASE_LOST], [Event.RELEASE_LOST]):
        builder = HistoryBuilder()
        hold = builder.grant(10, 1)
        builder.put(19, Event.RELEASING, hold)
        for number, sign in enumerate(signs):
            builder.put(20 + 100 * number, sign, hold)
        builder.put(500, Event.WRITE_REJECTED, hold)
        builder.refuse(15, 121, timeout=110)
        assert builder.check(BOUNDS).kinds() == {Kind.GHOST}


def test_attempt_that_gave_up_is_not_waiting() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.put(500, Event.WRITE_REJECTED, builder.refuse(15, 40, timeout=25))
    unknown = builder.acquiring(15)
    builder.put(30, Event.UNKNOWN, unknown)
    builder.put(500, Event.WRITE_REJECTED, unknown)
    assert builder.check(BOUNDS).ok


def test_ghost_hold_of_an_unknown_attempt_is_found() -> None:
    builder = HistoryBuilder()
    builder.hold(1, 5, 1)
    builder.put(20, Event.UNKNOWN, builder.acquiring(10, pid=1), pid=1)
    builder.refuse(30, 150, timeout=120)
    assert builder.check(BOUNDS).kinds() == {Kind.GHOST}


@pytest.mark.parametrize(("asked", "kinds"), [(15, {Kind.STALL}), (110, set())])
def test_stalled_hand_over_is_found(asked: int, kinds: set[Kind]) -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1, pid=1)
    builder.release(builder.grant(120, 2, pid=2, began=asked), 125, pid=2)
    assert builder.check(BOUNDS).kinds() == kinds
    assert builder.check(Rules(hand_over_bound=30)).kinds() == kinds
    assert builder.check(Rules(ghost_bound=1)).ok


def test_idle_time_without_waiters_is_not_a_violation() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.hold(900, 920, 2)
    assert builder.check(BOUNDS).ok


def test_ghost_hold_excuses_a_late_hand_over() -> None:
    builder = HistoryBuilder()
    builder.put(15, Event.UNKNOWN, builder.acquiring(10, pid=1), pid=1)
    builder.hold(12, 16, 1, pid=3)
    builder.release(builder.grant(110, 2, pid=2, began=13), 115, pid=2)
    assert builder.check(BOUNDS).ok
    assert builder.check(Rules(hand_over_bound=30)).ok


def test_release_with_an_unknown_outcome_may_leave_a_ghost_hold() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1)
    builder.put(20, Event.RELEASING, hold)
    builder.put(25, Event.UNKNOWN, hold)
    builder.refuse(100, 101)
    builder.put(300, Event.WRITE_REJECTED, hold)  # the process lives on, without the lock
    assert builder.check(BOUNDS).ok
    assert builder.check().counts.wait_max == 1
    builder.refuse(130, 131)
    assert builder.check(BOUNDS).kinds() == {Kind.REFUSAL}
