"""The pool of background threads: a thread is reused, and ends when it is idle for too long."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from leaselock._drivers import thread_pool as crews
from leaselock._drivers.thread_pool import ThreadPool

if TYPE_CHECKING:
    from leaselock._core.contract.effects import Operation

TIMEOUT = 60.0


async def nothing() -> None:
    """A process that does nothing."""


@pytest.fixture
def done() -> SimpleQueue[tuple[int, str]]:
    return SimpleQueue()


@pytest.fixture
def pool(done: SimpleQueue[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> ThreadPool:
    """A pool whose threads are idle for as long as the test runs."""
    monkeypatch.setattr(crews, "IDLE", 3600.0)

    def work(operation: Operation[None]) -> None:
        operation.close()
        done.put((threading.get_ident(), threading.current_thread().name))

    return ThreadPool(work)


def idle(pool: ThreadPool, count: int) -> None:
    """Wait until *count* threads are idle."""
    gate = threading.Event()
    while len(pool.idle) != count:
        gate.wait(0.001)


def test_an_idle_thread_is_reused(pool: ThreadPool, done: SimpleQueue[Any]) -> None:
    pool.start(nothing(), "one")
    first = done.get(timeout=TIMEOUT)
    idle(pool, 1)
    pool.start(nothing(), "two")
    second = done.get(timeout=TIMEOUT)
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("leaselock-one", "leaselock-two")
    pool.close(TIMEOUT)
    assert pool.threads == set()


def test_a_thread_that_is_idle_for_too_long_ends(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "IDLE", 0.01)
    pool.start(nothing(), "one")
    for thread in list(pool.threads):
        thread.join(TIMEOUT)
    assert pool.threads == set()
    assert pool.idle == []


def test_a_thread_chosen_during_its_timeout_continues(
    pool: ThreadPool, done: SimpleQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is taken from the idle list at the moment at which its wait times out."""
    monkeypatch.setattr(crews, "IDLE", 0.0)

    class Taken(list[Any]):
        def remove(self, box: Any) -> None:
            super().remove(box)
            box.put((nothing(), "late") if not late else None)
            late.append(box)
            raise ValueError

    late: list[Any] = []
    pool.idle = Taken()
    pool.start(nothing(), "one")
    assert [done.get(timeout=TIMEOUT)[1] for _ in range(2)] == ["leaselock-one", "leaselock-late"]
    pool.close(TIMEOUT)


def test_a_thread_that_finishes_during_close_ends(pool: ThreadPool, done: SimpleQueue[Any]) -> None:
    pool.closing = True
    pool.start(nothing(), "one")
    done.get(timeout=TIMEOUT)
    for thread in list(pool.threads):
        thread.join(TIMEOUT)
    assert pool.threads == set()
