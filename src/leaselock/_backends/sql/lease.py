"""Protocol "lease": `_core.rows.rules`, each rule in a transaction that locks the row of the lock.

Acquiring a free lock and releasing a lock without waiters take one statement each. These see and
change one row only, so the server decides by its newest version. The column "pending" counts what
other tables have about the lock; if it is not 0, the whole transaction is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.sql.keys import CLIENT, word
from leaselock._backends.sql.lock_row import (
    HEAD,
    Found,
    MoreWaiters,
    SqlLockRow,
    reading,
    reading_waiters,
)
from leaselock._backends.sql.records import (
    claim_of,
    hold_of,
    limit_of,
    micros,
    shared_hold_of,
)
from leaselock._backends.sql.statements import SqlError
from leaselock._core.contract.backend import (
    Acquire,
    Busy,
    Claim,
    Convert,
    Grant,
    HoldState,
    Inspect,
    LockState,
    Mismatch,
    Release,
    Released,
    Renew,
    Unreadable,
    Watch,
    Watched,
    matching,
)
from leaselock._core.rows import rules
from leaselock._core.rows.records import is_text, readable_text
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.lock_row import Requester
    from leaselock._backends.sql.statements import Dialect, Part, Result, Row, Script, Value

T = TypeVar("T")
RELEASED = Released("held", ())
MOST_TRIES = 10
# How long a renewal waits for a transaction on its row, in milliseconds.
RENEWAL_WAIT = 100
# How many busy names a client remembers.
MOST_BUSY = 10_000


class Lease:
    """The requests of one client."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.head = HEAD
        self.renewal_wait = RENEWAL_WAIT
        # Both are hints: a wrong entry costs one statement that changes nothing. The claims that
        # wait; and the names that were held by others at the last request.
        self.waiting: set[str] = set()
        self.busy: set[str] = set()
        self.answers: Mapping[type, Callable[[Any, Requester, Executor], Awaitable[Any]]] = {
            Acquire: self._acquire,
            Release: self._release,
            Renew: self._renew,
            Inspect: self._inspect,
            Watch: self._watch,
        }

    def answer(
        self, request: object, requester: Requester, executor: Executor
    ) -> Awaitable[object]:
        """Carry out a request."""
        work: Callable[[Any, Requester, Executor], Awaitable[Any]]
        work = self.answers.get(type(request), self._by_rules)
        return work(request, requester, executor)

    async def _by_rules(self, request: Any, requester: Requester, executor: Executor) -> Any:
        """Apply the rules to the row of the request's lock."""
        claim = getattr(request, "claim", None)
        name, claim_id = (request.name, "") if claim is None else (claim.name, claim.id)

        def work(row: SqlLockRow) -> Any:
            return rules.answer(lambda name: row, request)

        return await self.transaction(name, claim_id, requester, work, executor)

    async def _acquire(
        self, request: Acquire, requester: Requester, executor: Executor
    ) -> Grant | Busy | Mismatch:
        claim = request.claim
        waits = claim.id in self.waiting
        fast = claim.mode == "exclusive" and not claim.min_hold
        if fast and (claim.name not in self.busy or waits):
            values = _renewal(claim)
            part: Part = ("confirm", values)
            if not waits:
                values |= {"client": claim.client, "metadata": claim.metadata}
                part = ("acquire free", values)
            result = await self._try(part, executor)
            if result is not None and result.amount:
                self.waiting.discard(claim.id)
                return Grant(result.number or int(result.rows[0][0]), ())
        reply: Grant | Busy | Mismatch = await self._by_rules(request, requester, executor)
        if isinstance(reply, Busy):
            self._was_busy(request)
        else:
            self.busy.discard(claim.name)
        return reply

    def _was_busy(self, request: Acquire) -> None:
        if request.wait:
            self.waiting.add(request.claim.id)
        if len(self.busy) >= MOST_BUSY:
            self.busy.clear()
        self.busy.add(request.claim.name)

    async def _try(self, part: Part, executor: Executor) -> Result | None:
        """One statement; None if a conflict with others prevented it."""
        try:
            (result,) = await executor.execute((part,))
        except SqlError as error:
            if error.state not in self.dialect.contended:
                raise
            return None
        return result

    async def _release(
        self, request: Release, requester: Requester, executor: Executor
    ) -> Released:
        claim = request.claim
        self.waiting.discard(claim.id)
        if not (request.tombstone or claim.min_hold) and claim.mode == "exclusive":
            values = {"name": claim.name, "id": claim.id}
            result = await self._try(("release uncontended", values), executor)
            if result is not None and result.amount:
                return RELEASED
        released: Released = await self._by_rules(request, requester, executor)
        return released

    async def _renew(
        self, request: Renew, requester: Requester, executor: Executor
    ) -> tuple[bool | None, ...]:
        # 1 the exclusive holds whose row no transaction has locked  2 the rest together, waiting
        # RENEWAL_WAIT for each row  3 one by one; None for those that are still locked.
        # In the order of the names, so that two renewals of many locks cannot deadlock.
        claims = sorted(request.claims, key=lambda claim: claim.name)
        exclusive = [claim for claim in claims if claim.mode == "exclusive"]
        answers: dict[str, bool | None] = {}
        if exclusive:
            script = tuple(("renew", _renewal(claim)) for claim in exclusive)
            results = await executor.execute(script)
            renewed = _renewed(zip(exclusive, results, strict=True))
            answers.update(dict.fromkeys(renewed, True))
        unanswered = [claim for claim in claims if claim.id not in answers]
        if unanswered:
            answers |= await self._renew_locked(unanswered, executor)
        return tuple(answers[claim.id] for claim in request.claims)

    async def _renew_locked(
        self, claims: list[Claim], executor: Executor
    ) -> dict[str, bool | None]:
        """Renew holds whose rows may be locked, all at once or one by one; None for those that are.
        The client asks again for these. Waiting for one could cost it the others.
        """
        try:
            return await self._renew_together(claims, executor)
        except SqlError as error:
            await executor.execute(("rollback",))
            if error.state not in self.dialect.contended:
                raise
        if len(claims) == 1:
            return {claims[0].id: None}
        answers: dict[str, bool | None] = {}
        for claim in claims:
            answers |= await self._renew_locked([claim], executor)
        return answers

    async def _renew_together(
        self, claims: list[Claim], executor: Executor
    ) -> dict[str, bool | None]:
        """Renew holds that may be in either table. A conversion moves a hold from one to the other,
        with the end that it has read: the row of the lock is locked, so that none runs meanwhile.
        """
        parts: list[tuple[Claim, Part]] = []
        patience = {"timeout": self.renewal_wait}
        for claim in claims:
            values = _renewal(claim) | patience
            titles = ("lock to renew", "renew", "renew hold")
            parts += [(claim, (title, values)) for title in titles]
        begin = ("begin renewal", patience)
        script: Script = (begin, *(part for _, part in parts), "commit")
        results = await executor.execute(script)
        renewed = _renewed(
            (claim, result)
            for (claim, part), result in zip(parts, results[1:-1], strict=True)
            if part[0] != "lock to renew"
        )
        return {claim.id: claim.id in renewed for claim in claims}

    async def transaction(
        self,
        name: str,
        claim_id: str,
        requester: Requester,
        work: Callable[[SqlLockRow], T],
        executor: Executor,
    ) -> T:
        """Run *work* in a transaction that locks the row; repeat it after a conflict."""
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                return await self._transaction(name, claim_id, requester, work, executor)
            except Unreadable:
                await executor.execute(("rollback",))
                raise
            except SqlError as error:
                await executor.execute(("rollback",))
                if error.state not in self.dialect.contended or not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def _transaction(
        self,
        name: str,
        claim_id: str,
        requester: Requester,
        work: Callable[[SqlLockRow], T],
        executor: Executor,
    ) -> T:
        head = self.head
        found = Found(*await executor.execute(reading(name, claim_id, head)))
        if found.lock.one() is None:
            await executor.execute(("rollback",))
            await executor.execute((("create lock", {"name": name}),))
            found = Found(*await executor.execute(reading(name, claim_id, head)))
            if found.lock.one() is None:
                raise NotApplied(f"the table has no row for {name!r}, and none could be created")
        while True:
            row = SqlLockRow(name, requester, found, head)
            try:
                result = work(row)
                break
            except MoreWaiters:
                head = head.larger()
                part = reading_waiters(name, claim_id, head)
                (waiters,) = await executor.execute((part,))
                found = found._replace(waiters=waiters)
        await executor.execute(row.writing())
        if row.to_interrupt and self.dialect.interrupts:
            await self._interrupt(row.to_interrupt, executor)
        return result

    async def _interrupt(self, clients: list[str], executor: Executor) -> None:
        """Interrupt the sleep of listeners. A listener that is not found polls.

        The request was applied: an error here must not make it look refused.
        """
        for client in clients:
            key = ("listener connection", {"liveness_key": word(CLIENT, client)})
            try:
                (result,) = await executor.execute((key,))
                number = result.rows[0][0]
                if number is not None:
                    await executor.execute((("interrupt", {"number": number}),))
            except SqlError:
                # The listener is gone or belongs to another user: it finds the stored wake-up.
                continue

    async def _inspect(
        self, request: Inspect, requester: Requester, executor: Executor
    ) -> tuple[LockState, ...]:
        if request.name is not None:
            values = {"name": request.name}
            parts: Script = (("one", values), ("one holds", values), ("queue", values))
            now, held, others, queue = await _snapshot(parts, executor)
            return (_state(request.name, now, held.rows, others.rows, queue.rows),)
        now, held, others, queue = await _snapshot(("all", "all holds", "queues"), executor)
        names = (row[0] for row in (*held.rows, *others.rows, *queue.rows))
        wanted = matching(names, request.pattern)
        tables = [_by_name(result.rows) for result in (held, others, queue)]
        return tuple(_state(n, now, *(table.get(n, []) for table in tables)) for n in wanted)

    async def _watch(self, request: Watch, requester: Requester, executor: Executor) -> Watched:
        claim = request.claim

        def watching(row: SqlLockRow) -> None:
            row.observe(claim)

        # First the registration, then the state: a change in between is notified.
        await self.transaction(claim.name, claim.id, requester, watching, executor)
        (state,) = await self._inspect(Inspect(claim.name, "*"), requester, executor)
        return Watched(state, rules.look_again(state))


