"""The slots of a pool of connections."""

from __future__ import annotations

from leaselock._backends.sql.pool import ConcurrencyLimit
from leaselock._core.effects import FOREVER, Wait


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
