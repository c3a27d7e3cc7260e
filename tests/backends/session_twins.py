"""A real database and the model of its sessions, side by side: the same answers.

The conversations of the library run on both, each claim on a session of its own, and have the same
results. Of times only the order of tokens is compared. What waits in the real server waits in the
model. The real server decides how long a wait lasts, and the model must agree on its result.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.backends.session_worlds import BRIEF, LONG, Modelled, Real, outcome
from tests.backends.sessions import ANSWERED
from tests.servers.process import eventually

from leaselock.backends.sql.statements import SqlError
from leaselock.core.backend import BreakLock, Broken, Grant, HoldRecord, LockState, Release
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres

    from leaselock.backends.sql.statements import Result, Script
    from leaselock.core.backend import Claim

__all__ = ["BRIEF", "LONG", "SessionTwins"]


class Suspended:
    """An executor whose statement is answered later, by `answer`."""

    def __init__(self, world: Modelled, connection: Any) -> None:
        self.world = world
        self.connection = connection
        self.got: list[Any] = []
        self.asked = False

    async def execute(self, script: Script) -> list[Result]:
        """The first script waits in the server; what follows does not."""
        if self.asked:
            return self.world.run(self.connection, script)
        self.asked = True
        self.world.server.execute(self.connection, script, self.got.append)
        if not self.got:
            await _Pause()
        return outcome(self.got[0])


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


class Waiting:
    """A wait on both sides."""

    def __init__(self, twins: SessionTwins, claim: Claim, patience: float) -> None:
        self.twins = twins
        self.claim = claim
        self.real, self.modelled = (world.places[claim.id] for world in twins.worlds)
        world = twins.modelled
        self.executor = Suspended(world, self.modelled.connection)
        self.steps = world.locks.wait(
            self.modelled.session,
            patience,
            self.executor,  # type: ignore[arg-type]
        )
        world.timers.clear()
        self.ended = self._step()
        self.too_late = [end for after, end in world.timers if after == patience]
        self.future: Future[None] = twins.pool.submit(self._really, patience)
        eventually(lambda: self.future.done() or twins.real.blocked(self.real.connection))

    @property
    def got(self) -> list[Any]:
        """What the model has answered."""
        return self.executor.got

    def _step(self) -> bool:
        try:
            self.steps.send(None)
        except StopIteration:
            return True
        return False

    def _really(self, patience: float) -> None:
        direct = self.twins.real.direct
        own = direct.executor(self.real.connection)
        direct.run(self.twins.real.locks.wait(self.real.session, patience, own))

    def over(self) -> bool:
        """Whether it has ended on both sides; on both it ends as in the real one."""
        if not self.ended and not self.got:
            if not self.future.done():
                return False
            # It was not granted, so its time must be up.
            for end in self.too_late:
                end()
        self.future.result(ANSWERED)
        if not self.ended:
            self.ended = self._step()
        assert self.ended
        real, modelled = self.real.session.has_row, self.modelled.session.has_row
        assert real == modelled, (self.claim, real)
        return True

    def cut(self) -> None:
        """Its sessions end under it."""
        for world in self.twins.worlds:
            world.stop(self.claim)
        assert isinstance(self.future.exception(ANSWERED), StoreError | SqlError)


class SessionTwins:
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
        coarse = self.real.dialect.interrupts and self.real.protocol == "row" and patience == BRIEF
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
            if not place.connection.alive:
                other = self.real.places[holder].connection
                eventually(lambda other=other: not self.real.lives(other))  # type: ignore[misc]

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
        for connection in self.real.connections:
            connection.cut()
        self.pool.shutdown()
        self.real.direct.close()
