"""Protocol "lease": the `rules`, each in one transaction that begins by locking the lock's row.

Two statements are short ways for what happens most: a free lock taken, and a lock given back that
nobody waits for. They see and change one row only, so the server decides by its newest version;
whatever lies in other tables counts in its "beside", and then the long way is taken.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.backends.sql.keys import CLIENT, word
from leaselock.backends.sql.script import SqlError
from leaselock.backends.sql.shelf import LockShelf, micros, reading
from leaselock.core import rules
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    Inspect,
    LockState,
    Release,
    Released,
    Renew,
    SetLifetime,
)
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock.backends.sql.script import Dialect, Part, Result, Row, Steps, Value
    from leaselock.backends.sql.shelf import Asker

T = TypeVar("T")
RELEASED = Released("held", ())
MOST_TRIES = 10
# Of so many busy names one client remembers that they are.
MOST_BUSY = 10_000


class Lease:
    """What one client asks, as conversations."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.waiting: set[str] = set()
        # Names that were taken when somebody here asked last: the short way is in vain.
        self.busy: set[str] = set()
        self.answers: Mapping[type, Callable[[Any, Asker], Steps[object]]] = {
            Acquire: self._ask,
            Release: self._leave,
            Renew: self._renew,
            SetLifetime: self._retie,
            BreakLock: self._break,
            Inspect: self._inspect,
        }

    def about(self, request: object, asker: Asker) -> Steps[object]:
        """The conversation that answers a request."""
        return self.answers[type(request)](request, asker)

    def _ask(self, request: Acquire, asker: Asker) -> Steps[object]:
        claim = request.claim
        if claim.name not in self.busy or claim.id in self.waiting:
            token = yield from self._ask_shortly(claim)
            if token is not None:
                return Grant(token, ())
        reply = yield from self.whole(claim.name, claim.id, asker, _asking(request))
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

    def _ask_shortly(self, claim: Claim) -> Steps[int | None]:
        waited = claim.id in self.waiting
        words = _renewal(claim)
        if waited:
            result = yield from self._shortly(("confirm", words))
        else:
            more: dict[str, Value] = {"client": claim.client, "about": claim.metadata}
            result = yield from self._shortly(("take", {**words, **more}))
        if result is None or not result.amount:
            return None
        self.waiting.discard(claim.id)
        return result.number or int(result.rows[0][0])

    def _shortly(self, part: Part) -> Steps[Result | None]:
        """One statement; None where others stood in its way, so that nothing was done."""
        try:
            (result,) = yield (part,)
        except SqlError as error:
            if error.state not in self.dialect.contended:
                raise
            return None
        return result

    def _leave(self, request: Release, asker: Asker) -> Steps[object]:
        claim = request.claim
        self.waiting.discard(claim.id)
        if not request.tombstone:
            words = {"name": claim.name, "holder": claim.id}
            result = yield from self._shortly(("drop", words))
            if result is not None and result.amount:
                return RELEASED

        def leaving(shelf: LockShelf) -> Released:
            return rules.release(shelf, request)

        return (yield from self.whole(claim.name, claim.id, asker, leaving))

    def _renew(self, request: Renew, asker: Asker) -> Steps[object]:
        # In the order of their names, so that two renewals of many locks never wait for each other.
        claims = sorted(request.claims, key=lambda claim: claim.name)
        results = yield tuple(("renew", _renewal(claim)) for claim in claims)
        renewed = {c.id: bool(r.amount) for c, r in zip(claims, results, strict=True)}
        return tuple(renewed[claim.id] for claim in request.claims)

    def _retie(self, request: SetLifetime, asker: Asker) -> Steps[object]:
        claim = request.claim

        def retying(shelf: LockShelf) -> object:
            return rules.set_lifetime(shelf, claim.id, request.lifetime)

        return (yield from self.whole(claim.name, claim.id, asker, retying))

    def _break(self, request: BreakLock, asker: Asker) -> Steps[object]:
        def breaking(shelf: LockShelf) -> object:
            return rules.break_lock(shelf, request)

        return (yield from self.whole(request.name, "", asker, breaking))

    def whole(
        self, name: str, holder: str, asker: Asker, work: Callable[[LockShelf], T]
    ) -> Steps[T]:
        """One transaction; again from the start when the server ended it for others' sake."""
        for left in reversed(range(MOST_TRIES)):
            try:
                return (yield from self._transaction(name, holder, asker, work))
            except SqlError as error:
                yield ("rollback",)
                if error.state not in self.dialect.contended or not left:
                    raise
        raise AssertionError("unreachable")

    def _transaction(
        self, name: str, holder: str, asker: Asker, work: Callable[[LockShelf], T]
    ) -> Steps[T]:
        results = yield reading(name, holder)
        row = results[1].one()
        if row is None:
            _, _, results = yield from self._first_row(name, holder)
            row = results[1].one()
            if row is None:
                raise NotApplied(f"{name!r} has no row, and none could be made")
        shelf = LockShelf(name, asker, row, results)
        result = work(shelf)
        yield shelf.writing()
        yield from self._ring(shelf.bells)
        return result

    def _first_row(self, name: str, holder: str) -> Steps[tuple[object, object, list[Result]]]:
        ended = yield ("rollback",)
        made = yield (("make", {"name": name}),)
        return ended, made, (yield reading(name, holder))

    def _ring(self, clients: list[str]) -> Steps[None]:
        """Wake who sleeps; whoever is not found looks by itself."""
        for client in clients if self.dialect.rings else ():
            (found,) = yield (("listener", {"sign": word(CLIENT, client)}),)
            number = found.rows[0][0]
            if number is not None:
                try:
                    yield (("ring", {"number": number}),)
                except SqlError:
                    # It has gone since, or is another user's: it finds the word that was left.
                    continue

    def _inspect(self, request: Inspect, asker: Asker) -> Steps[object]:
        if request.name is not None:
            words = {"name": request.name}
            now, held, queue = yield ("now", ("one", words), ("queue", words))
            return (_sight(request.name, now, held.rows, queue.rows),)
        now, held, queue = yield ("now", "all", "queues")
        names = {row[0] for row in (*held.rows, *queue.rows)}
        wanted = sorted(name for name in names if fnmatch.fnmatchcase(name, request.pattern))
        holds, queues = _by_name(held.rows), _by_name(queue.rows)
        return tuple(_sight(n, now, holds.get(n, []), queues.get(n, [])) for n in wanted)


def client_of(request: object) -> str:
    """Whose request it is, where that matters."""
    return request.claim.client if isinstance(request, (Acquire, Release)) else ""


def _asking(request: Acquire) -> Callable[[LockShelf], Grant | Busy]:
    def asking(shelf: LockShelf) -> Grant | Busy:
        return rules.acquire(shelf, request)

    return asking


def _renewal(claim: Claim) -> dict[str, Value]:
    return {"name": claim.name, "holder": claim.id, "lease": micros(claim.lease)}


def _by_name(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _sight(name: str, now: Result, held: list[Row], queue: list[Row]) -> LockState:
    clock = now.rows[0][0] / 1e6
    waiting = tuple(
        Claim(n, holder, client, lease / 1e6, about, since / 1e6)
        for n, holder, client, lease, about, since in queue
    )
    if not held:
        return LockState.exclusive(name, None, None, waiting)
    _, holder, client, tie, token, expires, about, since = held[0]
    hold = HoldRecord(holder, client, tie, token, expires / 1e6, about, since / 1e6)
    return LockState.exclusive(name, hold, hold.expires - clock, waiting)
