"""A hold's states, all of them, and what may be believed when."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from leaselock.core import timing
from leaselock.core.backend import Claim
from leaselock.core.effects import FOREVER
from leaselock.core.hold import NEXT, Hold, State, nobody
from leaselock.errors import LeaseLost

CLAIM = Claim("a", "c:1", "c", 30.0, "{}", 0.0)
EVENTS = ("release", "lose", "done", "detach")


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, EVENTS)))
def test_every_state_and_event(state: State, event: str) -> None:
    hold = Hold(CLAIM, 7, 30.0, renew=True)
    hold.state = state
    following = NEXT.get((state, event))
    assert hold.step(event) is (following is not None)
    assert hold.state is (following or state)


def test_nothing_leads_back() -> None:
    """FREE and LOST are ends, and nothing leads to HELD: a hold lives once."""
    assert not any(state in (State.FREE, State.LOST) for state, _ in NEXT)
    assert State.HELD not in NEXT.values()


def test_a_hold_is_believed_until_its_time_and_not_beyond() -> None:
    hold = Hold(CLAIM, 7, 30.0, renew=True)
    hold.check(29.9)
    assert hold.is_valid(29.9)
    assert hold.remaining(29.0) == 1.0
    assert not hold.is_valid(30.0)
    with pytest.raises(LeaseLost, match="ran out"):
        hold.check(30.0)
    assert hold.state is State.LOST
    assert hold.remaining(29.0) == 0.0
    assert not hold.lose("again")


def test_good_news_never_shortens_a_belief() -> None:
    hold = Hold(CLAIM, 7, 30.0, renew=True)
    hold.confirmed(20.0)
    assert hold.valid_until == 30.0
    hold.confirmed(40.0)
    assert hold.valid_until == 40.0


def test_the_bereaved_are_told_once_and_keep_nothing_alive() -> None:
    class Thing:
        pass

    hold = Hold(CLAIM, 7, 30.0, renew=True)
    handle, lease = Thing(), Thing()
    hold.loss_callbacks.append((print, weakref.ref(lease), weakref.ref(handle), lambda h: h))
    hold.loss_callbacks.append((print, weakref.ref(Thing()), weakref.ref(handle), lambda h: h))
    hold.loss_callbacks.append((print, weakref.ref(lease), weakref.ref(Thing()), lambda h: h))
    gc.collect()
    assert hold.bereaved() == [(print, lease), (print, handle)]
    assert hold.bereaved() == []
    assert nobody() is None  # type: ignore[func-returns-value]
    assert hold.owner() is None


def test_pace() -> None:
    assert timing.believed_until(100.0, 10.0, 0.01, 0.05) == pytest.approx(109.85)
    assert timing.believed_until(100.0, 0.1, 0.0, 0.05) == pytest.approx(100.09)


@pytest.mark.parametrize("left", [0.001, 0.05, 3.0, 86400.0])
def test_what_is_asked_for_a_time_is_good_until_then_and_little_longer(left: float) -> None:
    drift, margin, until = 0.001, 0.005, 100.0 + left
    lease = timing.lease_until(100.0, until, drift, margin)
    assert until <= timing.believed_until(100.0, lease, drift, margin) <= until + 0.0051
    assert timing.renew_at(100.0, 30.0) == pytest.approx(110.0)
    assert timing.answer_by(100.0, 100.0, 5.0) == 101.0
    assert timing.answer_by(100.0, 102.5, 5.0) == 102.5
    assert timing.answer_by(100.0, FOREVER, 5.0) == 105.0
    pauses = [timing.pause(attempt, 1.0) for attempt in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == timing.LONGEST_PAUSE
    assert timing.pause(5, 0.0) > 0.0
