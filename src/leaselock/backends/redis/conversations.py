"""Which conversation answers which request of the core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.doctor import examination
from leaselock.backends.redis.forms import FORMS
from leaselock.backends.redis.hash import Hash
from leaselock.backends.redis.keys import message_of
from leaselock.backends.redis.older import Older
from leaselock.backends.redis.steps import Unreachable
from leaselock.backends.redis.talk import Talk
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    CollectGarbage,
    Doctor,
    Inspect,
    RaiseToken,
    Release,
    ReleaseGrant,
    Renew,
    SetLifetime,
    Setup,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Send, Steps
    from leaselock.core.backend import Claim


class Conversations:
    """What one client can talk about with its store."""

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float],
        address_of: Callable[[Claim], str],
        form: str,
    ) -> None:
        self.talk = Talk(settings.route(now))
        self.locks: Hash | Older
        self.answers: dict[type, Callable[[Any], Steps[Any]]] = {}
        if form in FORMS:
            self.locks = Older(self.talk, form, time.time)
        else:
            self.locks = Hash(self.talk, address_of, settings.replicas, form, now)
            self.answers = {ReleaseGrant: self.locks.undo, RaiseToken: self.locks.fence}
        self.answers |= {
            Release: self.locks.leave,
            Renew: self.locks.renew,
            SetLifetime: self.locks.set_lifetime,
            BreakLock: self.locks.break_lock,
            Inspect: self.locks.inspect,
            Doctor: self._examine,
            Setup: lambda request: _at_once(()),
            CollectGarbage: lambda request: _at_once(0),
        }

    def about(self, request: object, waits: bool) -> Steps[Any]:
        """The conversation that answers *request*; a claim that *waits* has a line of its own."""
        brief = None if waits else self.brief(request)
        return self._at_length(request, waits) if brief is None else self._shortly(request, brief)

    def brief(self, request: object) -> Send | None:
        """What nearly always settles a request in one step, if there is such a thing.

        Nodes that have a line at hand send it without a conversation around it.
        """
        if isinstance(request, (Acquire, Release)) and isinstance(self.locks, Hash):
            return self.locks.ready.brief(request, self.locks.replicas)
        return None

    def settled(self, request: Any, reply: Any) -> object | None:
        """What the reply to the brief question answers; None if there is more to say."""
        if isinstance(reply, Exception) or not isinstance(self.locks, Hash):
            return None
        return self.locks.settled(request, reply)

    def further(self, request: object, reply: object) -> Steps[Any]:
        """The conversation after a reply that settled nothing; if no error, it says to wait."""
        return self._at_length(request, not isinstance(reply, Exception))

    def _shortly(self, request: object, brief: Send) -> Steps[Any]:
        try:
            (reply,) = yield brief
        except Unreachable as error:
            self.talk.route.forget()
            reply = error
        answer = self.settled(request, reply)
        return (yield from self.further(request, reply)) if answer is None else answer

    def _at_length(self, request: object, waits: bool) -> Steps[Any]:
        if isinstance(request, Acquire):
            return self.locks.ask(request, waits)
        return self.answers[type(request)](request)

    def _examine(self, request: Doctor) -> Steps[Any]:
        return examination(self.talk)

    def heard(self, word: str) -> str:
        """A message: what it says is kept for the next question; whom it is for."""
        holder, token, seconds = message_of(word)
        if token and isinstance(self.locks, Hash):
            self.locks.heard(holder, token, seconds)
        return holder

    def forget(self, holder: str) -> bool:
        """The claim waits no more; says whether it stood in the queue still."""
        return self.locks.forget(holder)


def _at_once(answer: object) -> Steps[Any]:
    return answer
    yield
