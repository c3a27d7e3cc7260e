"""What a row answers by default: as one that keeps an index of its own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from verification.models.sides import claim_of

from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Convert,
    Doctor,
    Grant,
    HoldRecord,
    Inspect,
    Mode,
    Release,
    Renew,
    Resize,
    SetLifetime,
    Watch,
    Watched,
)
from leaselock._core.rows import rules
from leaselock._core.rows.entry_row import Entry, EntryRow
from leaselock._core.rows.rules import CONFIRM_WITHIN, FORGET_AFTER, LockRow

if TYPE_CHECKING:
    from leaselock._core.contract.effects import Request

NAMES = ("a", "b")
MODES: tuple[Mode, ...] = ("exclusive", "shared", "update", "permits")


class Table:
    """Locks of a store without indexes, messages, tombstones or liveness."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rows: dict[str, Plain] = {}

    def row(self, name: str) -> Plain:
        row = self.rows.setdefault(name, Plain())
        row.now, row.wall = self.now, 1e9 + self.now
        return row


class Plain(LockRow):
    """The data alone, in two lists."""

    def __init__(self) -> None:
        self.limit, self.lapsed_offer, self.token = 0, 0.0, 0
        self.held: list[HoldRecord] = []
        self.claims: list[Claim] = []

    def holds(self) -> list[HoldRecord]:
        return sorted(self.held, key=lambda hold: hold.token)

    def draw(self) -> int:
        self.token = max(self.token + 1, int(self.wall * 1e6))
        return self.token

    def put(self, hold: HoldRecord) -> None:
        self.held = [*(h for h in self.held if h.id != hold.id), hold]

    def remove(self, hold_id: str) -> None:
        self.held = [hold for hold in self.held if hold.id != hold_id]

    def queue(self) -> list[Claim]:
        return list(self.claims)

    def join(self, claim: Claim) -> None:
        last_seen = claim._replace(last_seen=self.moment, limit=0)
        if self.queued(claim.id):
            self.claims = [last_seen if c.id == claim.id else c for c in self.claims]
        else:
            self.claims.append(last_seen)

    def quit(self, claim_id: str) -> bool:
        before = len(self.claims)
        self.claims = [claim for claim in self.claims if claim.id != claim_id]
        return len(self.claims) < before

    def touch(self, client: str) -> None:
        self.claims = [
            c._replace(last_seen=self.moment) if c.client == client else c for c in self.claims
        ]
        if all(claim.last_seen >= self.lapsed_offer for claim in self.claims):
            self.lapsed_offer = 0.0


class Indexed:
    """The same with the row of the memory store, without its services."""

    def __init__(self) -> None:
        self.now = 100.0
        self.entries: dict[str, Entry] = {}

    def row(self, name: str) -> EntryRow:
        row = EntryRow()
        row.now, row.entry = self.now, self.entries.setdefault(name, Entry())
        row.micros = lambda: int((1e9 + self.now) * 1e6)
        return row


def requests(chance: random.Random, claims: list[Claim]) -> Request[object]:
    claim, other = chance.choice(claims), chance.choice(claims)
    step = chance.randrange(4)
    made: list[Request[object]] = [
        Acquire(claim, True),
        Acquire(claim, chance.random() < 0.7),
        Release(claim, False),
        Renew((claim, other)),
        Convert(claim, step, chance.choice(("exclusive", "shared", "update"))),
        SetLifetime(claim, chance.choice(("either", "lease", "client"))),
        BreakLock(claim.name, chance.choice((None, claim.id))),
        Resize(claim.name, chance.randrange(1, 4)),
        Inspect(chance.choice((None, claim.name)), chance.choice(("*", "b*"))),
        Watch(claim),
    ]
    return chance.choice(made)


@pytest.mark.parametrize("seed", range(30))
def test_a_row_without_indexes_answers_as_one_with_them(seed: int) -> None:
    chance = random.Random(seed)
    plain, indexed = Table(), Indexed()
    claims = [
        claim_of(f"{number % 3}" * 32, chance.choice(NAMES), number, 3.0)._replace(
            mode=chance.choice(MODES), limit=2, min_hold=chance.choice((0.0, 0.0, 2.0))
        )
        for number in range(8)
    ]
    answered: set[type] = set()
    for _ in range(300):
        request = requests(chance, claims)
        one = rules.answer(plain.row, request, lambda: plain.rows)
        other = rules.answer(indexed.row, request, lambda: indexed.entries)
        if isinstance(other, Busy):  # the number of waiters costs a request in some stores
            other = other._replace(waiting=None)
        assert one == other, request
        answered.add(type(one))
        plain.now = indexed.now = plain.now + chance.choice((0.0, 0.2, 1.0, 3.0))
    assert {Grant, Watched} <= answered


def test_a_row_without_services_has_no_messages_and_no_tombstones() -> None:
    row = Table().row("a")
    claim = claim_of("1" * 32, "a", 1, 3.0)
    assert isinstance(rules.answer(lambda name: row, Acquire(claim, False)), Grant)
    watched = rules.answer(lambda name: row, Watch(claim))
    assert not watched.notified, "the watcher looks at intervals"
    assert rules.answer(lambda name: row, Release(claim, True)).was == "held"
    again = rules.answer(lambda name: row, Acquire(claim, False))
    assert isinstance(again, Grant), "without tombstones a late request is granted"
    with pytest.raises(TypeError, match="not a request about a lock"):
        rules.answer(lambda name: row, Doctor())


class Generations(Plain):
    """A store without a clock: time passes when a client looks at the row again and finds it as it
    was. Leases are counted in looks, and moments are numbers of changes.
    """

    looks = 0

    @property
    def moment(self) -> float:
        return float(self.looks)

    def has_ended(self, hold: HoldRecord) -> bool:
        return hold.expires <= self.looks

    def end_of(self, seconds: float) -> float:
        return self.looks + seconds

    def remaining(self, hold: HoldRecord) -> float:
        return hold.expires - self.looks

    def stays(self, hold: HoldRecord) -> float:
        return hold.free_from - self.looks

    def is_forgotten(self, claim: Claim) -> bool:
        return claim.last_seen + FORGET_AFTER <= self.looks


def test_the_rules_read_no_clock_of_their_own() -> None:
    """The row answers for time: a row without `now` keeps all rules."""
    row = Generations()
    row.wall = 1e9
    holder, waiter, stopped = (claim_of(f"{n}" * 32, "a", n, 5.0) for n in (1, 2, 3))

    def ask(request: Request[object]) -> object:
        return rules.answer(lambda name: row, request)

    assert isinstance(ask(Acquire(holder, False)), Grant)
    busy = ask(Acquire(stopped, True))
    assert isinstance(busy, Busy)
    row.looks += 1
    assert isinstance(ask(Acquire(waiter, True)), Busy)
    assert ask(Renew((holder,))) == (True,)
    row.looks += 4
    assert ask(Renew((holder,))) == (True,)
    row.looks += 5
    # The first waiter was granted the lock and did not confirm it: the hold that lapsed says when.
    assert isinstance(ask(Acquire(waiter, True)), Busy)
    assert row.holds()[0].id == stopped.id
    row.looks += int(CONFIRM_WITHIN)
    assert isinstance(ask(Acquire(waiter, True)), Grant)
