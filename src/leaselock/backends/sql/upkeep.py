"""How a connection begins, and what is done about the database as a whole: examine, prepare, sweep.

The tables are made by `setup()` or `leaselock init` and never by the way: it takes rights that a
program which only locks does not need, and belongs to the migrations (hazard J19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.doctor import examined
from leaselock.backends.sql.keys import CLIENT, number, word
from leaselock.backends.sql.lease import Lease
from leaselock.backends.sql.script import SqlError, dialect_of
from leaselock.backends.sql.shelf import Asker, micros
from leaselock.core import rules
from leaselock.core.backend import CollectGarbage, Doctor, Setup
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from leaselock.backends.sql.script import Steps, Words
    from leaselock.backends.sql.shelf import LockShelf
    from leaselock.backends.sql.url import Target

UPKEEP = (Doctor, Setup, CollectGarbage)
SCHEMA = "1"
UNUSED = 7 * 86400.0


class Greeted:
    """What has been found out about the way to the server."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = dialect_of(target.dialect)
        self.proxied = False
        self.listening: set[str] = set()

    @property
    def alone(self) -> bool:
        """Whether a connection of ours is one of the server's, for as long as it lasts."""
        return self.target.direct or not self.proxied

    def sign(self, client: str) -> str | int:
        """The key of the lock that shows that a client lives."""
        return word(CLIENT, client) if self.dialect.rings else number(CLIENT, client)

    def asker(self, client: str) -> Asker:
        """Whoever asks now; what it has signed, its own ear has told."""
        sign = self.sign(client) if client in self.listening else None
        return Asker(client, self.polls, sign)

    @property
    def polls(self) -> bool:
        """Whether a waiter has to look for what was left for it, instead of being told."""
        return self.dialect.rings or not self.alone


def greeting(greeted: Greeted, line: Any, bare: bool) -> Steps[None]:
    """What a new connection begins with; a *bare* one does without the tables."""
    if bare:
        (number,) = yield ("greet",)
    else:
        number, version = yield ("greet", ("fact", {"fact": "schema"}))
        row = version.one()
        _check(greeted, row[0] if row else "0")
    # A proxy answers the handshake itself, with a number of its own.
    line.backend = number.rows[0][0]
    greeted.proxied = line.backend != line.number
    # Behind a proxy the next statement may be another session's.
    if greeted.alone and greeted.dialect.kept:
        line.kept = set()
        yield ("usual",)


def _check(greeted: Greeted, found: str) -> None:
    if found == SCHEMA:
        return
    what = f"{greeted.target.shown} has the tables of version {found}, not {SCHEMA}"
    if int(found) > int(SCHEMA):
        raise NotApplied(f"{what}: a newer leaselock made them, use that one here too")
    raise NotApplied(f"{what}: {_command(greeted)}")


def _command(greeted: Greeted) -> str:
    return f"run `leaselock init '{greeted.target.shown}'`, or client.setup()"


def refusal(error: SqlError, greeted: Greeted) -> NotApplied:
    """What a refused statement means to the caller: nothing was done."""
    shown = greeted.target.shown
    if error.state in greeted.dialect.missing:
        return NotApplied(
            f"{shown} has no tables of leaselock's: {_command(greeted)} ({error.text})"
        )
    return NotApplied(f"{shown}: {error.text} ({error.state})")


def upkeep(request: object, greeted: Greeted) -> Steps[object]:
    """The conversation that does it."""
    if isinstance(request, Setup):
        return _prepared(greeted, request.dry)
    if isinstance(request, CollectGarbage):
        return _swept(greeted)
    return examined(greeted)


def _prepared(greeted: Greeted, dry: bool) -> Steps[object]:
    found = yield from version_of(greeted)
    if found == SCHEMA:
        return ()
    if found is not None:
        _check(greeted, found)
    schema = greeted.dialect.schema
    if not dry:
        yield ("begin setup",)
        for statement in schema:
            yield (("raw", {"text": statement}),)
        yield ("end setup",)
    return tuple(f"{statement};" for statement in schema)


def version_of(greeted: Greeted) -> Steps[str | None]:
    """Of which version the tables are; None where there are none."""
    try:
        (version,) = yield (("fact", {"fact": "schema"}),)
    except SqlError as error:
        if error.state not in greeted.dialect.missing:
            raise
        return None
    row = version.one()
    return row[0] if row else None


def _swept(greeted: Greeted) -> Steps[object]:
    """Remove what died, and the rows of names that nobody has locked for a week."""
    (now,) = yield ("now",)
    clock: int = now.rows[0][0]
    words = {"now": clock, "before": clock - micros(UNUSED)}
    (names,) = yield (("weeds", words),)
    lease = Lease(greeted.dialect)
    for (name,) in names.rows:
        yield from lease.whole(name, "", Asker("", False, None), _weeded)
    recent = {"before": clock - micros(rules.RECHECK_INTERVAL)}
    swept = yield (("sweep words", words), ("sweep seats", recent))
    rows = yield from _sweep_rows(greeted, words)
    _, locks = yield (("raise floor", words), ("sweep locks", words))
    return len(names.rows) + sum(result.amount for result in swept) + rows + locks.amount


def _sweep_rows(greeted: Greeted, words: Words) -> Steps[int]:
    """The rows of protocol "row"; one by one, so that none waits for long for another's lock."""
    (unused,) = yield (("unused rows", words),)
    count = 0
    for (name,) in unused.rows:
        try:
            (result,) = yield (("sweep row", {"name": name}),)
        except SqlError as error:
            if error.state not in greeted.dialect.contended:
                raise
        else:
            count += result.amount
    return count


def _weeded(shelf: LockShelf) -> None:
    """The dead went when the transaction began; a lock whose lease is over is handed on."""
    rules.expire_and_grant(shelf)
