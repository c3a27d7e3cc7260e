"""A real database and the simulation's model of its sessions, side by side: the same answers.

Law: the library's own conversations are held with both, each claim on a session of its own; what
they come to is the same. Of times only the order of tokens is compared. Whoever waits in the real
server waits in the model; how long a wait lasts is the real one's to say, what it brings is not.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.backends.seat_worlds import ANSWERED, BRIEF, LONG, Modelled, Real
from tests.servers.process import eventually

from leaselock.backends.sql.script import SqlError
from leaselock.backends.sql.seats import Own
from leaselock.core.backend import BreakLock, Broken, Grant, HoldRecord, LockState, Release
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres

    from leaselock.core.backend import Claim

__all__ = ["BRIEF", "LONG", "SeatTwins"]


class Waiting:
    """A wait on both sides."""

    def __init__(self, twins: SeatTwins, claim: Claim, patience: float) -> None:
        self.twins = twins
        self.claim = claim
        self.real, self.modelled = (world.places[claim.id] for world in twins.worlds)
        self.got: list[Any] = []
        world = twins.modelled
        self.steps = world.seats.wait(self.modelled.seat, patience)
        self.item = next(self.steps, None)
        world.timers.clear()
        if isinstance(self.item, Own):
            world.server.ask(self.modelled.line, self.item.script, self.got.append)
        self.too_late = [end for after, end in world.timers if after == patience]
        self.future: Future[None] = twins.pool.submit(self._really, patience)
        eventually(lambda: self.future.done() or twins.real.blocked(self.real.line))

    def _really(self, patience: float) -> None:
        world = self.twins.real
        world.drive(self.real, world.seats.wait(self.real.seat, patience))

    def over(self) -> bool:
        """Whether it has ended on both sides; on both it ends as in the real one."""
        if self.item is not None and not self.got:
            if not self.future.done():
                return False
            # Nobody let it in, so its time must have been over.
            for end in self.too_late:
                end()
        self.future.result(ANSWERED)
        if self.item is not None:
            world = self.twins.modelled
            world.go_on(self.modelled, self.steps, self._followed)
        assert self.real.seat.got == self.modelled.seat.got, (self.claim, self.real.seat.got)
        return True

    def _followed(self) -> Any:
        if isinstance(self.got[0], SqlError):
            return self.steps.throw(self.got[0])
        return self.steps.send(self.got[0])

    def cut(self) -> None:
        """Its sessions end under it."""
        for world in self.twins.worlds:
            world.stop(self.claim)
        assert isinstance(self.future.exception(ANSWERED), StoreError | SqlError)


class SeatTwins:
    """Both, and the clients of both."""

    queues, votes = True, False
    leases: tuple[float, ...] = (30.0, 30.0, 30.0)
    pause = 0.0

    def __init__(self, server: Postgres | MariaDB, protocol: str) -> None:
        self.real, self.modelled = Real(server, protocol), Modelled(protocol)
        self.worlds = (self.real, self.modelled)
        self.pool = ThreadPoolExecutor()
        self.waits: dict[str, Waiting] = {}
        # Each token of the real one, and what it is in the model.
        self.tokens: dict[int, int] = {}

    def ask(self, request: Any) -> object:
        """The answer of both."""
        claims = [request.claim] if hasattr(request, "claim") else getattr(request, "claims", [])
        self.settle()
        waits = [self.waits[c.id] for c in claims if c.id in self.waits]
        if waits and not isinstance(request, Release):
            return None  # a session that waits cannot be asked
        for wait in waits:
            del self.waits[wait.claim.id]
            wait.cut()
        real = self.real.answer(request)
        model = self.modelled.answer(self._translated(request))
        self.settle()
        assert self.alike(real, model), (request, real, model)
        return real

    def wait(self, claim: Claim, patience: float) -> str:
        """Have a claim that has a seat wait in the server; what it comes to by now."""
        # MySQL waits for rows by the second, which the library knows: it does not wait so briefly.
        coarse = self.real.dialect.rings and self.real.protocol == "row" and patience == BRIEF
        if coarse or self.real.place(claim) is None or claim.id in self.waits:
            return "stands"
        wait = self.waits[claim.id] = Waiting(self, claim, patience)
        if patience == BRIEF:
            wait.future.exception(ANSWERED)
        self.settle()
        if claim.id in self.waits:
            return "waits"
        return "in vain" if wait.got and isinstance(wait.got[0], SqlError) else "let in"

    def settle(self) -> None:
        """What has ended in one has ended in both."""
        for holder, wait in list(self.waits.items()):
            if wait.over():
                del self.waits[holder]
        for holder, place in self.modelled.places.items():
            if not place.line.alive:
                line = self.real.places[holder].line
                eventually(lambda line=line: not self.real.lives(line))  # type: ignore[misc]

    def _translated(self, request: Any) -> Any:
        if isinstance(request, BreakLock) and request.token is not None:
            return request._replace(token=self.tokens.get(request.token, 0))
        return request

    def alike(self, real: Any, model: Any) -> bool:
        """Whether two answers are."""
        if isinstance(real, Grant) and isinstance(model, Grant):
            self.tokens.setdefault(real.token, model.token)
            others = [other for _, other in sorted(self.tokens.items())]
            return self.tokens[real.token] == model.token and others == sorted(set(others))
        return bool(self.plain(real, self.tokens) == self.plain(model, None))

    def plain(self, answer: Any, tokens: dict[int, int] | None) -> Any:
        """An answer without times, its tokens as the model has them."""
        if isinstance(answer, HoldRecord):
            token = answer.token if tokens is None else tokens[answer.token]
            return answer._replace(token=token, since=0.0)
        if isinstance(answer, LockState):
            waiting = sorted(claim.id for claim in answer.waiting)
            return answer.name, self.plain(answer.held, tokens), waiting
        if isinstance(answer, Broken):
            return self.plain(answer.held, tokens), answer[1]
        if type(answer) is tuple:
            return [self.plain(part, tokens) for part in answer]
        held = getattr(answer, "held", None)
        return answer if held is None else answer._replace(held=self.plain(held, tokens))

    def forget(self, claim: Claim) -> None:
        """Nothing is kept of it here."""

    def die(self, client: str) -> None:
        """All its sessions end."""
        for wait in [wait for wait in self.waits.values() if wait.claim.client == client]:
            del self.waits[wait.claim.id]
            wait.cut()
        for world in self.worlds:
            world.die(client)
        self.settle()

    def stranger(self, name: str) -> None:
        """There is no other program."""

    def heard(self) -> int:
        """Nobody is told anything."""
        return 0

    def close(self) -> None:
        """Hang up."""
        for line in self.real.lines:
            line.cut()
        self.pool.shutdown()
        for line in self.real.lines:
            line.close()
