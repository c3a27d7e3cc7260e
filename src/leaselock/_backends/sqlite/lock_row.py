"""The row of one lock in the SQLite file, during one transaction."""

from __future__ import annotations

import os
from itertools import starmap
from typing import TYPE_CHECKING, Any

from leaselock._core.contract.backend import WATCH_LASTS, Claim, HoldRecord, Unreadable
from leaselock._core.contract.marks import free_from_of
from leaselock._core.rows.records import (
    certainly_ended,
    checked,
    is_count,
    is_text,
    is_time,
    readable_text,
    unreadable,
)
from leaselock._core.rows.rules import LockRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from leaselock._backends.sqlite.client_registry import ClientRegistry
    from leaselock._core.contract.backend import Lifetime, Mode

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
    """One transaction: its client, its time, and the clients to wake or observe after COMMIT."""

    __slots__ = (
        *("client", "database", "lives", "local", "micros", "now", "odd", "registry", "remote"),
        "observed",
    )

    def __init__(
        self,
        database: sqlite3.Connection,
        registry: ClientRegistry,
        client: str,
        now: float,
        micros: int,
    ) -> None:
        self.database = database
        self.registry = registry
        self.client = client
        self.now = now
        self.micros = micros
        self.lives: dict[str, bool] = {client: True}
        self.local: list[str] = []
        self.remote: list[tuple[str, str]] = []
        self.observed: list[str] = []
        self.odd: set[str] = set()

    def row(self, name: str) -> FileLockRow:
        """The row of a lock; Unreadable if no lock can have the name."""
        if not is_text(name) or name in self.odd:
            readable = readable_text(name)
            raise Unreadable(
                f"the file has a row whose name, here {readable!r:.80}, no lock can have"
            )
        return FileLockRow(self, name)

    def names(self) -> list[str]:
        """The names that may be in use; those that no lock can have as they can be shown."""
        names = [name for (name,) in self.database.execute(SQL["names"]).fetchall()]
        self.odd = {readable_text(name) for name in names if not is_text(name)}
        return [readable_text(name) for name in names]

    def alive(self, client: str) -> bool:
        """Whether the client is alive. The client of this transaction is."""
        lives = self.lives.get(client)
        if lives is None:
            lives = self.lives[client] = self.registry.alive(client)
        return lives


