"""The protocols "row" and "advisory": one connection for each that holds or waits, as one text.

The server keeps these locks for as long as the session lasts, so the death of a holder frees them
at once. Law: a session's lock is freed, or its connection closed; nothing that may still own
something is used for another claim (hazards D7, J2, J3).

The token comes from a counter that is committed before it is believed. "advisory" counts on the
session itself, whose lock outlasts transactions; "row" is in the midst of a transaction and counts
on another connection, where it is checked that the session still has the lock.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leaselock.backends.sql.keys import HOLDER, lock_number, lock_word, number, sign_word
from leaselock.backends.sql.script import SqlError
from leaselock.backends.sql.shelf import micros
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    Inspect,
    LockState,
)
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from leaselock.backends.sql.script import Dialect, Part, Result, Row, Script, Value

T = TypeVar("T")
# How long a statement waits at the most, before it is asked anew.
SLICE = 1.0
SOON = 0.02
RECHECK_INTERVAL = 60.0


class By(NamedTuple):
    """A request by one of these protocols."""

    protocol: str
    request: Any


class Await(NamedTuple):
    """Let the claim's own connection wait for its lock, for a while. → None"""

    claim: Claim


class Poke(NamedTuple):
    """Asked of the node "ends": let the `Listen` of that client end with nothing. → None"""

    client: str


class Own(NamedTuple):
    """A script for the claim's own connection."""

    script: Script


class Shared(NamedTuple):
    """A script for any other connection."""

    script: Script


Steps = Generator[Own | Shared, "list[Result]", T]


class Seat:
    """One connection, and the claim that it holds or waits for."""

    def __init__(self, session: str, backend: int) -> None:
        self.session = session
        self.backend = backend
        # The session has a row among the seats.
        self.noted = False
        self.clear()

    def clear(self) -> None:
        """Nobody sits here."""
        self.protocol = ""
        self.claim: Claim | None = None
        self.waits = False
        self.got = False
        self.token: int | None = None


