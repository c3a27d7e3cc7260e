"""Each kind of violation is found; similar valid histories are not reported."""

from __future__ import annotations

import pytest
from tests.testing.histories import BOUNDS, LOCK, HistoryBuilder

from leaselock.testing.checker import Rules
from leaselock.testing.record_format import Event, Record, lock_id
from leaselock.testing.verdict import Kind

# --- exclusion ----------------------------------------------------------------------------------


def test_overlap_is_found_and_described() -> None:
    builder = HistoryBuilder()
    first = builder.hold(10, 50, 1, pid=7)
    second = builder.hold(40, 60, 2, pid=8)
    verdict = builder.check()
    assert verdict.kinds() == {Kind.OVERLAP}
    assert verdict.violations[0].holds == (first, second)
    for part in (repr(LOCK), "pid 7", "pid 8", "token 1", "token 2", "+0.000000041 s"):
        assert part in str(verdict)


@pytest.mark.parametrize("ending", [Event.RELEASING, Event.LOST_REPORTED])
def test_certain_interval_ends_at_releasing_or_reported_loss(ending: Event) -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1)
    builder.put(20, ending, hold, pid=1)
    builder.put(90, Event.RELEASE_LOST, hold, pid=1)
    builder.hold(20, 30, 2, pid=2)
    assert Kind.OVERLAP not in builder.check().kinds()
    builder.hold(15, 17, 3, pid=3)
    assert Kind.OVERLAP in builder.check().kinds()


def test_certain_interval_ends_with_the_lease() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1, valid=20)
    builder.put(90, Event.RELEASING, hold, pid=1)
    builder.put(91, Event.RELEASE_LOST, hold, pid=1)
    builder.hold(20, 60, 2, pid=2)
    assert builder.check().ok


def test_renewal_extends_the_certain_interval() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1, valid=20)
    builder.put(15, Event.VALID_UNTIL, hold, pid=1, aux=40)
    builder.put(90, Event.RELEASING, hold, pid=1)
    builder.hold(30, 60, 2, pid=2)
    assert builder.check().kinds() == {Kind.OVERLAP}


def test_shortened_lease_is_valid_until_it_was_shortened() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1, valid=80)
    builder.put(30, Event.VALID_UNTIL, hold, pid=1, aux=12)
    builder.put(90, Event.RELEASING, hold, pid=1)
    assert builder.history().locks[lock_id(LOCK)].holds[0].certain_interval == (10, 30)


def test_grant_recorded_after_its_lease_has_no_certain_interval() -> None:
    builder = HistoryBuilder()
    frozen = builder.grant(50, 1, pid=1, began=5, valid=30)
    builder.put(60, Event.RELEASING, frozen, pid=1)
    builder.put(61, Event.RELEASE_LOST, frozen, pid=1)
    builder.hold(40, 70, 2, pid=2)
    assert builder.check().ok


def test_lease_that_ends_at_its_grant_has_no_certain_interval() -> None:
    builder = HistoryBuilder()
    builder.grant(50, 1, pid=1, began=5, valid=50)
    builder.hold(40, 70, 2, pid=2)
    assert builder.check().ok


def test_first_reported_loss_counts() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1)
    builder.put(40, Event.LOST_REPORTED, hold, pid=1)
    builder.put(20, Event.LOST_REPORTED, hold, pid=1)
    builder.hold(30, 35, 2, pid=2)
    for _ in range(2):
        assert builder.check().ok
        builder.records.reverse()


def test_unknown_attempt_has_no_certain_interval() -> None:
    builder = HistoryBuilder()
    builder.put(60, Event.UNKNOWN, builder.acquiring(5, pid=1), pid=1)
    builder.hold(10, 20, 1, pid=2)
    assert builder.check().ok
    assert [hold.certain_interval for hold in builder.history().locks[lock_id(LOCK)].holds] == [
        None,
        (10, 20),
    ]


# --- death --------------------------------------------------------------------------------------


def test_dead_process_holds_nothing_after_its_last_record() -> None:
    builder = HistoryBuilder()
    builder.grant(10, 1, pid=1)
    builder.hold(11, 20, 2, pid=2)
    verdict = builder.check()
    assert verdict.ok
    assert verdict.counts.died_holding == 1


def test_dead_process_held_at_its_last_record() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1)
    builder.put(15, Event.WRITING, hold, pid=1)
    builder.hold(15, 20, 2, pid=2)
    assert builder.check().kinds() == {Kind.OVERLAP}


def test_killed_process_held_until_the_signal() -> None:
    builder = HistoryBuilder()
    builder.grant(10, 1, pid=1)
    builder.kill(50, pid=1)
    builder.hold(51, 60, 2, pid=2)
    assert builder.check().ok
    builder.hold(49, 50, 3, pid=3)
    assert Kind.OVERLAP in builder.check().kinds()


