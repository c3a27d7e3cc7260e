"""One lock of protocol "lease", for the length of one transaction that has its row locked.

What the rules may want to know is read in one piece before they run, and what they change is
written in one piece after; so a transaction takes two round trips, and the rules run unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.core.backend import Claim, HoldRecord
from leaselock.core.rules import RECHECK_INTERVAL

if TYPE_CHECKING:
    from leaselock.backends.sql.script import Part, Result, Row, Script, Value

REMEMBER_BURIED = 120.0
# A waiter looks again every LOOK_AGAIN; one that was not seen for so long is dead.
WAITER_LASTS = 2.5 * RECHECK_INTERVAL


def micros(seconds: float) -> int:
    """As the tables have it."""
    return round(seconds * 1e6)


def channel(client: str) -> str:
    """Where a client listens."""
    return f"leaselock_{client}"


class Asker(NamedTuple):
    """Who asks, and how it is to be told when it waits."""

    client: str
    polls: bool
    sign: str | int | None
    """What only a client that lives has locked."""


class Waiter(NamedTuple):
    """One row of the queue."""

    ticket: int
    claim: Claim
    polls: bool


def reading(name: str, holder: str) -> Script:
    """What opens the transaction and reads everything; `LockShelf` takes its results."""
    words = {"name": name, "holder": holder}
    return (
        "begin",
        ("lock", words),
        ("weed waiters", words),
        ("weed graves", words),
        "now",
        ("buried", words),
        ("waiters", words),
    )


class LockShelf:
    """The shelf of one name; see `leaselock.core.rules.LockRow` for what each method means."""

    def __init__(self, name: str, asker: Asker, row: Row, results: list[Result]) -> None:
        self.name = name
        self.asker = asker
        self.token, self.beside = row[0], row[1]
        self.kept = _held(row)
        self.changed = bool(results[2].amount or results[3].amount)
        self.beside -= results[2].amount + results[3].amount
        self.clock: int = results[4].rows[0][0]
        self.now = self.clock / 1e6
        self.graves = {row[0] for row in results[5].rows}
        self.waiters = sorted(_waiter(name, row) for row in results[6].rows)
        # A waiter may be passed over by mistake, when only its ear is cut off; a hold may not.
        spared = {asker.client, self.kept.client if self.kept else ""}
        self.dead = {row[2] for row in results[6].rows if row[8]} - spared
        self.writes: list[Part] = []
        self.local: list[str] = []
        self.polling: set[str] = {w.claim.id for w in self.waiters if w.polls}
        self.bells: list[str] = []

    def held(self) -> HoldRecord | None:
        """The hold on record."""
        return self.kept

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token."""
        self.token = max(self.token + 1, self.clock)
        held = HoldRecord(
            claim.id, claim.client, "either", self.token, expires, claim.metadata, self.now
        )
        self.save(held)
        return held

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        self.kept = held
        self.changed = True

    def free(self) -> None:
        """Record that nobody holds."""
        self.kept = None
        self.changed = True

    def _find(self, holder: str) -> int | None:
        found = (i for i, waiter in enumerate(self.waiters) if waiter.claim.id == holder)
        return next(found, None)

    def first(self) -> Claim | None:
        """The head of the queue."""
        return self.waiters[0].claim if self.waiters else None

    def before(self, holder: str) -> Claim | None:
        """Who waits directly ahead."""
        place = self._find(holder)
        return self.waiters[place - 1].claim if place else None

    def after(self, holder: str) -> Claim | None:
        """Who waits directly behind."""
        place = self._find(holder)
        if place is None or place + 1 == len(self.waiters):
            return None
        return self.waiters[place + 1].claim

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue, or show that it still waits."""
        polls = self.asker.polls
        seen: dict[str, Value] = {
            "name": self.name,
            "holder": claim.id,
            "expires": self.clock + micros(WAITER_LASTS),
            "polls": int(polls),
            "sign": self.asker.sign,
        }
        if self._find(claim.id) is not None:
            self.writes.append(("stay", seen))
            return
        ticket = self.waiters[-1].ticket + 1 if self.waiters else 1
        self.waiters.append(Waiter(ticket, claim, polls))
        self._beside(1)
        times: dict[str, Value] = {"lease": micros(claim.lease), "since": micros(claim.since)}
        words: dict[str, Value] = {
            "ticket": ticket,
            "client": claim.client,
            "about": claim.metadata,
        }
        self.writes.append(("join", {**seen, **times, **words}))

    def _beside(self, more: int) -> None:
        self.beside += more
        self.changed = True

    def quit(self, holder: str) -> bool:
        """Take out of the queue."""
        place = self._find(holder)
        if place is None:
            return False
        del self.waiters[place]
        self._beside(-1)
        self.writes.append(("quit", {"name": self.name, "holder": holder}))
        return True

    def alive(self, client: str) -> bool:
        """Whether the client lives, as far as its waiters here tell."""
        return client not in self.dead

    def has_tombstone(self, holder: str) -> bool:
        """Whether the claim was given up for good."""
        return holder in self.graves

    def tombstone(self, holder: str) -> None:
        """Remember, for longer than a request can be under way, that it was given up."""
        expires = self.clock + micros(REMEMBER_BURIED)
        self._beside(0 if holder in self.graves else 1)
        self.graves.add(holder)
        self.writes.append(("bury", {"name": self.name, "holder": holder, "expires": expires}))

    def watch(self, client: str) -> None:
        """A death is not told: a hold ends with its lease, and a place with its row."""

    def notify(self, claim: Claim) -> None:
        """Tell the claim's client, when this is committed; our own is told by the reply."""
        if claim.client == self.asker.client:
            self.local.append(claim.id)
            return
        words: dict[str, Value] = {"client": claim.client, "holder": claim.id}
        if claim.id in self.polling:
            self.bells.append(claim.client)
            expires = self.clock + micros(WAITER_LASTS)
            self.writes.append(("leave word", {**words, "expires": expires}))
        else:
            self.writes.append(("wake", {**words, "channel": channel(claim.client)}))

    def notified(self) -> tuple[str, ...]:
        """The woken that belong to the asking client itself."""
        return tuple(self.local)

    def writing(self) -> Script:
        """What records the changes and ends the transaction."""
        if self.changed:
            self.writes.append(("store", self._stored()))
        return (*self.writes, "commit")

    def _stored(self) -> dict[str, Value]:
        words: dict[str, Value] = dict.fromkeys(
            ("holder", "client", "tie", "expires", "about"), None
        )
        held = self.kept
        if held is not None:
            words |= {"holder": held.id, "client": held.client, "tie": held.lifetime}
            words |= {"expires": micros(held.expires), "about": held.metadata}
        since = self.clock if held is None else micros(held.since)
        words |= {"name": self.name, "token": self.token, "beside": self.beside, "since": since}
        return words


def _held(row: Row) -> HoldRecord | None:
    token, _, holder, client, tie, expires, about, since = row
    if holder is None:
        return None
    return HoldRecord(holder, client, tie, token, expires / 1e6, about, since / 1e6)


def _waiter(name: str, row: Row) -> Waiter:
    ticket, holder, client, lease, about, since, polls, *_ = row
    claim = Claim(name, holder, client, lease / 1e6, about, since / 1e6)
    return Waiter(ticket, claim, bool(polls))
