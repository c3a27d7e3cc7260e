"""Which conversation answers which request of the core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.backends.redis.doctor import examination
from holdfast.backends.redis.forms import FORMS
from holdfast.backends.redis.hash import Hash
from holdfast.backends.redis.keys import message_of
from holdfast.backends.redis.older import Older
from holdfast.backends.redis.talk import Talk
from holdfast.core.backend import (
    Ask,
    Break,
    Examine,
    Fence,
    Leave,
    Look,
    Prepare,
    Renew,
    Retie,
    Sweep,
    Undo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.backends.redis.settings import Settings
    from holdfast.backends.redis.steps import Steps
    from holdfast.core.backend import Claim


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
            self.answers = {Undo: self.locks.undo, Fence: self.locks.fence}
        self.answers |= {
            Leave: self.locks.leave,
            Renew: self.locks.renew,
            Retie: self.locks.retie,
            Break: self.locks.evict,
            Look: self.locks.look,
            Examine: self._examine,
            Prepare: lambda request: _at_once(()),
            Sweep: lambda request: _at_once(0),
        }

    def about(self, request: object, waits: bool) -> Steps[Any]:
        """The conversation that answers *request*; a claim that *waits* has a line of its own."""
        if isinstance(request, Ask):
            return self.locks.ask(request, waits)
        return self.answers[type(request)](request)

    def _examine(self, request: Examine) -> Steps[Any]:
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
