"""Requests to the embedded store, one by one: what is urgent, what an interrupted one leaves."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from verification.models.sides import claim_of

from leaselock._backends.sqlite.database import transact
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.store import Store
from leaselock._core.contract.backend import (
    Acquire,
    Busy,
    Claim,
    Grant,
    Inspect,
    Mode,
    Release,
    Renew,
)
from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOLDER, WAITER = "0" * 32, "1" * 32


class Clock:
    """The clock of all clients."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return time.monotonic() + self.passed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def new_store(file: Path, clock: Clock) -> Iterator[Callable[[], Store]]:
    """A function that makes another client of the file."""
    made: list[Store] = []

    def new() -> Store:
        made.append(Store(File(str(file), clock.now)))
        return made[-1]

    yield new
    for store in made:
        store.close()


def ask(store: Store, request: object) -> object:
    return store.call(request, store.file.now() + 60.0)


def hand_over(holder: Store, waiter: Store, mode: Mode) -> Claim:
    """Release a lock for which a client waits twice; return the claim that it is offered to."""
    held = claim_of(HOLDER, "a", 1, 30.0)
    claim = claim_of(WAITER, "a", 1, 30.0)._replace(mode=mode)
    assert isinstance(ask(holder, Acquire(held, False)), Grant)
    for waiting in (claim, claim_of(WAITER, "a", 2, 30.0)):
        assert isinstance(ask(waiter, Acquire(waiting, True)), Busy)
    ask(holder, Release(held, False))
    return claim


def test_what_keeps_or_ends_a_hold_is_urgent(new_store: Callable[[], Store]) -> None:
    store, claim = new_store(), claim_of(HOLDER, "a", 1, 30.0)
    assert store.is_urgent(Renew((claim,)))
    assert store.is_urgent(Release(claim, False))
    # A request of its claim may be among the others, and must come first.
    assert not store.is_urgent(Release(claim, True))
    assert not store.is_urgent(Acquire(claim, True))
    assert not store.is_urgent(Inspect(None, "*"))


def test_a_claim_that_was_notified_is_urgent_until_it_asks(new_store: Callable[[], Store]) -> None:
    store, claim = new_store(), claim_of(HOLDER, "a", 1, 30.0)
    before = store.urgency
    store.file.notify([claim.id])
    assert store.urgency > before
    assert store.is_urgent(Acquire(claim, True))
    assert not store.is_urgent(Acquire(claim_of(HOLDER, "a", 2, 30.0), True))
    ask(store, Acquire(claim, True))
    assert not store.is_urgent(Acquire(claim, True))


def test_a_transaction_that_an_interrupt_has_left_ends_with_the_next_request(
    new_store: Callable[[], Store],
) -> None:
    """Else the grant would be a part of it: unknown to others, who could write nothing."""
    store, other = new_store(), new_store()
    store.file.open(time.monotonic() + 60.0).execute("BEGIN IMMEDIATE")
    assert isinstance(ask(store, Acquire(claim_of(HOLDER, "a", 1, 30.0), False)), Grant)
    assert isinstance(ask(other, Acquire(claim_of(WAITER, "a", 1, 30.0), False)), Busy)


def test_work_that_fails_leaves_no_transaction(new_store: Callable[[], Store], file: Path) -> None:
    database = new_store().file.open(time.monotonic() + 60.0)

    def fail() -> None:
        database.execute("INSERT INTO lock (name, token) VALUES ('half', 1)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transact(database, fail)
    with sqlite3.connect(file, timeout=0.0) as another:
        assert another.execute("SELECT count(*) FROM lock").fetchone() == (0,)
        another.execute("DELETE FROM lock")
    another.close()


@pytest.mark.parametrize("waits", [False, True])
def test_a_claim_that_has_left_is_granted_nothing(
    new_store: Callable[[], Store], waits: bool
) -> None:
    """Its request was late, and the lock is free."""
    store, claim = new_store(), claim_of(HOLDER, "a", 1, 30.0)
    before = claim_of(HOLDER, "a", 0, 30.0)
    assert isinstance(ask(store, Acquire(before, False)), Grant)
    ask(store, Release(before, False))
    ask(store, Release(claim, True))
    assert not isinstance(ask(store, Acquire(claim, waits)), Grant)
    later = claim_of(HOLDER, "a", 2, 30.0)
    assert isinstance(ask(store, Acquire(later, waits)), Grant)


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_an_offer_is_stored_as_one_until_its_waiter_confirms_it(
    new_store: Callable[[], Store], file: Path, mode: Mode
) -> None:
    waiter = new_store()
    claim = hand_over(new_store(), waiter, mode)
    table = "lock" if mode == "exclusive" else "hold"
    with sqlite3.connect(file) as seen:
        offered = f"SELECT id, offered FROM {table}"
        assert seen.execute(offered).fetchall() == [(claim.id, 1)]
        assert isinstance(ask(waiter, Acquire(claim, True)), Grant)
        assert seen.execute(offered).fetchall() == [(claim.id, 0)]
    seen.close()


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_an_offer_that_lapses_passes_over_those_who_are_silent(
    new_store: Callable[[], Store], clock: Clock, mode: Mode
) -> None:
    """Waiters that have not asked since then are passed over: they may be stopped, too."""
    hand_over(new_store(), new_store(), mode)
    clock.passed = CONFIRM_WITHIN + 1.0
    late = claim_of("2" * 32, "a", 1, 30.0)
    assert isinstance(ask(new_store(), Acquire(late, True)), Grant)
