"""The places of a pool of connections."""

from __future__ import annotations

from leaselock.backends.sql.pool import Room
from leaselock.core.effects import FOREVER, Wait


def test_a_place_that_an_interrupt_has_torn_from_its_owner_is_free_again() -> None:
    room = Room(1)
    place = room.enter_now()
    assert place is not None
    assert room.enter_now() is None
    waiting = room.enter(FOREVER)
    effect = waiting.send(None)
    assert isinstance(effect, Wait)
    # Ctrl-C strikes before the owner can give it back: only the reference is gone.
    del place
    assert not effect.signal.is_set
    another = room.enter(FOREVER)
    another.send(None)
    assert effect.signal.is_set
    another.close()
    waiting.close()
