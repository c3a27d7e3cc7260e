"""Unjustified refusals, and locks that stay idle while an attempt waits."""

from __future__ import annotations

import pytest
from tests.testing.histories import BOUNDS, Story

from leaselock.testing.checker import Rules
from leaselock.testing.record_format import Event
from leaselock.testing.verdict import Kind

# --- refusals -----------------------------------------------------------------------------------


def test_unjustified_refusal_is_found() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32)
    assert story.check().kinds() == {Kind.REFUSAL}


@pytest.mark.parametrize(
    ("asked", "refused", "justified"),
    [(8, 9, True), (15, 16, True), (5, 60, True), (21, 25, True), (7, 8, False), (22, 25, False)],
)
def test_possible_hold_justifies_a_refusal(asked: int, refused: int, justified: bool) -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(asked, refused)
    assert story.check().ok is justified


def test_refusal_of_a_timed_attempt_is_not_checked() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32, timeout=5)
    assert story.check().ok


def test_waiter_but_not_a_refusal_justifies_a_refusal() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32, pid=8)
    story.refuse(31, 33, pid=9)
    assert len(story.check().violations) == 2
    story.refuse(25, 50, timeout=20)
    assert story.check().ok


def test_unknown_attempt_justifies_refusals_until_its_lease_ends() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.put(35, Event.UNKNOWN, story.acquiring(30, pid=2), pid=2)
    story.refuse(150, 151)
    assert story.check().ok
    assert story.check(Rules(ghost_bound=200)).ok
    assert story.check(Rules(ghost_bound=100)).kinds() == {Kind.REFUSAL}


# --- idleness -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("granted", "kinds"), [(120, set()), (121, {Kind.GHOST})])
def test_ghost_hold_that_outlives_its_lease_is_found(granted: int, kinds: set[Kind]) -> None:
    story = Story()
    story.grant(10, 1, pid=1)
    story.kill(20, pid=1)
    story.release(story.grant(granted, 2, pid=2, began=15), granted + 5, pid=2)
    for rules in (BOUNDS, Rules(ghost_bound=100)):
        verdict = story.check(rules)
        assert verdict.kinds() == kinds
        assert [violation.holds for violation in verdict.violations] == [(1, 2)] * len(kinds)
    assert story.check(Rules(hand_over_bound=1)).ok


def test_ghost_bound_counts_from_the_first_sign_of_loss() -> None:
    for signs in ([Event.LOST_REPORTED, Event.RELEASE_LOST], [Event.RELEASE_LOST]):
        story = Story()
        hold = story.grant(10, 1)
        story.put(19, Event.RELEASING, hold)
        for number, sign in enumerate(signs):
            story.put(20 + 100 * number, sign, hold)
        story.put(500, Event.WRITE_REJECTED, hold)
        story.refuse(15, 121, timeout=110)
        assert story.check(BOUNDS).kinds() == {Kind.GHOST}


def test_attempt_that_gave_up_is_not_waiting() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.put(500, Event.WRITE_REJECTED, story.refuse(15, 40, timeout=25))
    unknown = story.acquiring(15)
    story.put(30, Event.UNKNOWN, unknown)
    story.put(500, Event.WRITE_REJECTED, unknown)
    assert story.check(BOUNDS).ok


def test_ghost_hold_of_an_unknown_attempt_is_found() -> None:
    story = Story()
    story.hold(1, 5, 1)
    story.put(20, Event.UNKNOWN, story.acquiring(10, pid=1), pid=1)
    story.refuse(30, 150, timeout=120)
    assert story.check(BOUNDS).kinds() == {Kind.GHOST}


@pytest.mark.parametrize(("asked", "kinds"), [(15, {Kind.STALL}), (110, set())])
def test_stalled_hand_over_is_found(asked: int, kinds: set[Kind]) -> None:
    story = Story()
    story.hold(10, 20, 1, pid=1)
    story.release(story.grant(120, 2, pid=2, began=asked), 125, pid=2)
    assert story.check(BOUNDS).kinds() == kinds
    assert story.check(Rules(hand_over_bound=30)).kinds() == kinds
    assert story.check(Rules(ghost_bound=1)).ok


def test_idle_time_without_waiters_is_not_a_violation() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.hold(900, 920, 2)
    assert story.check(BOUNDS).ok


def test_ghost_hold_excuses_a_late_hand_over() -> None:
    story = Story()
    story.put(15, Event.UNKNOWN, story.acquiring(10, pid=1), pid=1)
    story.hold(12, 16, 1, pid=3)
    story.release(story.grant(110, 2, pid=2, began=13), 115, pid=2)
    assert story.check(BOUNDS).ok
    assert story.check(Rules(hand_over_bound=30)).ok


def test_release_with_an_unknown_outcome_may_leave_a_ghost_hold() -> None:
    story = Story()
    hold = story.grant(10, 1)
    story.put(20, Event.RELEASING, hold)
    story.put(25, Event.UNKNOWN, hold)
    story.refuse(100, 101)
    story.put(300, Event.WRITE_REJECTED, hold)  # the process lives on, without the lock
    assert story.check(BOUNDS).ok
    assert story.check().counts.wait_max == 1
    story.refuse(130, 131)
    assert story.check(BOUNDS).kinds() == {Kind.REFUSAL}
