"""The embedded store: one SQLite file, the clients of one machine, and no server.

`Store` carries out the `rules` on the file. Two statements are short ways for what happens most,
a free lock taken and a lock given back that nobody waits for; the models' tests hold them equal
to the rules. `Ear` waits for messages of other clients. Both share one `File`.
"""

from __future__ import annotations

import fnmatch
import sqlite3
import time
from typing import TYPE_CHECKING, TypeVar

from leaselock.backends import Opened, check_protocol, default_protocol
from leaselock.backends.sqlite.database import (
    busy,
    patiently,
    relieved,
    transact,
    translated,
)
from leaselock.backends.sqlite.doctor import findings
from leaselock.backends.sqlite.file import File
from leaselock.backends.sqlite.place import path_of
from leaselock.backends.sqlite.shelf import SQL, Context, FileShelf
from leaselock.backends.url import parse
from leaselock.core import rules
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Busy,
    Capabilities,
    Claim,
    CollectGarbage,
    Doctor,
    Grant,
    Inspect,
    LifetimeSet,
    Listen,
    LockState,
    Release,
    Released,
    Renew,
    SetLifetime,
    Setup,
)
from leaselock.core.queue import Queue
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
# The file's clock is ours: the margin is only for the rounding of two readings.
CAPABILITIES = Capabilities(clock_drift=0.0, clock_margin=0.001, life=True, inheritable=True)
PROTOCOLS = ("queue",)
RELEASED = Released("held", ())
# Only the client itself asks for a claim of its own, soon after or never.
MOST_BURIED = 1000
TAKE, CONFIRM, DROP = SQL["take"], SQL["confirm"], SQL["drop"]


