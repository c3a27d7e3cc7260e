"""The embedded store: one SQLite file, the clients of one machine, and no server.

`Store` applies the `rules` to the file. Three single statements are fast paths for the most
frequent requests: acquiring a free lock, confirming a grant, and releasing a lock without waiters.
Tests compare them with the rules. `Listener` waits for messages of other clients. Both share one
`File`.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from leaselock._backends import Opened, StoreType
from leaselock._backends.sqlite.database import (
    BATCH_SIZE,
    is_busy,
    made_space,
    oldest,
    prune,
    restart_log,
    retry_while_busy,
    shrink,
    transact,
    translated,
)
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.location import path_of
from leaselock._backends.sqlite.lock_row import SQL, Context
from leaselock._backends.url import parse, token_ttl
from leaselock._core import rules
from leaselock._core.backend import (
    ALL_MODES,
    Acquire,
    Busy,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Doctor,
    Grant,
    Listen,
    Release,
    Released,
    Renew,
    SetLifetime,
    Setup,
    Unreadable,
    Watch,
)
from leaselock._core.lifecycle import BlockingNode
from leaselock._core.queue import NodeBackend
from leaselock._named_tuple import NamedTuple
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock._core.effects import Request

R = TypeVar("R")
T = TypeVar("T")
# All clients read the same clock. The margin covers the rounding of two readings.
CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.001,
    detects_death=True,
    inheritable=True,
    min_hold=True,
    modes=ALL_MODES,
    notifies_changes=True,
)
RELEASED = Released("held", ())
# Requests of a claim come from its own client only, so its recent tombstones suffice.
MOST_TOMBSTONES = 1000
TAKE, CONFIRM, DROP = SQL["take"], SQL["confirm"], SQL["drop"]


class Position(NamedTuple):
    """Where the next step of a garbage collection begins."""

    part: Literal["names", "tokens", "pages"]
    after: str = ""
    """The last name that was tidied."""


class Store(BlockingNode):
    """Executes requests, one at a time."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.waiting: set[str] = set()
        self.tombstones: dict[str, None] = {}
        # What is not a matter of the rules alone.
        self.answers: Mapping[type, Callable[..., object]] = {
            Acquire: self._acquire,
            Release: self._release,
            SetLifetime: self._set_lifetime,
            Watch: self._watch,
            Doctor: self._doctor,
            Setup: self._setup,
            CollectGarbage: self._collect_garbage,
        }

    def call(self, request: object, until: float) -> object:
        """The reply; NotApplied if other transactions keep the file busy until *until*."""
        file = self.file
        mutex = file.mutex  # closing the file replaces it
        if not mutex.acquire(False) and not mutex.acquire(timeout=file.remaining(until)):
            raise NotApplied(f"{file.path} was busy with other requests of this process")
        try:
            # A release in a file that was replaced does no harm; a grant would.
            database = file.open(until, trusting=type(request) is Release)
            if database.in_transaction:
                database.execute("ROLLBACK")
            return self.answers.get(type(request), self._answer)(request, until)
        except StoreError:
            raise
        except OSError as error:
            # For example, no descriptor was left, perhaps after COMMIT.
            raise OutcomeUnknown(f"{file.path}: {error}", "refused") from error
        finally:
            mutex.release()

    @property
    def urgency(self) -> int:
        """How often claims were notified."""
        return self.file.notifications

    def is_urgent(self, request: object) -> bool:
        """Whether it keeps or ends a hold, or asks again for a claim that was notified. A release
        with a tombstone is not: a request of its claim may be among the others.
        """
        if isinstance(request, Acquire):
            return request.claim.id in self.file.notified
        if isinstance(request, Release):
            return not request.tombstone
        return isinstance(request, Renew)

    def _statement(self, work: Callable[[sqlite3.Cursor], T], until: float) -> T:
        """Run one statement as a transaction of its own. Reading all its rows commits it."""
        file = self.file
        cursor = file.cursor
        assert cursor is not None
        try:
            return work(cursor)
        except sqlite3.Error as error:
            if not is_busy(error) and not made_space(error, cursor.connection):
                raise translated(error, file.path) from error
        return retry_while_busy(lambda: work(cursor), file.now, until, file.path)

    def _transaction(
        self, until: float, work: Callable[[Context], T], *, replies: bool = True
    ) -> T:
        """Run one transaction, and send its messages after COMMIT. Those to the own client are in
        the reply, if that *replies* them.
        """
        file = self.file
        database = file.open(until, trusting=True)
        requester = file.liveness.client if file.liveness is not None and replies else ""

        def once() -> tuple[Context, T]:
            now, micros = file.now(), time.time_ns() // 1000
            context = Context(database, file.registry(), requester, now, micros)
            return context, transact(database, lambda: work(context))

        def attempt() -> tuple[Context, T]:
            try:
                return once()
            except sqlite3.Error as error:
                if not made_space(error, database):
                    raise
                return once()

        context, result = retry_while_busy(attempt, file.now, until, file.path)
        for claim_id, client in context.remote:
            context.registry.notify(client, int(claim_id.rpartition(":")[2]))
        file.notify(context.local)
        for client in context.observed:
            file.begin_client(requester).observe_client(client)
        return result

    def _answer(self, request: Request[R], until: float) -> R:
        def work(context: Context) -> R:
            reply: R = rules.answer(context.row, request, context.names)
            return reply

        return self._transaction(until, work)

    def _acquire(self, request: Acquire, until: float) -> object:
        self.file.notified.discard(request.claim.id)
        if self.file.liveness is None:
            self.file.begin_client(request.claim.client)
        if request.claim.mode == "exclusive":
            token = self._try_fast(request.claim, until)
            if token is not None:
                return Grant(token, ())
        reply = self._answer(request, until)
        if isinstance(reply, Busy):
            self.waiting.add(request.claim.id)
        return reply

    def _try_fast(self, claim: Claim, until: float) -> int | None:
        if claim.min_hold:
            return None
        name, claim_id, client, lease, metadata = claim[:5]
        if self.waiting or self.tombstones:
            if claim_id in self.waiting:
                return self._confirm_fast(claim, until)
            if claim_id in self.tombstones:
                return None
        micros = time.time_ns() // 1000
        expires = self.file.now() + lease
        values = (claim_id, client, expires, metadata, micros, micros, name, micros)
        taken = self._statement(lambda cursor: cursor.execute(TAKE, values).rowcount, until)
        return micros if taken == 1 else None

    def _confirm_fast(self, claim: Claim, until: float) -> int | None:
        now = self.file.now()
        values = (now + claim.lease, claim.name, claim.id, now)
        rows = self._statement(lambda cursor: cursor.execute(CONFIRM, values).fetchall(), until)
        if not rows:
            return None
        self.waiting.discard(claim.id)
        token: int = rows[0][0]
        return token

    def _release(self, request: Release, until: float) -> object:
        claim = request.claim
        self.waiting.discard(claim.id)
        # A message may have come after its claim had left.
        self.file.notified.intersection_update(self.waiting)
        values = (claim.name, claim.id)
        if request.tombstone:
            self._remember_tombstone(claim.id)
        elif (
            not claim.min_hold
            and self._statement(lambda cursor: cursor.execute(DROP, values).rowcount, until) == 1
        ):
            return RELEASED
        return self._answer(request, until)

    def _remember_tombstone(self, claim: str) -> None:
        # The fast path does not read tombstones, so it must not be tried for these claims.
        self.tombstones[claim] = None
        if len(self.tombstones) > MOST_TOMBSTONES:
            del self.tombstones[next(iter(self.tombstones))]

    def _set_lifetime(self, request: SetLifetime, until: float) -> object:
        reply = self._answer(request, until)
        if reply.held and request.lifetime == "client":
            return reply._replace(
                descriptors=self.file.begin_client(request.claim.client).descriptors()
            )
        return reply

    def _watch(self, request: Watch, until: float) -> object:
        self.file.begin_client(request.claim.client)
        return self._answer(request, until)

    def _doctor(self, request: Doctor, until: float) -> object:
        from leaselock._backends.sqlite.doctor import findings

        return findings(self.file.open(until), self.file.path)

    def _setup(self, request: Setup, until: float) -> object:
        """The file was created when it was opened."""
        return ()

    def _collect_garbage(self, request: CollectGarbage, until: float) -> Collected:
        """End the holds and claims of dead clients, then delete the rows of names that are not used
        any more, then return their space: one transaction.
        """
        file, given = self.file, request.position
        position = given if isinstance(given, Position) else Position("names")
        if position.part == "names":
            work = partial(_tidied, position.after, oldest(file.token_ttl))
            ended, last = self._transaction(until, work, replies=False)
            return Collected(ended, Position("tokens") if last is None else Position("names", last))
        if position.part == "tokens":
            removed = self._transaction(until, lambda c: prune(c.database, file.token_ttl))
            return Collected(removed, position if removed else Position("pages"))
        database = file.open(until, trusting=True)
        if retry_while_busy(lambda: shrink(database), file.now, until, file.path):
            return Collected(0, position)
        restart_log(database)  # the file has its pages until then
        return Collected(0)

    def close(self) -> None:
        """End the client, and close the file."""
        self.file.close()

    def after_fork(self) -> None:
        """Let go of the parent's connection."""
        self.file.after_fork()


