"""One master of a Redlock as a simulation has it: the rules on a table, and votes that count.

It knows nothing of its clients' lives: a hold ends with its lease alone. A waiter that has died is
handed the lock for a claim time; the real server passes it over at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core import rules
from holdfast.core.backend import Ask, Fence, Hear, Leave, Left, Undo
from holdfast.core.table import Place, Table

if TYPE_CHECKING:
    from collections.abc import Callable


class Model:
    """A server that may be away, and may forget."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.away = False
        self.begin()

    def begin(self) -> None:
        """Start with no data."""
        self.table = Table(self.now, lambda: 0, lambda client: True, self._notify, _nothing)
        self.heard: set[str] = set()
        self.hearing: dict[str, Callable[[object], None]] = {}

    def _notify(self, client: str, holder: str) -> None:
        reply = self.hearing.pop(holder, None)
        if reply is not None:
            reply(None)
        else:
            self.heard.add(holder)

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """One request, arriving now."""
        if self.away:
            return
        if isinstance(request, Hear):
            self._listen(request.claim.holder, reply)
            return
        if isinstance(request, Ask):
            self.heard.discard(request.claim.holder)
        reply(self._answer(request))

    def _listen(self, holder: str, reply: Callable[[object], None]) -> None:
        if holder in self.heard:
            self.heard.discard(holder)
            reply(None)
        else:
            self.hearing[holder] = reply

    def _answer(self, request: Any) -> object:
        if isinstance(request, Undo):
            held = self._place(request.claim.name).held()
            if held is None or (held.holder, held.token) != (request.claim.holder, request.token):
                return Left("absent", ())
            return self.table.answer("", Leave(request.claim, bury=False))
        if isinstance(request, Fence):
            return self._fence(request)
        return self.table.answer("", request)

    def _fence(self, request: Fence) -> bool:
        place = self._place(request.claim.name)
        held = place.held()
        if held is None or held.holder != request.claim.holder or rules.over(place, held):
            return False
        token = place.entry.token = max(place.entry.token, request.token)
        place.keep(held._replace(token=token))
        return True

    def _place(self, name: str) -> Place:
        return Place(self.table, "", name)

    def die(self, machine: str) -> None:
        """A client's death is nothing it would notice."""


def _nothing(client: str, watched: str) -> None:
    """Nobody's life is watched."""
