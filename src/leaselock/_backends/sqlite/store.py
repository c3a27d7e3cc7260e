"""The embedded store: one SQLite file, the clients of one machine, and no server.

`Store` applies the `rules` to the file. Three single statements are fast paths for the most
frequent requests: acquiring a free lock, extending a hold, and releasing a lock without waiters.
Tests compare them with the rules. `Listener` waits for messages of other clients. Both share one
`File`.
"""

from __future__ import annotations

import sqlite3
import time
from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

from leaselock._backends import Opened, StoreType
from leaselock._backends.sqlite.database import (
    is_busy,
    made_space,
    retry_while_busy,
    transact,
    translated,
)
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.file_path import path_of
from leaselock._backends.sqlite.lock_row import SQL, Context
from leaselock._backends.url import parse, token_ttl
from leaselock._core.contract.backend import (
    ALL_MODES,
    Acquire,
    Busy,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Doctor,
    Grant,
    Inspect,
    Listen,
    Release,
    Released,
    Renew,
    SetLifetime,
    Setup,
    Watch,
)
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock._core.rows import rules
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock._core.contract.effects import Request

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
BUSY = "{} was busy with other requests of this process"
# Requests of a claim come from its own client only, so its recent tombstones suffice.
MOST_TOMBSTONES = 1000
TAKE, CONFIRM, DROP = SQL["take"], SQL["confirm"], SQL["drop"]


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
            Renew: self._renew,
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
        thread, nested = get_ident(), False
        try:
            if not mutex.acquire(False) and not mutex.acquire(timeout=file.remaining(until)):
                raise NotApplied(BUSY.format(file.path), "unreachable")
            nested = file.worker == thread
            if nested:  # a signal handler has interrupted a request of its thread
                raise NotApplied(BUSY.format(file.path), "unreachable")
            file.worker = thread
            # A release in a file that was replaced does no harm; a grant would.
            database = file.open(until, trusting=type(request) is Release)
            if database.in_transaction:
                # An earlier call was interrupted just after BEGIN.
                database.execute("ROLLBACK")
            return self.answers.get(type(request), self._answer)(request, until)
        except StoreError:
            raise
        except OSError as error:
            # For example, no descriptor was left, perhaps after COMMIT.
            raise OutcomeUnknown(f"{file.path}: {error}", "refused") from error
        finally:
            if file.worker == thread and not nested:
                file.worker = 0
            # No call before this one: a signal handler could raise after it.
            try:  # noqa: SIM105
                mutex.release()
            except RuntimeError:
                pass  # this thread does not have it

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

    def transaction(
        self,
        until: float,
        work: Callable[[Context], T],
        *,
        replies: bool = True,
        begin: str = "BEGIN IMMEDIATE",
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
            return context, transact(database, lambda: work(context), begin)

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

        # To read many locks takes long: others write meanwhile.
        begin = "BEGIN" if type(request) is Inspect else "BEGIN IMMEDIATE"
        return self.transaction(until, work, begin=begin)

    def _acquire(self, request: Acquire, until: float) -> object:
        self.file.notified.discard(request.claim.id)
        if self.file.liveness is None:
            self.file.begin_client(request.claim.client)
        if request.claim.mode == "exclusive":
            token = self._try_fast(request.claim, until)
            if token is not None:
                return Grant(token, ())
        reply = self._answer(request, until)
        if isinstance(reply, Busy) and request.wait:
            self.waiting.add(request.claim.id)
        else:
            self.waiting.discard(request.claim.id)
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

    def _renew(self, request: Renew, until: float) -> tuple[bool | None, ...]:
        """Extend each exclusive hold by one statement. The rules renew the others, and decide about
        those that this statement does not find.
        """

        def work(context: Context) -> tuple[bool | None, ...]:
            return tuple([_renewed(context, claim) for claim in request.claims])

        return self.transaction(until, work)

    def _set_lifetime(self, request: SetLifetime, until: float) -> object:
        if request.lifetime != "client":
            return self._answer(request, until)
        liveness = self.file.begin_client(request.claim.client)
        liveness.lock_own()
        reply = self._answer(request, until)
        return reply._replace(descriptors=liveness.descriptors()) if reply.held else reply

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
        """Remove what is no longer needed: one step of some milliseconds."""
        from leaselock._backends.sqlite import garbage  # loaded where it is used

        steps = Steps(self, until)
        return garbage.step(steps, request.position, self.file.token_ttl)

    def close(self) -> None:
        """End the client, and close the file."""
        self.file.close()

    def after_fork(self) -> None:
        """Let go of the parent's connection."""
        self.file.after_fork()


def _renewed(context: Context, claim: Claim) -> bool | None:
    if claim.mode == "exclusive":
        values = (context.now + claim.lease, claim.name, claim.id, context.now)
        if context.database.execute(CONFIRM, values).fetchall():
            return True
    renewed: tuple[bool | None] = rules.answer(context.row, Renew((claim,)))
    return renewed[0]


class Steps:
    """What a step of a garbage collection does in the file of a store, until a deadline."""

    def __init__(self, store: Store, until: float) -> None:
        self.store = store
        self.until = until
        self.database = store.file.open(until, trusting=True)

    def read(self, work: Callable[[], T]) -> T:
        """Run *work*, and again while transactions of others block it."""
        file = self.store.file
        return retry_while_busy(work, file.now, self.until, file.path)

    def write(self, work: Callable[[Context], T]) -> T:
        """Run *work* in one transaction, and send its messages, those to the own client, too."""
        return self.store.transaction(self.until, work, replies=False)


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
            wake = request.interrupt.add(liveness.interrupt)
            try:
                # Checked after the callback is in place, so no interruption is missed.
                if self.ended:
                    raise NotApplied("the client was closed")
                remaining = 0.0 if request.interrupt.is_set else self.file.remaining(until)
                claim_ids = liveness.await_wakeup(remaining)
                self.file.notify(claim_ids)
                return claim_ids
            finally:
                request.interrupt.remove(wake)
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