class FileLockRow(LockRow):
    """The row of one name. `LockRow` documents the methods.

    An exclusive hold is in the row itself, so that the fast paths need no other table. All other
    holds are in the table "hold"; the row's id is empty then.
    """

    __slots__ = (
        "context",
        "execute",
        "kept",
        "kept_lapsed_offer",
        "kept_limit",
        "name",
        "now",
        "wall",
    )

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.execute = context.database.execute
        self.name = name
        self.now = context.now
        self.wall = context.micros / 1e6
        row = self.execute(SQL["lock"], (name,)).fetchone()
        self.kept_limit, self.kept_lapsed_offer = (0, 0.0) if row is None else _rest(name, *row[:2])
        self.kept: list[HoldRecord] = []
        if row is not None and row[2]:
            self.kept = self._lasting("lock", [_hold(*row[2:-1])._replace(free_from=row[-1])])
        elif row is not None and row[2] is not None:
            holds = starmap(_hold, self.execute(SQL["holds"], (name,)).fetchall())
            self.kept = self._lasting("hold", holds)

    def _lasting(self, table: str, holds: Iterable[HoldRecord]) -> list[HoldRecord]:
        """The holds of a table; Unreadable if one cannot be read and may last."""
        kept, ended = [], []
        for hold in holds:
            try:
                kept.append(checked(hold, *_key(table, self.name)))
            except Unreadable:
                if not certainly_ended(hold, self.now):
                    raise
                ended.append((self.name, hold.id))
        if ended:
            self.context.database.executemany(SQL["remove"], ended)
            self.execute(SQL["mark"], ("" if kept else None, self.name))
        return kept

    @property
    def limit(self) -> int:
        """How many permits it has as a semaphore."""
        return self.kept_limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Record it."""
        self.execute(SQL["create"], (self.name,))
        self.execute(SQL["set limit"], (limit, self.name))
        self.kept_limit = limit

    @property
    def lapsed_offer(self) -> float:
        """When the last offer that lapsed was made."""
        return self.kept_lapsed_offer

    @lapsed_offer.setter
    def lapsed_offer(self, lapsed_offer: float) -> None:
        """Record it."""
        self.execute(SQL["set lapsed_offer"], (lapsed_offer, self.name))
        self.kept_lapsed_offer = lapsed_offer

    def holds(self) -> list[HoldRecord]:
        """The recorded holds, in the order of their tokens."""
        return list(self.kept)

    def draw(self) -> int:
        """A new token."""
        micros = self.context.micros
        values = (self.name, micros, micros, micros)
        ((token,),) = self.execute(SQL["draw"], values).fetchall()
        return int(token)

    def put(self, hold: HoldRecord) -> None:
        """Record a hold, or changes of one."""
        before = self._take_out(hold.id)
        self.kept.append(hold)
        if before is None or before.token != hold.token:
            self.notify_watchers()
        self.kept.sort(key=lambda each: each.token)
        record = (hold.id, hold.client, hold.lifetime, hold.expires, hold.metadata, hold.since)
        if hold.mode == "exclusive":
            if before is not None and before.mode != "exclusive":
                self.execute(SQL["remove"], (self.name, hold.id))
            self.execute(
                SQL["put exclusive"], (*record, hold.step, hold.offered, hold.free_from, self.name)
            )
            return
        values = (*record, hold.token, hold.mode, hold.permits, hold.step, hold.offered, self.name)
        self.execute(SQL["put"], values)
        self.execute(SQL["mark"], ("", self.name))

    def remove(self, hold_id: str) -> None:
        """Delete a hold."""
        hold = self._take_out(hold_id)
        if hold is not None and hold.mode != "exclusive":
            self.execute(SQL["remove"], (self.name, hold_id))
        self.execute(SQL["mark"], ("" if self.kept else None, self.name))
        self.notify_watchers()

    def observe(self, claim: Claim) -> bool:
        """Notify the claim when a hold begins or ends."""
        values = (self.name, claim.id, claim.client, self.now + WATCH_LASTS)
        self.execute(SQL["watch"], values)
        return True

    def notify_watchers(self) -> None:
        """Notify the claims that observe the lock, and whose time has not passed."""
        for claim_id, client, until in self.execute(SQL["watchers"], (self.name,)).fetchall():
            if until > self.now and self.alive(client):
                self.notify(claim_id, client)
            else:
                self.execute(SQL["end watch"], (self.name, claim_id))

    def _take_out(self, hold_id: str) -> HoldRecord | None:
        taken = next((hold for hold in self.kept if hold.id == hold_id), None)
        self.kept = [hold for hold in self.kept if hold is not taken]
        return taken

    def queue(self) -> Iterator[Claim]:
        """The waiters, in order. Rows that were read may be deleted meanwhile."""
        return self._claims(self.execute(SQL["queue"], (self.name,)))

    def _claims(self, rows: Iterable[Any]) -> Iterator[Claim]:
        for row in rows:
            claim = _claim(*row)
            try:
                yield checked(claim, *_key("waiter", self.name))
            except Unreadable:
                if not (is_time(claim.last_seen) and self.is_forgotten(claim)):
                    raise
                self.quit(claim.id)

    def idle(self) -> bool:
        """Whether there is neither a hold nor a waiter."""
        return not (self.kept or self.has_queue())

    def has_queue(self) -> bool:
        """Whether there are waiters."""
        return self.execute(SQL["has queue"], (self.name,)).fetchone() is not None

    def queued(self, claim_id: str) -> bool:
        """Whether the claim with this id waits."""
        return self.execute(SQL["queued"], (claim_id,)).fetchone() is not None

    def ahead(self, claim_id: str) -> Iterator[Claim]:
        """The waiters ahead of the claim with this id, the nearest first."""
        values = {"name": self.name, "id": claim_id}
        return self._claims(self.execute(SQL["ahead"], values))

    def behind(self, claim_id: str) -> Claim | None:
        """The waiter directly behind the claim with this id."""
        values = {"name": self.name, "id": claim_id}
        return next(self._claims(self.execute(SQL["behind"], values).fetchall()), None)

    def join(self, claim: Claim) -> None:
        """Append the claim to the queue, or note that it has asked."""
        values = claim._asdict() | {"last_seen": self.moment}
        self.execute(SQL["join"], values)

    def quit(self, claim_id: str) -> bool:
        """Remove the claim with this id from the queue."""
        return self.execute(SQL["quit"], (claim_id,)).rowcount > 0

    def touch(self, client: str) -> None:
        """All waiters of *client* have asked now."""
        self.execute(SQL["touch"], (self.moment, self.name, client))
        if self.execute(SQL["find untouched"], (self.name, self.lapsed_offer)).fetchone() is None:
            self.lapsed_offer = 0.0

    def length(self) -> int:
        """How many claims are in the queue."""
        ((length,),) = self.execute(SQL["length"], (self.name,)).fetchall()
        return int(length)

    def alive(self, client: str) -> bool:
        """Whether the client is alive."""
        return self.context.alive(client)

    def process_lives(self, client: str) -> bool:
        """Whether the process lives that renews the holds of the client."""
        return self.context.registry.process_lives(client)

    def descendants(self, client: str) -> tuple[int, ...]:
        """The processes that keep the client alive, whose own process has ended."""
        return self.context.registry.descendants(client)

    def has_tombstone(self, claim: str) -> bool:
        """Whether requests of the claim with this id are refused."""
        return self.execute(SQL["has tombstone"], (claim, self.now)).fetchone() is not None

    def tombstone(self, claim: str) -> None:
        """Refuse the claim from now on, for longer than a request of it can be in flight."""
        self.execute(SQL["expire tombstones"], (self.now,))
        self.execute(SQL["tombstone"], (claim, self.now + TOMBSTONE_LIFETIME))

    def observe_client(self, client: str) -> None:
        """Notify the client of this transaction when *client* dies."""
        if client != self.context.client:
            self.context.observed.append(client)

    def notify(self, claim_id: str, client: str) -> None:
        """Notify the client; the own client by the reply."""
        if client == self.context.client:
            self.context.local.append(claim_id)
        else:
            self.context.remote.append((claim_id, client))

    def notified(self) -> tuple[str, ...]:
        """The notified claims of the client of this transaction."""
        return tuple(self.context.local)


def _key(table: str, name: str) -> tuple[str, str]:
    """Where a row is, and the statement that removes it."""
    literal = name.replace("'", "''")
    return (
        f"a row of {name!r} in the table {table}",
        f"DELETE FROM {table} WHERE name = '{literal}'",
    )


def _rest(name: str, limit: Any, lapsed_offer: Any) -> tuple[int, float]:
    """What the row of a lock has beside its hold; Unreadable if it cannot be used."""
    if not (is_count(limit) and is_time(lapsed_offer)):
        key, removal = _key("lock", name)
        problem = f"permits is {limit!r:.60}, and lapsed_offer is {lapsed_offer!r:.60}"
        raise unreadable(key, problem, removal)
    return limit, lapsed_offer


def _hold(
    claim_id: str,
    client: str,
    lifetime: Lifetime,
    token: int,
    expires: float,
    metadata: str,
    since: float,
    step: int,
    offered: int,
    mode: Mode = "exclusive",
    permits: int = 1,
) -> HoldRecord:
    """The hold of a row."""
    how: dict[str, Any] = {"mode": mode, "permits": permits, "step": step}
    if mode == "permits":
        how["free_from"] = free_from_of(metadata)
    record = (token, expires, metadata, since)
    return HoldRecord(claim_id, client, lifetime, *record, offered=bool(offered), **how)


def _claim(
    name: str,
    claim_id: str,
    client: str,
    lease: float,
    metadata: str,
    since: float,
    mode: Mode,
    permits: int,
    last_seen: float,
) -> Claim:
    """The claim of a row of the queue."""
    return Claim(
        name,
        claim_id,
        client,
        lease,
        metadata,
        since,
        mode=mode,
        permits=permits,
        last_seen=last_seen,
    )
