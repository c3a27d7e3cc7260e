"""Comparison of a real database with the model of its sessions: both give the same answers.

The library's protocol text runs on both, each claim in its own session, with the same results. Of
times only the order of tokens is compared. A statement that waits in the real server waits in the
model. The real server decides how long it waits, and the model must agree on the result.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from testkit.servers.process import eventually
from tests.backends.sql.session_sides import BRIEF, LONG, Modelled, Real, outcome
from tests.backends.sql.sessions import ANSWERED

from leaselock._backends.sql.statements import SqlError
from leaselock._core.contract.backend import (
    BreakLock,
    Broken,
    Grant,
    HoldRecord,
    LockState,
    Release,
)
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.statements import Result, Script
    from leaselock._core.contract.backend import Claim

__all__ = ["BRIEF", "LONG", "SessionComparison"]


class Suspended:
    """An executor whose statement is answered later, by `answer`."""

    def __init__(self, side: Modelled, connection: Any) -> None:
        self.side = side
        self.connection = connection
        self.got: list[Any] = []
        self.asked = False

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script. The first one waits in the server, the following ones do not."""
        if self.asked:
            return self.side.run(self.connection, script)
        self.asked = True
        self.side.server.execute(self.connection, script, self.got.append)
        if not self.got:
            await _Pause()
        return outcome(self.got[0])


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


class Waiting:
    """A wait on both sides."""

    def __init__(self, comparison: SessionComparison, claim: Claim, timeout: float) -> None:
        self.comparison = comparison
        self.claim = claim
        self.real, self.modelled = (side.sessions[claim.id] for side in comparison.sides)
        side = comparison.modelled
        self.executor = Suspended(side, self.modelled.connection)
        self.steps = side.locks.wait(
            self.modelled.session,
            timeout,
            self.executor,  # type: ignore[arg-type]
        )
        side.timers.clear()
        self.ended = self._step()
        self.too_late = [end for after, end in side.timers if after == timeout]
        self.future: Future[None] = comparison.pool.submit(self._really, timeout)
        eventually(lambda: self.future.done() or comparison.real.blocked(self.real.connection))

    @property
    def got(self) -> list[Any]:
        """The answers of the model."""
        return self.executor.got

    def _step(self) -> bool:
        try:
            self.steps.send(None)
        except StopIteration:
            return True
        return False

    def _really(self, timeout: float) -> None:
        direct = self.comparison.real.direct
        own = direct.executor(self.real.connection)
        direct.run(self.comparison.real.locks.wait(self.real.session, timeout, own))

    def over(self) -> bool:
        """Return whether the wait has ended on both sides; the model follows the real server."""
        if not self.ended and not self.got:
            if not self.future.done():
                return False
            # The lock was not granted, so the wait must have timed out.
            for end in self.too_late:
                end()
        self.future.result(ANSWERED)
        if not self.ended:
            self.ended = self._step()
        assert self.ended
        real, modelled = self.real.session.state, self.modelled.session.state
        assert real == modelled, (self.claim, real)
        return True

    def cut(self) -> None:
        """Terminate the sessions during the wait."""
        for side in self.comparison.sides:
            side.stop(self.claim)
        assert isinstance(self.future.exception(ANSWERED), StoreError | SqlError)


class SessionComparison:
    """Both sides, and their clients."""

    queues, votes = True, False
    leases: tuple[float, ...] = (30.0, 30.0, 30.0)
    pause = 0.0

    def __init__(self, server: Postgres | MariaDB, protocol: str) -> None:
        self.real, self.modelled = Real(server, protocol), Modelled(protocol)
        self.sides = (self.real, self.modelled)
        self.pool = ThreadPoolExecutor()
        self.waits: dict[str, Waiting] = {}
        # Each token of the real server, with the corresponding one of the model.
        self.tokens: dict[int, int] = {}

    def ask(self, request: Any) -> object:
        """Execute a request on both sides, compare the answers, and return one."""
        claims = [request.claim] if hasattr(request, "claim") else getattr(request, "claims", [])
        self.synchronize()
        waits = [self.waits[c.id] for c in claims if c.id in self.waits]
        if waits and not isinstance(request, Release):
            return None  # a session that waits cannot execute a request
        for wait in waits:
            del self.waits[wait.claim.id]
            wait.cut()
        real = self.real.answer(request)
        model = self.modelled.answer(self._translated(request))
        self.synchronize()
        assert self.alike(real, model), (request, real, model)
        return real

    def wait(self, claim: Claim, timeout: float) -> str:
        """Let a claim that has a session wait in the server; return the result so far."""
        # MySQL measures waits for rows in whole seconds, so the library does not wait so briefly.
        coarse = self.real.dialect.interrupts and self.real.protocol == "row" and timeout == BRIEF
        if coarse or self.real.place(claim) is None or claim.id in self.waits:
            return "unchanged"
        wait = self.waits[claim.id] = Waiting(self, claim, timeout)
        if timeout == BRIEF:
            wait.future.exception(ANSWERED)
        self.synchronize()
        if claim.id in self.waits:
            return "waits"
        return "timed out" if wait.got and isinstance(wait.got[0], SqlError) else "granted"

    def synchronize(self) -> None:
        """Let waits and sessions that ended on one side end on both."""
        for holder, wait in list(self.waits.items()):
            if wait.over():
                del self.waits[holder]
        for holder, place in self.modelled.sessions.items():
            if not place.connection.alive:
                other = self.real.sessions[holder].connection
                eventually(lambda other=other: not self.real.lives(other))  # type: ignore[misc]

    def _translated(self, request: Any) -> Any:
        if isinstance(request, BreakLock) and isinstance(request.token, int):
            return request._replace(token=self.tokens.get(request.token, 0))
        return request

    def alike(self, real: Any, model: Any) -> bool:
        """Return whether two answers agree."""
        if isinstance(real, Grant) and isinstance(model, Grant):
            self.tokens.setdefault(real.token, model.token)
            others = [other for _, other in sorted(self.tokens.items())]
            return self.tokens[real.token] == model.token and others == sorted(set(others))
        return bool(self.plain(real, self.tokens) == self.plain(model, None))

    def plain(self, answer: Any, tokens: dict[int, int] | None) -> Any:
        """Return an answer without times, and with the tokens of the model."""
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
        if held is None:
            return answer
        return answer._replace(held=self.plain(held, tokens))

    def forget(self, claim: Claim) -> None:
        """Do nothing: no state is kept of a claim."""

    def die(self, client: str) -> None:
        """Terminate all sessions of a client."""
        for wait in [wait for wait in self.waits.values() if wait.claim.client == client]:
            del self.waits[wait.claim.id]
            wait.cut()
        for side in self.sides:
            side.die(client)
        self.synchronize()

    def stranger(self, name: str) -> None:
        """Do nothing: no other program uses these locks."""

    def heard(self) -> int:
        """Return 0: no client is notified."""
        return 0

    def close(self) -> None:
        """Close all connections."""
        for connection in self.real.connections:
            connection.cut()
        self.pool.shutdown()
        self.real.direct.close()
