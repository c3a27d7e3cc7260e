"""Which conversation answers which request of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.backends.redis.doctor import examination
from holdfast.backends.redis.hash import Hash
from holdfast.backends.redis.talk import Talk
from holdfast.core.backend import Ask, Break, Examine, Leave, Look, Prepare, Renew, Retie, Sweep

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
        self.hash = Hash(self.talk, address_of, settings.replicas, form)
        self.answers: dict[type, Callable[[Any], Steps[Any]]] = {
            Leave: self.hash.leave,
            Renew: self.hash.renew,
            Retie: self.hash.retie,
            Break: self.hash.evict,
            Look: self.hash.look,
            Examine: self._examine,
            Prepare: lambda request: _at_once(()),
            Sweep: lambda request: _at_once(0),
        }

    def about(self, request: object, waits: bool) -> Steps[Any]:
        """The conversation that answers *request*; a claim that *waits* has a line of its own."""
        if isinstance(request, Ask):
            return self.hash.ask(request, waits)
        return self.answers[type(request)](request)

    def _examine(self, request: Examine) -> Steps[Any]:
        return examination(self.talk)

    def forget(self, holder: str) -> None:
        """The claim waits no more."""
        self.hash.tickets.pop(holder, None)


def _at_once(answer: object) -> Steps[Any]:
    return answer
    yield
