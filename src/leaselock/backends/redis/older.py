"""The ways of locking that came before scripts, as the literature tells them, command by command.

They are here for fleets that use them, and to show what each can lose (docs: redis-formats). None
has a queue, so waiters poll. What the literature leaves out is kept beside the key: a counter for
the token, and a record that says who holds, both written once the lock is taken.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from leaselock.backends.redis import keys as names
from leaselock.backends.redis.forms import FORMS, sent
from leaselock.backends.redis.records import held_of
from leaselock.backends.redis.scan import sights
from leaselock.core.backend import Broken, Busy, Grant, LifetimeSet, LockState, Released

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.forms import Setnx
    from leaselock.backends.redis.keys import Keys
    from leaselock.backends.redis.steps import Command, Steps
    from leaselock.backends.redis.talk import Talk
    from leaselock.core.backend import (
        Acquire,
        BreakLock,
        Claim,
        HoldRecord,
        Inspect,
        Lifetime,
        Release,
        Renew,
        SetLifetime,
    )

POLL = 0.05


class Older:
    """The conversations of one of the older protocols."""

    def __init__(self, talk: Talk, form: str, wall: Callable[[], float]) -> None:
        self.talk = talk
        self.form: Setnx = FORMS[form](wall)

    def _keys(self, name: str) -> Keys:
        return names.keys_of(name, self.talk.route.divided)

    def ask(self, request: Acquire, waits: bool) -> Steps[Grant | Busy]:
        """Try once. Whoever waits asks again soon: nobody tells him."""
        claim = request.claim
        keys = self._keys(claim.name)
        if (yield from self.form.take(self.talk, keys, claim)):
            return Grant((yield from self._book(keys, claim)), ())
        held, _ = yield from self._held(keys)
        return Busy(held, POLL, ())

    def _book(self, keys: Keys, claim: Claim) -> Steps[int]:
        """Draw the token and write down who holds, now that nobody else does."""
        counter, _ = yield from sent(
            self.talk, keys, ("INCR", keys.token), self._record(keys, claim)
        )
        return int(counter)

    def _record(self, keys: Keys, claim: Claim, tie: Lifetime = "either") -> Command:
        # Without its token, which is the counter as long as the hold lasts.
        member = names.member_of(claim, self.form.mark(claim))
        write = ("SET", keys.record, f"\n{tie}\n{round(claim.since * 1e6)}\n{member}")
        return (*write, "EX", ceil(claim.lease)) if self.form.expires else write

    def _held(self, keys: Keys) -> Steps[tuple[HoldRecord | None, float | None]]:
        """Who holds, and for how long yet."""
        asked = (("GET", keys.lock), ("PTTL", keys.lock), ("GET", keys.record), ("GET", keys.token))
        value, left, record, counter = yield from sent(self.talk, keys, *asked)
        record, counter = record or b"", counter or b"0"
        owner = b"" if value is None else self.form.holder(value, record)
        held = held_of(owner, counter + record, counter, left)
        return held, None if held is None else self.form.left(value, left)

    def leave(self, request: Release) -> Steps[Released]:
        """Release, if it holds. A question that is still on its way cannot be refused here."""
        held = yield from self.form.drop(self.talk, self._keys(request.claim.name), request.claim)
        return Released("held" if held else "absent", ())

    def renew(self, request: Renew) -> Steps[tuple[bool | None, ...]]:
        """One after the other."""
        parts = [(self._keys(c.name).lock, partial(self._renew, c)) for c in request.claims]
        return tuple((yield from self.talk.each(parts)))

    def _renew(self, claim: Claim) -> Steps[bool]:
        keys = self._keys(claim.name)
        lasts = yield from self.form.prolong(self.talk, keys, claim)
        if lasts:
            record = self._record(keys, claim._replace(lease=lasts))
            yield from sent(self.talk, keys, record)
        return lasts is not None

    def set_lifetime(self, request: SetLifetime) -> Steps[LifetimeSet]:
        """Note that a hold outlives its client; nothing but its own time ends it in any case."""
        claim, keys = request.claim, self._keys(request.claim.name)
        asked = (("GET", keys.lock), ("GET", keys.record))
        value, record = yield from sent(self.talk, keys, *asked)
        held = self.form.ours(value, record or b"", claim)
        if held:
            yield from sent(self.talk, keys, self._record(keys, claim, request.lifetime))
        return LifetimeSet(held, ())

    def inspect(self, request: Inspect) -> Steps[tuple[LockState, ...]]:
        """One lock, or all with a record."""
        if request.name is not None:
            return ((yield from self._sight(request.name)),)
        return (yield from sights(self.talk, request.pattern, self._sight))

    def _sight(self, name: str) -> Steps[LockState]:
        held, remaining = yield from self._held(self._keys(name))
        return LockState.exclusive(name, held, remaining, ())

    def break_lock(self, request: BreakLock) -> Steps[Broken]:
        """Take the lock away."""
        keys = self._keys(request.name)
        held, _ = yield from self._held(keys)
        if held is None or request.token not in (None, held.token):
            return Broken(held, False, ())
        yield from sent(self.talk, keys, ("DEL", keys.lock, keys.record))
        return Broken(held, True, ())

    def forget(self, holder: str) -> bool:
        """Nothing is kept of a claim that waits."""
        return False