def client_of(request: object) -> str:
    """The client that sends a request, if that matters."""
    return request.claim.client if isinstance(request, (Acquire, Release, Watch, Convert)) else ""


def _renewal(claim: Claim) -> dict[str, Value]:
    return {"name": claim.name, "id": claim.id, "lease": micros(claim.lease)}


def _renewed(results: Iterable[tuple[Claim, Result]]) -> set[str]:
    """The ids of the claims whose statements have changed a row."""
    return {claim.id for claim, result in results if result.amount}


async def _snapshot(parts: Script, executor: Executor) -> list[Result]:
    """The time, and what the tables have at one moment: a hold is in one of them at any time."""
    return (await executor.execute(("begin snapshot", "now", *parts, "commit")))[1:-1]


def _by_name(rows: list[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row[0], []).append(row)
    return grouped


def _state(
    name: str, now: Result, held: list[Row], others: list[Row], queue: list[Row]
) -> LockState:
    clock = now.rows[0][0] / 1e6
    reasons: list[str] = []

    def read(parse: Callable[[str, Row], T], rows: list[Row]) -> list[T]:
        parsed = []
        for row in rows:
            try:
                parsed.append(parse(name, row[1:]))
            except Unreadable as error:
                reasons.append(str(error))
        return parsed

    holds = [*read(hold_of, held), *read(shared_hold_of, others)]
    states = tuple(HoldState(hold, hold.expires - clock) for hold in holds)
    waiting = tuple(read(claim_of, queue))
    limits = read(limit_of, others[:1])
    if not is_text(name):
        name = readable_text(name)
        reasons.append(f"its name, here {name!r}, is not UTF-8")
    return LockState(name, states, waiting, sum(limits), "".join(reasons[:1]), read_at=clock)
