"""Unjustified refusals, and locks that stay idle while an attempt waits."""

from __future__ import annotations

import pytest
from tests.testing.histories import BOUNDS, HistoryBuilder

from leaselock.testing.checker import Rules
from leaselock.testing.record_format import Event
from leaselock.testing.verdict import Kind

# --- refusals -----------------------------------------------------------------------------------


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
