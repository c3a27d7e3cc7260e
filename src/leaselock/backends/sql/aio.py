"""The database as tasks ask it: the same conversations, on connections that the loop reads.

A conversation is a task of its own. Whoever asked may be cancelled; what was begun is carried out,
so that its connection can be used again, and nobody has to guess how far it came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.backends.sql.aio_lines import MysqlLine, PostgresLine, asked
from leaselock.backends.sql.lease import Lease, client_of
from leaselock.backends.sql.script import NONSENSE, SqlError, dialect_of, senseless
from leaselock.backends.sql.upkeep import UPKEEP, Greeted, greeting, refusal, upkeep
from leaselock.core.backend import Acquire, Inspect, PoolExhausted, Renew
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leaselock.backends.sql.script import Steps
    from leaselock.backends.sql.url import Target

T = TypeVar("T")
SPARE = 2
AGAIN = (Acquire, Renew, Inspect)
LONGEST_WAIT = 3600.0


class AioStore:
    """Carries out requests, each in a task of its own."""

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        self.target = target
        self.now = now
        self.dialect = dialect_of(target.dialect)
        self.line: Any = PostgresLine if target.dialect == "postgres" else MysqlLine
        self.lease = Lease(self.dialect)
        self.greeted = Greeted(target)
        self.begin()

    def begin(self) -> None:
        """Nothing is connected."""
        self.idle: list[Any] = []
        self.lines: set[Any] = set()
        self.used = 0
        self.room: list[tuple[asyncio.Future[None], int]] = []
        self.tasks: set[asyncio.Task[Any]] = set()

    async def call(self, request: object, until: float) -> object:
        """The answer of the database; Refused or Unknown when there is none by *until*."""
        if isinstance(request, UPKEEP):
            making = self.converse(lambda: upkeep(request, self.greeted), until, bare=True)
        else:
            more, again = isinstance(request, Acquire), isinstance(request, AGAIN)
            making = self.converse(lambda: self._about(request), until, more, again=again)
        return await self.apart(making)

    def _about(self, request: object) -> Steps[object]:
        return self.lease.about(request, self.greeted.asker(client_of(request)))

    async def apart(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done, whether or not whoever waits for it is cancelled."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            # Its asker has the error, or is gone.
            task.exception()

    async def converse(
        self,
        about: Callable[[], Steps[T]],
        until: float,
        more: bool = False,
        *,
        bare: bool = False,
        again: bool = False,
    ) -> T:
        """One conversation on any line; *more* says that it asks for more than there is, *again*
        that it may be asked twice: a line that lay idle may have ended without a word. A *bare*
        line, whose tables nobody has looked at, is used for nothing else.
        """
        await self._enter(until, self.target.pool + (0 if more else SPARE))
        try:
            while True:
                line = await self._taken(until, bare)
                try:
                    return await self.drive(line, about(), until)
                except SqlError as error:
                    raise refusal(error, self.greeted) from error
                except OutcomeUnknown:
                    if not (again and line.worn and self.now() < until):
                        raise
                finally:
                    self.drop(line) if bare else self._lay_down(line)
        finally:
            self._exit()

    async def drive(self, line: Any, steps: Steps[T], until: float) -> T:
        """Carry out a conversation on one line."""
        try:
            script = next(steps)
            while True:
                try:
                    results = await asked(line, self.dialect, script, until)
                except SqlError as error:
                    script = steps.throw(error)
                else:
                    script = steps.send(results)
        except StopIteration as done:
            result: T = done.value
            return result
        except NONSENSE as error:
            raise senseless(line, error) from error

    async def _enter(self, until: float, most: int) -> None:
        if self.used < most and not self.room:
            self.used += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whoever keeps or gives back goes first.
        self.room.insert(0 if most > self.target.pool else len(self.room), (turn, most))
        self._admit()
        try:
            async with asyncio.timeout(min(max(0.0, until - self.now()), LONGEST_WAIT)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._exit()
            if isinstance(error, TimeoutError):
                words = f"all {most} connections to {self.target.shown} were busy"
                raise PoolExhausted(words) from None
            raise

    def _exit(self) -> None:
        self.used -= 1
        self._admit()

    def _admit(self) -> None:
        """Let in who comes first, as long as there is room."""
        while self.room and self.used < self.room[0][1]:
            turn, _ = self.room.pop(0)
            if not turn.done():
                self.used += 1
                turn.set_result(None)

    async def _taken(self, until: float, bare: bool) -> Any:
        while self.idle:
            line = self.idle.pop()
            if line.fresh():
                return line
            self.drop(line)
        return await self.connect(until, bare)

    async def connect(self, until: float, bare: bool = False) -> Any:
        """A new connection, ready to be used; a *bare* one does without the tables."""
        line = await self.line.connect(self.target, self.now, until)
        self.lines.add(line)
        try:
            await self.drive(line, greeting(self.greeted, line, bare), until)
        except SqlError as error:
            self.drop(line)
            raise refusal(error, self.greeted) from error
        except BaseException:
            self.drop(line)
            raise
        return line

    def drop(self, line: Any) -> None:
        """Close a line."""
        if line in self.lines:
            self.lines.discard(line)
            line.close()

    def _lay_down(self, line: Any) -> None:
        if line.fresh() and line in self.lines:
            line.worn = True
            self.idle.append(line)
        else:
            self.drop(line)

    def interrupt(self) -> None:
        """No call here lasts beyond its deadline."""

    async def finish(self) -> None:
        """Wait for what was asked, and end all connections."""
        while self.tasks:
            await asyncio.wait(self.tasks)
        for line in list(self.lines):
            self.drop(line)
        # Transports are closed by the loop's next turn.
        await asyncio.sleep(0)

    def retire(self) -> None:
        """The loop is closed: nothing of it can be used any more."""
        lines = self.lines
        self.begin()
        for line in lines:
            line.close()

    def close(self) -> None:
        """Begin anew."""
        self.begin()

    def after_fork(self) -> None:
        """Let go of the parent's connections; they stay open there."""
        lines = self.lines
        self.begin()
        for line in lines:
            line.abandon()
