"""The row of one lock in the SQLite file, during one transaction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock.core.backend import Claim, HoldRecord

if TYPE_CHECKING:
    import sqlite3

    from leaselock.backends.sqlite.client_registry import ClientRegistry

_HERE = os.path.dirname(__file__)
TOMBSTONE_LIFETIME = 120.0


def statement_text(file: str) -> str:
    """The content of a file of statements."""
    with open(os.path.join(_HERE, "statements", file), encoding="utf-8") as source:
        return source.read()


def _named(text: str) -> dict[str, str]:
    """The statements by the names in the comments before them."""
    named: dict[str, str] = {}
    for block in text.split("\n\n"):
        title, _, body = block.strip().partition("\n")
        named[title.removeprefix("-- ")] = body
    return named


SQL = _named(statement_text("queries.sql"))


class Context:
    """One transaction: its client, its time, and the clients to wake and to watch after COMMIT."""

    __slots__ = ("database", "local", "micros", "now", "own", "registry", "remote", "watched")

    def __init__(
        self,
        database: sqlite3.Connection,
        registry: ClientRegistry,
        own: str,
        now: float,
        micros: int,
    ) -> None:
        self.database = database
        self.registry = registry
        self.own = own
        self.now = now
        self.micros = micros
        self.local: list[str] = []
        self.remote: list[Claim] = []
        self.watched: list[str] = []


class FileLockRow:
    """The row of one name. `leaselock.core.rules.LockRow` documents the methods."""

    __slots__ = ("context", "execute", "name", "now")

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.execute = context.database.execute
        self.name = name
        self.now = context.now

    def held(self) -> HoldRecord | None:
        """The recorded hold."""
        row = self.execute(SQL["held"], (self.name,)).fetchone()
        return None if row is None else HoldRecord(*row)

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token."""
        micros = self.context.micros
        values = claim._asdict() | {"expires": expires, "micros": micros}
        ((token,),) = self.execute(SQL["grant"], values).fetchall()
        metadata, since = claim.metadata, micros / 1e6
        return HoldRecord(claim.id, claim.client, "either", token, expires, metadata, since)

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.execute(SQL["keep"], (held.lifetime, held.expires, self.name, held.id))

    def free(self) -> None:
        """Record that the lock is free."""
        self.execute(SQL["free"], (self.name,))

    def _claim(self, query: str) -> Claim | None:
        row = self.execute(SQL[query], (self.name,)).fetchone()
        return None if row is None else Claim(*row)

    def _neighbour(self, query: str, claim: str) -> Claim | None:
        row = self.execute(SQL[query], {"name": self.name, "id": claim}).fetchone()
        return None if row is None else Claim(*row)

    def first(self) -> Claim | None:
        """The first waiter."""
        return self._claim("first")

    def before(self, claim: str) -> Claim | None:
        """The waiter directly ahead of the claim with this id."""
        return self._neighbour("before", claim)

    def after(self, claim: str) -> Claim | None:
        """The waiter directly behind the claim with this id."""
        return self._neighbour("after", claim)

    def queue(self) -> tuple[Claim, ...]:
        """The waiters whose clients are alive, in order."""
        rows = self.execute(SQL["queue"], (self.name,)).fetchall()
        claims = [Claim(*row) for row in rows]
        return tuple(claim for claim in claims if self.alive(claim.client))

    def join(self, claim: Claim) -> None:
        """Append the claim to the queue."""
        self.execute(SQL["join"], claim._asdict())

    def quit(self, claim: str) -> bool:
        """Remove the claim with this id from the queue."""
        return self.execute(SQL["quit"], (claim,)).rowcount > 0

    def length(self) -> int:
        """How many claims are in the queue."""
        ((length,),) = self.execute(SQL["length"], (self.name,)).fetchall()
        return int(length)

    def alive(self, client: str) -> bool:
        """Whether the client is alive. The client of this transaction is."""
        return client == self.context.own or self.context.registry.alive(client)

    def has_tombstone(self, claim: str) -> bool:
        """Whether requests of the claim with this id are refused."""
        return self.execute(SQL["has tombstone"], (claim,)).fetchone() is not None

    def tombstone(self, claim: str) -> None:
        """Refuse the claim from now on, for longer than a request of it can be in flight."""
        self.execute(SQL["expire tombstones"], (self.now,))
        self.execute(SQL["tombstone"], (claim, self.now + TOMBSTONE_LIFETIME))

    def watch(self, client: str) -> None:
        """Notify the client of this transaction when *client* dies."""
        if client != self.context.own:
            self.context.watched.append(client)

    def notify(self, claim: Claim) -> None:
        """Notify the claim's client; the own client by the reply."""
        if claim.client == self.context.own:
            self.context.local.append(claim.id)
        else:
            self.context.remote.append(claim)

    def notified(self) -> tuple[str, ...]:
        """The notified claims of the client of this transaction."""
        return tuple(self.context.local)