class Listener(BlockingNode):
    """Waits for messages and deaths of other clients on this machine."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.ended = False

    def call(self, request: object, until: float) -> object:
        """Wait for the next messages."""
        if not isinstance(request, Listen):
            raise TypeError(f"a listener does not know {request!r}")
        try:
            with self.file.mutex:
                self.file.open(self.file.now())
                liveness = self.file.begin_client(request.client)
            request.interrupt.wakers.append(liveness.interrupt)
            try:
                # Checked after the callback is in place, so no interruption is missed.
                if self.ended:
                    raise NotApplied("the client was closed")
                remaining = 0.0 if request.interrupt.is_set else self.file.remaining(until)
                claim_ids = liveness.await_wakeup(remaining)
                self.file.notify(claim_ids)
                return claim_ids
            finally:
                request.interrupt.remove(liveness.interrupt)
        except StoreError:
            raise
        except OSError as error:
            raise NotApplied(f"{self.file.path}: {error}") from error

    def wake(self) -> None:
        """End the call in progress; refuse those to come until `close`."""
        self.ended = True
        if self.file.liveness is not None:
            self.file.liveness.interrupt()

    def close(self) -> None:
        """Allow new calls. The store closes the file."""
        self.ended = False

    def after_fork(self) -> None:
        """Allow new calls. The store lets go of the file."""
        self.ended = False


def _tidied(after: str, old: float, context: Context) -> tuple[int, str | None]:
    """Tidy the rows of some names after *after*. Return in how many of them something has ended,
    without those that are removed later because they were not locked since *old*; and the last
    name, None if there is no more.
    """
    ended, database = 0, context.database
    values = after.encode("utf-8", "surrogateescape"), BATCH_SIZE
    names = database.execute(SQL["next names"], values).fetchall()
    for (name,) in names:
        before = database.total_changes
        with suppress(Unreadable):  # the listings report it
            rules.tidy(context.row(name))
        if database.total_changes > before:
            unused = database.execute(SQL["is unused"], (name, old)).fetchone()
            ended += unused is None
    if len(names) == BATCH_SIZE:
        return ended, str(names[-1][0])
    database.execute(SQL["expire tombstones"], (context.now,))
    database.execute(SQL["expire watchers"], (context.now,))
    return ended, None


def open_store(url: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The file of a ``sqlite:`` URL. The first request opens it."""
    parts = parse(url)
    default = STORE.protocol_of(parts)
    file = File(path_of(url), now, token_ttl(parts))
    store, listener = Store(file), Listener(file)

    def backend(protocol: str | None) -> NodeBackend:
        STORE.check_protocol(protocol)
        return NodeBackend(CAPABILITIES, store, listener)

    return Opened(backend, default, f"sqlite:///{file.path}", parts=(store, listener))


STORE = StoreType(
    "SQLite",
    {"queue": CAPABILITIES},
    open_store,
    options=("token_ttl",),
    title="an SQLite file (the default, for the processes of one machine)",
)
