"""The nodes of the memory store, by themselves."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from verification.models.sides import claim_of

import leaselock
from leaselock._backends.memory.store import DATABASES, MOST_KEPT, Listener, Store, Table
from leaselock._core.contract.backend import (
    Acquire,
    Busy,
    Collected,
    CollectGarbage,
    Doctor,
    Grant,
    Release,
    Resize,
    Watch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.backend import Claim

HOLDER, WAITER = (claim_of(number * 32, "a", 1, 30.0) for number in "01")


def test_a_client_that_has_ended_is_not_notified() -> None:
    first, second = (Store("of ended clients", lambda: 0.0) for _ in range(2))
    assert isinstance(first.call(Acquire(HOLDER, True), 0.0), Grant)
    assert isinstance(second.call(Acquire(WAITER, True), 0.0), Busy)
    first.database.messages.clear()
    first.call(Release(HOLDER, False), 0.0)
    assert not first.database.messages


def test_after_a_fork_nothing_is_held() -> None:
    store = Store("of forks", lambda: 0.0)
    listener = Listener(store)
    store.call(Acquire(HOLDER, True), 0.0)
    listener.wake()
    store.after_fork()
    listener.after_fork()
    assert store.client == ""
    assert not listener.ended


def test_what_is_no_request_is_refused() -> None:
    store = Store("of requests", lambda: 0.0)
    with pytest.raises(TypeError, match="not a request about a lock"):
        store.call("acquire", 0.0)
    with pytest.raises(TypeError, match="not a request of a listener"):
        Listener(store).call(Doctor(), 0.0)


def claim_for(name: str) -> Claim:
    return HOLDER._replace(name=name, id=f"{HOLDER.client}:{name}")


def table(alive: bool, micros: Callable[[], int] = lambda: 1) -> Table:
    return Table(lambda: 0.0, micros, lambda _: alive, lambda *_: None, lambda *_: None)


def test_names_that_are_not_used_any_more_are_removed() -> None:
    """As new ones are used, and without the names in use; their tokens are never given again."""
    made = table(alive=True)
    first = made.answer("c", Acquire(claim_for("held"), True))
    assert isinstance(first, Grant)
    last = first.token
    for number in range(4 * MOST_KEPT):
        claim = claim_for(f"order {number}")
        grant = made.answer("c", Acquire(claim, True))
        assert isinstance(grant, Grant)
        last = max(last, grant.token)
        made.answer("c", Release(claim, False))
        assert len(made.entries) <= MOST_KEPT + 1
    assert made.entries["held"].holds
    again = made.answer("c", Acquire(claim_for("order 0"), True))
    assert isinstance(again, Grant)
    assert again.token > 1


def test_gc_removes_crashed_holders_and_tokens_rise_although_the_clock_is_set_back() -> None:
    clock = [10_000_000]
    made = table(alive=False, micros=lambda: clock[0])
    for number in range(MOST_KEPT):
        made.answer("c", Acquire(claim_for(f"order {number}"), True))
    assert made.answer("c", CollectGarbage(None)) == Collected(MOST_KEPT)
    assert not made.entries
    clock[0] = 1
    grant = made.answer("c", Acquire(claim_for("order 5"), True))
    assert isinstance(grant, Grant)
    assert grant.token == 10_000_001


def test_gc_removes_the_number_of_permits_of_an_idle_semaphore_and_nothing_in_use() -> None:
    made = table(alive=True)
    for name in ("idle", "used"):
        made.answer("c", Resize(name, 3))
    made.answer("c", Acquire(claim_for("used")._replace(mode="permits", limit=3), True))
    made.answer("c", Watch(claim_for("watched")))
    assert made.answer("c", CollectGarbage(None)) == Collected(1)
    assert list(made.entries) == ["used", "watched"]


def names_in_memory() -> set[str]:
    gc.collect()
    return {name for _, name in DATABASES}


def test_a_database_is_gone_with_its_last_client() -> None:
    before, tokens = names_in_memory(), [0]
    for number in range(20):
        with leaselock.Client(f"memory://shrinks{number}") as client, client.lock("a") as lease:
            tokens.append(lease.token)
    del client, lease
    assert names_in_memory() == before
    assert tokens == sorted(set(tokens))


def test_a_database_stays_while_a_hold_of_it_outlives_its_clients() -> None:
    with leaselock.Client("memory://outlived") as client:
        lease = client.lock("a", renew=False).acquire()
        lease.detach()
    token = lease.token
    del client, lease
    assert "outlived" in names_in_memory()
    with leaselock.Client("memory://outlived") as client:
        assert client.lock("a").try_acquire() is None
        client.adopt("a", token).release()
    del client
    assert "outlived" not in names_in_memory()
