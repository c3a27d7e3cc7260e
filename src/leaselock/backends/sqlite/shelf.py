"""One lock in the SQLite file, for the length of one transaction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock.core.backend import Claim, HoldRecord

if TYPE_CHECKING:
    import sqlite3

    from leaselock.backends.sqlite.clients import Clients

_HERE = os.path.dirname(__file__)
REMEMBER_BURIED = 120.0


def statement_text(file: str) -> str:
    """A file of statements."""
    with open(os.path.join(_HERE, "statements", file), encoding="utf-8") as source:
        return source.read()


def _named(text: str) -> dict[str, str]:
    """Statements by the name in the comment line that opens each."""
    named: dict[str, str] = {}
    for block in text.split("\n\n"):
        title, _, body = block.strip().partition("\n")
        named[title.removeprefix("-- ")] = body
    return named


SQL = _named(statement_text("queries.sql"))


class Context:
    """One transaction: who asks, when, and whom it will wake and watch when it is committed."""

    __slots__ = ("clients", "database", "local", "micros", "now", "own", "remote", "watched")

    def __init__(
        self, database: sqlite3.Connection, clients: Clients, own: str, now: float, micros: int
    ) -> None:
        self.database = database
        self.clients = clients
        self.own = own
        self.now = now
        self.micros = micros
        self.local: list[str] = []
        self.remote: list[Claim] = []
        self.watched: list[str] = []


class FileShelf:
    """The shelf of one name; see `leaselock.core.rules.LockRow` for what each method means."""

    __slots__ = ("context", "execute", "name", "now")

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.execute = context.database.execute
        self.name = name
        self.now = context.now

    def held(self) -> HoldRecord | None:
        """The hold on record."""
        row = self.execute(SQL["held"], (self.name,)).fetchone()
        return None if row is None else HoldRecord(*row)

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token."""
        micros = self.context.micros
        words = claim._asdict() | {"expires": expires, "micros": micros}
        ((token,),) = self.execute(SQL["grant"], words).fetchall()
        about, since = claim.metadata, micros / 1e6
        return HoldRecord(claim.id, claim.client, "either", token, expires, about, since)

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.execute(SQL["keep"], (held.lifetime, held.expires, self.name, held.id))

    def free(self) -> None:
        """Record that nobody holds."""
        self.execute(SQL["free"], (self.name,))

    def _claim(self, query: str) -> Claim | None:
        row = self.execute(SQL[query], (self.name,)).fetchone()
        return None if row is None else Claim(*row)

    def _beside(self, query: str, holder: str) -> Claim | None:
        row = self.execute(SQL[query], {"name": self.name, "id": holder}).fetchone()
        return None if row is None else Claim(*row)

    def first(self) -> Claim | None:
        """The head of the queue."""
        return self._claim("first")

    def before(self, holder: str) -> Claim | None:
        """Who waits directly ahead."""
        return self._beside("before", holder)

    def after(self, holder: str) -> Claim | None:
        """Who waits directly behind."""
        return self._beside("after", holder)

    def queue(self) -> tuple[Claim, ...]:
        """Who waits and lives, in order."""
        rows = self.execute(SQL["queue"], (self.name,)).fetchall()
        claims = [Claim(*row) for row in rows]
        return tuple(claim for claim in claims if self.alive(claim.client))

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue."""
        self.execute(SQL["join"], claim._asdict())

    def quit(self, holder: str) -> bool:
        """Take out of the queue."""
        return self.execute(SQL["quit"], (holder,)).rowcount > 0

    def length(self) -> int:
        """How many claims are in the queue."""
        ((length,),) = self.execute(SQL["length"], (self.name,)).fetchall()
        return int(length)

    def alive(self, client: str) -> bool:
        """Whether the client lives; the one that asks does."""
        return client == self.context.own or self.context.clients.alive(client)

    def has_tombstone(self, holder: str) -> bool:
        """Whether the claim was given up for good."""
        return self.execute(SQL["buried"], (holder,)).fetchone() is not None

    def tombstone(self, holder: str) -> None:
        """Remember, for longer than a request can be under way, that it was given up."""
        self.execute(SQL["weed"], (self.now,))
        self.execute(SQL["bury"], (holder, self.now + REMEMBER_BURIED))

    def watch(self, client: str) -> None:
        """Have the asking client told when *client* dies."""
        if client != self.context.own:
            self.context.watched.append(client)

    def notify(self, claim: Claim) -> None:
        """Tell the claim's client; our own is told by the reply."""
        if claim.client == self.context.own:
            self.context.local.append(claim.id)
        else:
            self.context.remote.append(claim)

    def notified(self) -> tuple[str, ...]:
        """The woken that belong to the asking client itself."""
        return tuple(self.context.local)