class Seats:
    """The conversations of one client with a database of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.postgres = not dialect.rings

    def words(self, seat: Seat) -> dict[str, Value]:
        """What the statements about a seat need."""
        claim = seat.claim
        assert claim is not None
        sign = number if self.postgres else sign_word
        key = lock_number if self.postgres else lock_word
        return {
            "key": key(claim.name),
            "sign": sign(HOLDER, claim.id),
            "name": claim.name,
            "holder": claim.id,
            "client": claim.client,
            "about": claim.metadata,
            "since": micros(claim.since),
            "session": seat.session,
            "backend": seat.backend,
            "protocol": seat.protocol,
        }

    def tenancy(self, silence: float) -> Steps[set[str]]:
        """Set up a connection of this kind; what the server has set."""
        if self.postgres:
            words: Value = str(round(silence * 1000))
        else:
            words = max(1, round(silence))
        (result,) = yield Own((("tenancy", {"silence": words}),))
        return {str(row[1]) for row in result.rows}

    # --- taking ---------------------------------------------------------------------------------

    def ask(self, seat: Seat, request: Acquire) -> Steps[Grant | Busy]:
        """One try, without waiting; one that shall wait takes a seat among the waiters."""
        if seat.token is not None:
            # Asked again: belief is counted from this question, and the session was silent since.
            yield from self.alive()
            return Grant(seat.token, ())
        token = yield from self._taken(seat)
        if token is not None:
            seat.token, seat.waits = token, False
            return Grant(token, ())
        # On the claim's own connection, which is in no transaction: a crowd asks for no others.
        words = self.words(seat)
        inspect: Part = ("seat of holder", words)
        if not request.wait:
            script: Script = (f"{seat.protocol} free", inspect)
        else:
            script = (inspect,) if seat.waits else (("seat", words), inspect)
        results = yield Own(script)
        seat.waits = request.wait
        row = results[-1].one()
        return Busy(None if row is None else _hold(row), RECHECK_INTERVAL, ())

    def _taken(self, seat: Seat) -> Steps[int | None]:
        words = self.words(seat)
        if seat.protocol == "row":
            if seat.got:
                # It was granted to a wait, perhaps a while ago; the session has been silent since.
                yield Own(("alive",))
            else:
                seat.got = yield from self._row(words)
            return (yield from self._counted(seat, words)) if seat.got else None
        if seat.noted and not self.postgres:
            taken, noted = yield Own((("advisory retake", words), ("advisory renote", words)))
            if taken.amount and noted.amount:
                return taken.number
        (result,) = yield Own((("advisory take", words),))
        row = result.one()
        seat.noted = seat.noted or row is not None
        return None if row is None else int(row[0])

    def _row(self, words: dict[str, Value]) -> Steps[bool]:
        taking: Script = ("open", ("row try", words))
        if (yield Own(taking))[-1].rows:
            return True
        results = yield Own((("row there", words), "undo"))
        if results[0].rows[0][0]:
            return False
        # A row that does not exist cannot be locked (hazard J17). It is made outside of any
        # transaction; and by each on its own connection, for it may have to wait for another.
        try:
            yield Own((("row make", words),))
        except SqlError as error:
            if error.state not in self.dialect.contended | self.dialect.taken:
                raise
            return False
        if (yield Own(taking))[-1].rows:
            return True
        yield Own(("undo",))
        return False

    def _counted(self, seat: Seat, words: dict[str, Value]) -> Steps[int | None]:
        if seat.noted and not self.postgres:
            counted, noted = yield Shared((("row recount", words), ("row renote", words)))
            if counted.amount and noted.amount:
                return counted.number
        results = yield Shared(("open", ("row count", words), "close"))
        token, lives = results[1].rows[0]
        if not lives:
            raise OutcomeUnknown(
                f"the session that locked {words['name']!r} was ended by the server"
            )
        seat.noted = True
        return int(token)

    def wait(self, seat: Seat, patience: float) -> Steps[None]:
        """Wait for the lock, as the server has it, for a while; what came of it shows `ask`."""
        if seat.got or seat.token is not None:
            return
        words = {**self.words(seat), "patience": max(1, round(patience * 1000))}
        try:
            (result,) = yield Own(((f"{seat.protocol} wait", words),))
        except SqlError as error:
            if error.state not in self.dialect.taken | self.dialect.contended:
                raise
            # The time may have been up just when the lock was granted (hazard J2).
            free: Script = ("advisory free",) if seat.protocol == "advisory" else ()
            yield Own(("undo", *free, ("seal", words)))
            return
        seat.got = seat.protocol == "row" and bool(result.rows)
        if seat.protocol == "row" and not seat.got:
            yield Own(("undo",))

    # --- giving back ----------------------------------------------------------------------------

    def free(self, seat: Seat) -> Steps[None]:
        """Let go of everything that the session may own."""
        yield Own((f"{seat.protocol} free",))

    def alive(self) -> Steps[None]:
        """A proof that the session lives, and a sign to the server that we do."""
        yield Own(("alive",))

    # --- looking --------------------------------------------------------------------------------

    def _seats(self, protocol: str, name: str) -> Steps[list[Row]]:
        (result,) = yield Shared((("seats", {"protocol": protocol, "name": name}),))
        return result.rows

    def _held(self, protocol: str, name: str) -> Steps[HoldRecord | None]:
        rows = yield from self._seats(protocol, name)
        return next((_hold(row) for row in rows if row[3] is not None), None)

    def inspect(self, protocol: str, request: Inspect) -> Steps[tuple[LockState, ...]]:
        """Who holds and who waits, of those whose sessions last."""
        rows = yield from self._seats(protocol, request.name or "")
        if request.name is not None:
            return (_sight(request.name, rows),)
        names = sorted({row[0] for row in rows if fnmatch.fnmatchcase(row[0], request.pattern)})
        return tuple(_sight(name, [row for row in rows if row[0] == name]) for name in names)

    def break_lock(self, protocol: str, request: BreakLock) -> Steps[Broken]:
        """End the session that holds; there is no other way to take a lock from it."""
        rows = yield from self._seats(protocol, request.name)
        row = next((row for row in rows if row[3] is not None), None)
        held = None if row is None else _hold(row)
        if row is None or held is None or request.token not in (None, held.token):
            return Broken(held, False, ())
        yield Shared((("end session", {"backend": row[4]}),))
        while (yield from self._held(protocol, request.name)) == held:
            yield Shared(("alive",))
        return Broken(held, True, ())


def _hold(row: Row) -> HoldRecord:
    _, holder, client, token, _, about, since = row
    return HoldRecord(holder, client, "client", token, 0.0, about, since / 1e6)


def _sight(name: str, rows: list[Row]) -> LockState:
    held = next((_hold(row) for row in rows if row[3] is not None), None)
    waiting = tuple(
        Claim(name, row[1], row[2], 0.0, row[5], row[6] / 1e6) for row in rows if row[3] is None
    )
    return LockState.exclusive(name, held, None, waiting)