def test_record_between_killed_and_the_signal_counts() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1)
    builder.kill(50, pid=1)
    builder.put(55, Event.WRITING, hold, pid=1)
    builder.hold(53, 60, 2, pid=2)
    assert builder.check().kinds() == {Kind.OVERLAP}


def test_kill_applies_to_the_process_that_had_the_pid() -> None:
    builder = HistoryBuilder()
    builder.grant(10, 1, pid=1)
    later = Record(100, Event.ACQUIRING, lock_id(LOCK), 77, pid=1, born=5)
    builder.records += [later, later._replace(ts=101, event=Event.GRANTED, token=3)]
    builder.kill(30, pid=1)
    builder.kill(200, pid=1)
    builder.kill(3, pid=1)  # no process with this pid had recorded anything yet
    cores = [hold.certain_interval for hold in builder.history().locks[lock_id(LOCK)].grants()]
    assert cores == [(10, 31), (101, 201)]


def test_hold_resumed_by_another_process_continues() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 1, pid=1)
    builder.put(100, Event.RELEASING, hold, pid=2)
    builder.put(101, Event.RELEASED, hold, pid=2)
    builder.hold(50, 60, 2, pid=3)
    for _ in range(2):
        (violation,) = builder.check().violations
        assert violation.kind is Kind.OVERLAP
        assert "pid 1 " in str(violation)
        builder.records.reverse()


def test_death_during_release_is_not_death_while_holding() -> None:
    builder = HistoryBuilder()
    builder.put(20, Event.RELEASING, builder.grant(10, 1))
    assert builder.check().counts.died_holding == 0


# --- tokens -------------------------------------------------------------------------------------


def test_decreasing_token_is_found_without_certain_intervals() -> None:
    builder = HistoryBuilder()
    for start, token in ((10, 5), (30, 4)):
        hold = builder.grant(start, token, valid=start)
        builder.put(start + 1, Event.LOST_REPORTED, hold)
    assert builder.check().kinds() == {Kind.TOKEN_ORDER}


def test_grants_without_tokens_are_not_compared() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 5)
    builder.hold(30, 40)
    builder.hold(50, 60, 6)
    assert builder.check().ok


def test_nested_grant_must_have_the_outer_token() -> None:
    builder = HistoryBuilder()
    hold = builder.grant(10, 5)
    builder.put(12, Event.GRANTED, hold, token=5)
    builder.release(hold, 20)
    verdict = builder.check()
    assert verdict.ok
    assert verdict.counts.grants == 1
    builder.put(13, Event.GRANTED, hold, token=6)
    assert builder.check().kinds() == {Kind.NESTED_TOKEN}


# --- the guarded resource -----------------------------------------------------------------------


def test_rejected_write_is_not_a_violation() -> None:
    builder = HistoryBuilder()
    hold = builder.hold(10, 20, 1)
    builder.write(15, 1, 2)
    builder.put(30, Event.WRITE_REJECTED, hold, token=1)
    assert builder.check().ok


def test_writes_without_a_lock_are_counted_and_checked() -> None:
    builder = HistoryBuilder()
    builder.write(15, 1, None, hold=5)
    builder.write(16, 1, None, hold=6)
    verdict = builder.check(Rules(min_grants=0))
    assert verdict.kinds() == {Kind.LOST_UPDATE}
    assert (verdict.counts.attempts, verdict.counts.writes) == (0, 2)


# --- contradictions -----------------------------------------------------------------------------


def test_contradictory_events_are_found() -> None:
    builder = HistoryBuilder()
    builder.put(12, Event.REFUSED, builder.hold(10, 20))
    builder.put(30, Event.RELEASED, builder.grant(25))
    builder.put(40, Event.RELEASING, builder.acquiring(39))
    unknown = builder.acquiring(50)
    builder.put(51, Event.UNKNOWN, unknown)
    builder.put(52, Event.GRANTED, unknown)
    found = [text for text in builder.check().violations if text.kind is Kind.MALFORMED]
    assert len(found) == 4


@pytest.mark.parametrize("answer", [Event.GRANTED, Event.REFUSED, Event.UNKNOWN])
def test_answer_without_acquiring_is_an_attempt(answer: Event) -> None:
    builder = HistoryBuilder()
    builder.put(10, answer, 5)
    verdict = builder.check(Rules(min_grants=0))
    assert verdict.ok
    assert (verdict.counts.attempts, verdict.counts.wait_max) == (1, 0)


def test_attempt_without_an_answer_is_not_a_violation() -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20)
    builder.acquiring(30)
    assert builder.check(BOUNDS).ok