class Store:
    """Carries out requests, one at a time."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.waiting: set[str] = set()
        self.has_tombstone: dict[str, None] = {}
        self.answers: Mapping[type, Callable[..., object]] = {
            Acquire: self._ask,
            Release: self._leave,
            Renew: self._renew,
            SetLifetime: self._retie,
            BreakLock: self._break,
            Inspect: self._inspect,
            Doctor: self._examine,
            Setup: self._prepare,
            CollectGarbage: self._sweep,
        }

    def call(self, request: object, until: float) -> object:
        """The answer of the file; Refused when other transactions keep it busy until *until*."""
        file = self.file
        mutex = file.mutex  # a file that is closed begins anew with another one
        if not mutex.acquire(False) and not mutex.acquire(timeout=file.left(until)):
            raise NotApplied(f"{file.path} was busy with other requests of this process")
        try:
            # A release that finds the file replaced does no harm; a grant would.
            database = file.open(until, trusting=type(request) is Release)
            if database.in_transaction:
                database.execute("ROLLBACK")
            return self.answers[type(request)](request, until)
        except OSError as error:
            # No descriptor left, say: it may have struck after the transaction was committed.
            raise OutcomeUnknown(f"{file.path}: {error}") from error
        finally:
            mutex.release()

    def _short(self, work: Callable[[sqlite3.Cursor], T], until: float) -> T:
        """One statement that is a transaction by itself, its rows read: that is what commits it."""
        file = self.file
        cursor = file.cursor
        assert cursor is not None
        try:
            return work(cursor)
        except sqlite3.Error as error:
            if not busy(error) and not relieved(error, cursor.connection):
                raise translated(error, file.path) from error
        return patiently(lambda: work(cursor), file.now, until, file.path)

    def _whole(self, until: float, work: Callable[[Context], T]) -> T:
        """One transaction, and the messages that it sends when it is committed."""
        file = self.file
        database = file.open(until, trusting=True)
        own = file.life.client if file.life is not None else ""

        def once() -> tuple[Context, T]:
            now, micros = file.now(), time.time_ns() // 1000
            context = Context(database, file.clients(), own, now, micros)
            return context, transact(database, lambda: work(context))

        def attempt() -> tuple[Context, T]:
            try:
                return once()
            except sqlite3.Error as error:
                if not relieved(error, database):
                    raise
                return once()

        context, result = patiently(attempt, file.now, until, file.path)
        for claim in context.remote:
            context.clients.notify(claim.client, int(claim.id.rpartition(":")[2]))
        for client in context.watched:
            file.live(own).watch(client)
        return result

    def _ask(self, request: Acquire, until: float) -> object:
        if self.file.life is None:
            self.file.live(request.claim.client)
        token = self._ask_shortly(request.claim, until)
        if token is not None:
            return Grant(token, ())
        name = request.claim.name
        reply = self._whole(until, lambda c: _acquire(FileShelf(c, name), request))
        if isinstance(reply, Busy):
            self.waiting.add(request.claim.id)
        return reply

    def _ask_shortly(self, claim: Claim, until: float) -> int | None:
        name, holder, client, lease, about = claim[:5]
        if self.waiting or self.has_tombstone:
            if holder in self.waiting:
                return self._confirm_shortly(claim, until)
            if holder in self.has_tombstone:
                return None
        micros = time.time_ns() // 1000
        words = (name, holder, client, about, self.file.now() + lease, micros)
        taken = self._short(lambda cursor: cursor.execute(TAKE, words).rowcount, until)
        return micros if taken == 1 else None

    def _confirm_shortly(self, claim: Claim, until: float) -> int | None:
        now = self.file.now()
        words = (claim.name, claim.id, now + claim.lease, now)
        rows = self._short(lambda cursor: cursor.execute(CONFIRM, words).fetchall(), until)
        if not rows:
            return None
        self.waiting.discard(claim.id)
        token: int = rows[0][0]
        return token

    def _leave(self, request: Release, until: float) -> object:
        claim = request.claim
        self.waiting.discard(claim.id)
        names = (claim.name, claim.id)
        if request.tombstone:
            self._remember_buried(claim.id)
        elif self._short(lambda cursor: cursor.execute(DROP, names).rowcount, until) == 1:
            return RELEASED
        return self._whole(until, lambda c: rules.release(FileShelf(c, claim.name), request))

    def _remember_buried(self, holder: str) -> None:
        # The short way in does not look at graves, so it must not be tried for these.
        self.has_tombstone[holder] = None
        if len(self.has_tombstone) > MOST_BURIED:
            del self.has_tombstone[next(iter(self.has_tombstone))]

    def _renew(self, request: Renew, until: float) -> object:
        def work(context: Context) -> tuple[bool, ...]:
            return tuple(rules.renew(FileShelf(context, c.name), c) for c in request.claims)

        return self._whole(until, work)

    def _retie(self, request: SetLifetime, until: float) -> object:
        def work(context: Context) -> LifetimeSet:
            return rules.set_lifetime(FileShelf(context, name), request.claim.id, request.lifetime)

        name = request.claim.name
        reply = self._whole(until, work)
        if reply.held and request.lifetime == "client":
            return reply._replace(descriptors=self.file.live(request.claim.client).descriptors())
        return reply

    def _break(self, request: BreakLock, until: float) -> object:
        return self._whole(until, lambda c: rules.break_lock(FileShelf(c, request.name), request))

    def _inspect(self, request: Inspect, until: float) -> object:
        return self._whole(until, lambda c: self._sights(c, request))

    def _sights(self, context: Context, request: Inspect) -> tuple[LockState, ...]:
        if request.name is not None:
            return (self._sight(context, request.name),)
        rows = context.database.execute(SQL["names"]).fetchall()
        names = [name for (name,) in rows if fnmatch.fnmatchcase(name, request.pattern)]
        sights = [self._sight(context, name) for name in names]
        return tuple(sight for sight in sights if sight.held or sight.waiting)

    def _sight(self, context: Context, name: str) -> LockState:
        shelf = FileShelf(context, name)
        held = shelf.held()
        if held is not None and rules.expired(shelf, held):
            held = None
        remaining = held.expires - context.now if held and held.lifetime != "client" else None
        return LockState.exclusive(name, held, remaining, shelf.queue())

    def _examine(self, request: Doctor, until: float) -> object:
        return findings(self.file.open(until), self.file.path)

    def _prepare(self, request: Setup, until: float) -> object:
        """The file was made when it was opened."""
        return ()

    def _sweep(self, request: CollectGarbage, until: float) -> object:
        """Graves are cleared along the way, and names keep their last token for ever."""
        return 0

    def interrupt(self) -> None:
        """No call here lasts longer than its deadline."""

    def close(self) -> None:
        """End the client's life and close the file."""
        self.file.close()

    def after_fork(self) -> None:
        """Let go of the parent's file."""
        self.file.after_fork()


class Ear:
    """Hears what other clients on this machine did."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.ended = False

    def call(self, request: object, until: float) -> object:
        """The next messages, however long they take."""
        if not isinstance(request, Listen):
            raise TypeError(f"the ear was asked {request!r}")
        try:
            with self.file.mutex:
                self.file.open(self.file.now())
                life = self.file.live(request.client)
            if self.ended:
                raise NotApplied("the client was closed")  # interrupted before it began to wait
            return life.await_wakeup()
        except OSError as error:
            raise NotApplied(f"{self.file.path}: {error}") from error

    def interrupt(self) -> None:
        """End the call under way, and those to come until `close`."""
        self.ended = True
        if self.file.life is not None:
            self.file.life.interrupt()

    def close(self) -> None:
        """Be ready for another life; the file is the store's to close."""
        self.ended = False

    def after_fork(self) -> None:
        """The same; the file is the store's to let go."""
        self.ended = False


def _acquire(row: FileShelf, request: Acquire) -> Grant | Busy:
    reply = rules.acquire(row, request)
    return reply._replace(waiting=row.length()) if isinstance(reply, Busy) else reply


def open_store(url: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The file that a ``sqlite:`` URL names; it is opened by the first request."""
    default = default_protocol(parse(url), PROTOCOLS, "SQLite")
    file = File(path_of(url), now)

    store, ear = Store(file), Ear(file)

    def backend(protocol: str | None) -> Queue:
        check_protocol(protocol, PROTOCOLS, "SQLite")
        return Queue(CAPABILITIES, store, ear)

    return Opened(backend, default, {}, f"sqlite:///{file.path}", blocking=(store, ear))
