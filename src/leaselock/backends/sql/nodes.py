"""The database as threads ask it: a few connections, each used by one request at a time.

Law: a connection goes back to the others only if it is idle and outside of a transaction; whatever
else it may be, it is closed (hazard D7). Requests that keep or give back what is held never wait
for those that ask for more (hazard D6).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.backends import Opened, check_protocol
from leaselock.backends.sql.ear import Ear
from leaselock.backends.sql.ends import Ends
from leaselock.backends.sql.lease import Lease, client_of
from leaselock.backends.sql.script import NONSENSE, SqlError, asked, dialect_of, senseless
from leaselock.backends.sql.seating import Seating
from leaselock.backends.sql.sessions import Sessions
from leaselock.backends.sql.upkeep import UPKEEP, Greeted, greeting, refusal, upkeep
from leaselock.backends.sql.url import PROTOCOLS, parsed
from leaselock.core.backend import Acquire, Capabilities, Inspect, PoolExhausted, Renew
from leaselock.core.queue import Queue
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.script import Steps
    from leaselock.backends.sql.url import Target

T = TypeVar("T")
# The server counts leases by its wall clock, which is set now and then: hence the drift, which
# covers a clock that is slewed, not one that jumps.
CAPABILITIES = Capabilities(clock_drift=0.001, clock_margin=0.002, life=False, inheritable=False)
# Beyond the size of the pool, for requests that keep or give back.
SPARE = 2
# What may be asked twice without harm.
AGAIN = (Acquire, Renew, Inspect)


def line_module(target: Target) -> Any:
    """The module that connects to this kind of database."""
    if target.dialect == "postgres":
        from leaselock.backends.sql import postgres

        return postgres
    from leaselock.backends.sql import mysql

    return mysql


class Store:
    """Carries out requests, each in the thread that asks."""

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        self.target = target
        self.now = now
        self.dialect = dialect_of(target.dialect)
        self.line = line_module(target).Line
        self.lease = Lease(self.dialect)
        self.greeted = Greeted(target)
        self.begin()

    def begin(self) -> None:
        """Nothing is connected."""
        self.idle: list[Any] = []
        self.used = 0
        self.room = threading.Condition()

    def call(self, request: object, until: float) -> object:
        """The answer of the database; Refused or Unknown when there is none by *until*."""
        if isinstance(request, UPKEEP):
            return self.converse(lambda: upkeep(request, self.greeted), until, bare=True)
        more, again = isinstance(request, Acquire), isinstance(request, AGAIN)
        return self.converse(lambda: self._about(request), until, more, again=again)

    def converse(
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
        self._enter(until, self.target.pool + (0 if more else SPARE))
        try:
            while True:
                line = self._taken(until, bare)
                try:
                    return self.drive(line, about(), until)
                except SqlError as error:
                    raise refusal(error, self.greeted) from error
                except OutcomeUnknown:
                    if not (again and line.worn and self.now() < until):
                        raise
                finally:
                    line.close() if bare else self._lay_down(line)
        finally:
            self._exit()

    def _about(self, request: object) -> Steps[object]:
        return self.lease.about(request, self.greeted.asker(client_of(request)))

    def drive(self, line: Any, steps: Steps[T], until: float) -> T:
        """Carry out a conversation on one line."""
        try:
            script = next(steps)
            while True:
                try:
                    results = asked(line, self.dialect, script, until)
                except SqlError as error:
                    script = steps.throw(error)
                else:
                    script = steps.send(results)
        except StopIteration as done:
            result: T = done.value
            return result
        except NONSENSE as error:
            raise senseless(line, error) from error

    def _enter(self, until: float, most: int) -> None:
        with self.room:
            while self.used >= most:
                left = min(until - self.now(), 3600.0)
                if left <= 0.0 or not self.room.wait(left):
                    raise PoolExhausted(f"all {most} connections to {self.target.shown} were busy")
            self.used += 1

    def _exit(self) -> None:
        with self.room:
            self.used -= 1
            self.room.notify_all()

    def _taken(self, until: float, bare: bool) -> Any:
        while self.idle:
            try:
                line = self.idle.pop()
            except IndexError:
                break  # another thread was faster
            if line.fresh():
                return line
            line.close()
        return self.connect(until, bare)

    def connect(self, until: float, bare: bool = False) -> Any:
        """A new connection, ready to be used; a *bare* one does without the tables."""
        line = self.line(self.target, self.now, until)
        try:
            self.drive(line, greeting(self.greeted, line, bare), until)
        except SqlError as error:
            line.close()
            raise refusal(error, self.greeted) from error
        except BaseException:
            line.close()
            raise
        return line

    def _lay_down(self, line: Any) -> None:
        if line.fresh():
            line.worn = True
            self.idle.append(line)
        else:
            line.close()

    def interrupt(self) -> None:
        """No call here lasts beyond its deadline."""

    def close(self) -> None:
        """End all connections."""
        lines = self.idle
        self.begin()
        for line in lines:
            line.close()

    def after_fork(self) -> None:
        """Let go of the parent's connections; they stay open there."""
        lines = self.idle
        self.begin()
        for line in lines:
            line.abandon()


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The database that a URL, or an engine of the user's, names; nothing is connected yet."""
    target = parsed(named) if isinstance(named, str) else _of_engine(named)
    default = check_protocol(target.protocol, PROTOCOLS, "SQL")
    line_module(target).check(target)
    nodes = _nodes(target, now, aio)

    def backend(protocol: str | None) -> Queue | Sessions:
        wanted = check_protocol(protocol or default, PROTOCOLS, "SQL")
        if wanted == "lease":
            return Queue(CAPABILITIES)
        coarse = wanted == "row" and target.dialect == "mysql"
        return Sessions(wanted, target.session, now, nodes["seats"].wake_all, coarse=coarse)

    return Opened(backend, default, nodes, target.shown, native=aio)


def _of_engine(engine: object) -> Target:
    from leaselock.backends.sql.engines import target_of

    return target_of(engine)


def _nodes(target: Target, now: Callable[[], float], aio: bool) -> dict[str, Any]:
    if aio:
        from leaselock.backends.sql.aio import AioStore
        from leaselock.backends.sql.aio_ear import AioEar
        from leaselock.backends.sql.aio_seating import AioEnds, AioSeating

        asked, told = AioStore(target, now), AioEnds(now)
        seats = AioSeating(asked, told)
        return {"store": asked, "ear": AioEar(asked), "seats": seats, "ends": told}
    store, ends = Store(target, now), Ends(now)
    seating = Seating(store, ends)
    return {"store": store, "ear": Ear(store), "seats": seating, "ends": ends}
