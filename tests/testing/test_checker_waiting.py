"""Refusals that nothing explains, and locks left idle while somebody waits."""

from __future__ import annotations

import pytest
from tests.testing.histories import BOUNDS, Story

from leaselock.testing.checker import Rules
from leaselock.testing.records import Event
from leaselock.testing.verdict import Kind

# --- refusals -----------------------------------------------------------------------------------


def test_a_refusal_that_nobody_explains_is_found() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32)
    assert story.check().kinds() == {Kind.REFUSAL}


@pytest.mark.parametrize(
    ("asked", "refused", "justified"),
    [(8, 9, True), (15, 16, True), (5, 60, True), (21, 25, True), (7, 8, False), (22, 25, False)],
)
def test_a_possible_hold_justifies_a_refusal(asked: int, refused: int, justified: bool) -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(asked, refused)
    assert story.check().ok is justified


def test_a_timed_attempt_may_run_out_before_it_begins() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32, timeout=5)
    assert story.check().ok


def test_two_refusals_do_not_justify_one_another_but_a_waiter_does() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.refuse(30, 32, pid=8)
    story.refuse(31, 33, pid=9)
    assert len(story.check().violations) == 2
    story.refuse(25, 50, timeout=20)
    assert story.check().ok


def test_an_unknown_attempt_justifies_refusals_until_its_lease_is_over() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.put(35, Event.UNKNOWN, story.ask(30, pid=2), pid=2)
    story.refuse(150, 151)
    assert story.check().ok
    assert story.check(Rules(ghost_bound=200)).ok
    assert story.check(Rules(ghost_bound=100)).kinds() == {Kind.REFUSAL}


# --- idleness -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("granted", "kinds"), [(120, set()), (121, {Kind.GHOST})])
def test_a_ghost_that_outlives_its_lease_is_found(granted: int, kinds: set[Kind]) -> None:
    story = Story()
    story.grant(10, 1, pid=1)
    story.kill(20, pid=1)
    story.release(story.grant(granted, 2, pid=2, asked=15), granted + 5, pid=2)
    for rules in (BOUNDS, Rules(ghost_bound=100)):
        verdict = story.check(rules)
        assert verdict.kinds() == kinds
        assert [violation.holds for violation in verdict.violations] == [(1, 2)] * len(kinds)
    assert story.check(Rules(hand_over_bound=1)).ok


def test_a_ghost_counts_from_the_first_sign_of_loss() -> None:
    for signs in ([Event.LOST_TOLD, Event.RELEASE_LOST], [Event.RELEASE_LOST]):
        story = Story()
        hold = story.grant(10, 1)
        story.put(19, Event.RELEASING, hold)
        for number, sign in enumerate(signs):
            story.put(20 + 100 * number, sign, hold)
        story.put(500, Event.WRITE_REJECTED, hold)
        story.refuse(15, 121, timeout=110)
        assert story.check(BOUNDS).kinds() == {Kind.GHOST}


def test_who_gave_up_waits_no_longer() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.put(500, Event.WRITE_REJECTED, story.refuse(15, 40, timeout=25))
    unknown = story.ask(15)
    story.put(30, Event.UNKNOWN, unknown)
    story.put(500, Event.WRITE_REJECTED, unknown)
    assert story.check(BOUNDS).ok


def test_a_ghost_of_an_unknown_attempt_is_found() -> None:
    story = Story()
    story.hold(1, 5, 1)
    story.put(20, Event.UNKNOWN, story.ask(10, pid=1), pid=1)
    story.refuse(30, 150, timeout=120)
    assert story.check(BOUNDS).kinds() == {Kind.GHOST}


@pytest.mark.parametrize(("asked", "kinds"), [(15, {Kind.STALL}), (110, set())])
def test_a_release_that_wakes_nobody_is_found(asked: int, kinds: set[Kind]) -> None:
    story = Story()
    story.hold(10, 20, 1, pid=1)
    story.release(story.grant(120, 2, pid=2, asked=asked), 125, pid=2)
    assert story.check(BOUNDS).kinds() == kinds
    assert story.check(Rules(hand_over_bound=30)).kinds() == kinds
    assert story.check(Rules(ghost_bound=1)).ok


def test_idleness_that_nobody_waited_in_is_none() -> None:
    story = Story()
    story.hold(10, 20, 1)
    story.hold(900, 920, 2)
    assert story.check(BOUNDS).ok


def test_an_earlier_ghost_excuses_a_late_hand_over() -> None:
    story = Story()
    story.put(15, Event.UNKNOWN, story.ask(10, pid=1), pid=1)
    story.hold(12, 16, 1, pid=3)
    story.release(story.grant(110, 2, pid=2, asked=13), 115, pid=2)
    assert story.check(BOUNDS).ok
    assert story.check(Rules(hand_over_bound=30)).ok


def test_a_release_with_an_unknown_outcome_may_leave_a_ghost() -> None:
    story = Story()
    hold = story.grant(10, 1)
    story.put(20, Event.RELEASING, hold)
    story.put(25, Event.UNKNOWN, hold)
    story.refuse(100, 101)
    story.put(300, Event.WRITE_REJECTED, hold)  # lives on, without having the lock
    assert story.check(BOUNDS).ok
    assert story.check().counts.wait_max == 1
    story.refuse(130, 131)
    assert story.check(BOUNDS).kinds() == {Kind.REFUSAL}
