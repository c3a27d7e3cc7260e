"""The nodes of the memory store, by themselves."""

from __future__ import annotations

import pytest
from tests.models.worlds import claim_of

from leaselock.backends.memory.store import Listener, Store
from leaselock.core.backend import Acquire, Busy, Doctor, Grant, Release

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
    listener.interrupt()
    store.after_fork()
    listener.after_fork()
    assert store.client == ""
    assert not listener.ended


def test_what_is_no_request_is_refused() -> None:
    store = Store("of requests", lambda: 0.0)
    with pytest.raises(TypeError, match="not a request of a lock table"):
        store.call("acquire", 0.0)
    with pytest.raises(TypeError, match="not a request of a listener"):
        Listener(store).call(Doctor(), 0.0)
