"""How many operations of one client run at once."""

from __future__ import annotations

import pytest

from leaselock._core.client.concurrency_limit import ConcurrencyLimit
from leaselock._core.contract.effects import FOREVER, Wait


def test_a_slot_that_an_interrupt_has_torn_from_its_owner_is_free_again() -> None:
    limit = ConcurrencyLimit(1)
    slot = limit.enter_now()
    assert slot is not None
    assert limit.enter_now() is None
    waiting = limit.enter(FOREVER)
    effect = waiting.send(None)
    assert isinstance(effect, Wait)
    # Ctrl-C strikes before the owner can give it back: only the reference is gone.
    del slot
    assert not effect.signal.is_set
    another = limit.enter(FOREVER)
    another.send(None)
    assert effect.signal.is_set
    another.close()
    waiting.close()


def test_operations_take_turns() -> None:
    limit = ConcurrencyLimit(1)
    slot = limit.enter_now()
    assert slot is not None
    turns = [limit.enter(1.0) for _ in range(4)]
    for turn in turns:
        turn.send(None)
    # Its time has passed.
    with pytest.raises(StopIteration) as done:
        turns[0].send(False)
    assert done.value.value is None
    limit.leave(slot)
    # It is cancelled just as its turn has come, and passes it on.
    with pytest.raises(KeyboardInterrupt):
        turns[1].throw(KeyboardInterrupt)
    with pytest.raises(StopIteration) as done:
        turns[2].send(True)
    # It has not waited for its turn any more.
    turns[3].close()
    limit.leave(done.value.value)
    assert limit.enter_now() is not None


def test_expected_operations_enter_before_the_other_ordinary_ones() -> None:
    limit = ConcurrencyLimit(1, spare=1)
    slot, spare = limit.enter_now(), limit.enter_now(urgent=True)
    ordinary = limit.enter(1.0)
    expected = limit.enter(1.0, expected=True)
    effects = [operation.send(None) for operation in (ordinary, expected)]
    assert spare is not None
    limit.leave(spare)  # the spare slot is not theirs
    assert [effect.signal.is_set for effect in effects] == [False, False]
    assert slot is not None
    limit.leave(slot)
    assert [effect.signal.is_set for effect in effects] == [False, True]
    ordinary.close()
    expected.close()


def test_urgent_operations_enter_before_the_others() -> None:
    limit = ConcurrencyLimit(1, spare=1)
    slot = limit.enter_now()
    spare = limit.enter_now(urgent=True)
    assert slot is not None
    assert spare is not None
    assert limit.enter_now() is None
    assert limit.enter_now(urgent=True) is None
    ordinary, urgent = limit.enter(1.0), limit.enter(1.0, urgent=True)
    ordinary.send(None)
    urgent.send(None)
    limit.leave(slot)
    with pytest.raises(StopIteration):
        urgent.send(True)
    limit.leave(spare)
    ordinary.close()
