"""A hold: its states and its validity; the timing of retries."""

from __future__ import annotations

import gc
import itertools
import weakref
from functools import partial
from typing import Any

import pytest

from leaselock._core.client import timing, validity
from leaselock._core.client.hold import TRANSITIONS, Hold, State, no_lock, no_owner
from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.contract.backend import Capabilities, Claim
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import LeaseLost

ANY: Any = None
CLAIM = Claim("a", "c:1", "c", 30.0, "{}", 0.0)
EVENTS = ("busy", "grant", "release", "lose", "done", "detach")


def held(*, renew: bool = True) -> Hold:
    hold = Hold(CLAIM)
    hold.grant(7, 30.0, renew=renew)
    return hold


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, EVENTS)))
def test_every_state_and_event(state: State, event: str) -> None:
    hold = held()
    hold.state = state
    following = TRANSITIONS.get((state, event))
    assert hold.transition(event) is (following is not None)
    assert hold.state is (following or state)


def test_final_states_are_never_left() -> None:
    """ENDED and LOST are final, and only a grant leads to HELD."""
    assert not any(state in (State.ENDED, State.LOST) for state, _ in TRANSITIONS)
    assert {event for (_, event), state in TRANSITIONS.items() if state is State.HELD} == {"grant"}


def test_a_hold_is_valid_until_its_time_and_not_beyond() -> None:
    hold = held()
    hold.check(29.9, "")
    assert hold.is_valid(29.9)
    assert hold.remaining(29.0) == 1.0
    assert not hold.is_valid(30.0)
    with pytest.raises(LeaseLost, match="ran out"):
        hold.check(30.0, "")
    assert hold.state is State.LOST
    assert hold.remaining(29.0) == 0.0
    assert not hold.lose("again")


def test_a_renewal_never_shortens_the_validity() -> None:
    hold = held()
    hold.confirmed(20.0)
    assert hold.valid_until == 30.0
    hold.confirmed(40.0)
    assert hold.valid_until == 40.0


def test_a_hold_that_was_seen_to_be_over_stays_lost() -> None:
    """The reply to a renewal may arrive after the owner has read that the lease is lost: a process
    that was frozen reads the clock first.
    """
    hold = held()
    assert not hold.is_valid(30.0)
    hold.confirmed(60.0)
    assert not hold.is_valid(31.0)
    fixed = held(renew=False)
    assert not fixed.is_valid(30.0)
    with pytest.raises(LeaseLost, match="fixed lease is over"):
        fixed.check(30.0, "")


def test_loss_callbacks_are_called_once_and_keep_nothing_alive() -> None:
    class Thing:
        pass

    def leased() -> LeaseHandle:
        lease = LeaseHandle(ANY, no_lock, "exclusive")
        lease.hold = hold
        hold.give(lease)
        return lease

    hold = held()
    handle, thing = leased(), Thing()
    handle.loss_callbacks = [
        (print, weakref.ref(thing), lambda h: h),
        (print, weakref.ref(Thing()), lambda h: h),
    ]
    dropped = leased()
    dropped.loss_callbacks = [(partial(print, dropped), weakref.ref(thing), lambda h: h)]
    assert hold.depth == 2
    del dropped
    gc.collect()
    assert hold.depth == 1
    assert hold.take_loss_callbacks() == [(print, thing), (print, handle)]
    assert hold.take_loss_callbacks() == []
    assert no_owner() is None  # type: ignore[func-returns-value]
    assert hold.owner() is None


def store(drift: float, margin: float, session: float = FOREVER) -> Capabilities:
    return Capabilities(
        drift, margin, detects_death=True, inheritable=False, session_timeout=session
    )


def test_a_lease_ends_earlier_by_drift_and_margin() -> None:
    assert validity.lease_end(store(0.01, 0.05), 100.0, 10.0) == pytest.approx(109.85)
    assert validity.lease_end(store(0.0, 0.05), 100.0, 0.1) == pytest.approx(100.09)


def test_a_hold_is_valid_to_the_end_of_its_lease_or_for_half_a_session() -> None:
    assert validity.valid_until(store(0.01, 0.05), 100.0, 10.0) == pytest.approx(109.85)
    assert validity.valid_until(store(0.0, 0.0, 8.0), 100.0, 10.0) == pytest.approx(104.0)
    assert validity.valid_until(store(0.0, 0.0, 8.0), 100.0, 3.0) == pytest.approx(103.0)
    assert validity.proof_interval(store(0.0, 0.0, 8.0), 10.0) == pytest.approx(4.0)
    assert validity.renew_early(store(0.0, 0.0), 12.0) == pytest.approx(1.0)
    assert validity.renew_at(store(0.0, 0.0), 100.0, 30.0) == pytest.approx(110.0)


@pytest.mark.parametrize("left", [0.001, 0.05, 3.0, 86400.0])
def test_a_lease_for_a_time_ends_then_or_little_later(left: float) -> None:
    can, until = store(0.001, 0.005), 100.0 + left
    lease = validity.lease_for(can, 100.0, until)
    assert until <= validity.lease_end(can, 100.0, lease) <= until + 0.0051


def test_how_long_to_wait_for_an_answer_and_between_the_tries() -> None:
    assert timing.answer_by(100.0, 100.0, 5.0) == 101.0
    assert timing.answer_by(100.0, 102.5, 5.0) == 102.5
    assert timing.answer_by(100.0, FOREVER, 5.0) == 105.0
    pauses = [timing.pause(attempt, 1.0) for attempt in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == timing.LONGEST_PAUSE
    assert timing.pause(5, 0.0) > 0.0
