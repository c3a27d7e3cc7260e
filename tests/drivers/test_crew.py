"""The background threads of a driver: they take on more work, and go home."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from leaselock.drivers import thread_pool as crews
from leaselock.drivers.thread_pool import ThreadPool

if TYPE_CHECKING:
    from leaselock.core.effects import Process

PATIENCE = 10.0


async def nothing() -> None:
    """A process that is only a name here."""


@pytest.fixture
def done() -> SimpleQueue[tuple[int, str]]:
    return SimpleQueue()


@pytest.fixture
def crew(done: SimpleQueue[tuple[int, str]]) -> ThreadPool:
    def work(process: Process[None]) -> None:
        process.close()
        done.put((threading.get_ident(), threading.current_thread().name))

    return ThreadPool(work)


def idle(crew: ThreadPool, count: int) -> None:
    """Wait until so many wait for work."""
    until = crews.IDLE
    gate = threading.Event()
    while len(crew.idle) != count:
        gate.wait(until / 1000)


def test_who_is_done_does_the_next_work(crew: ThreadPool, done: SimpleQueue[Any]) -> None:
    crew.start(nothing(), "one")
    first = done.get(timeout=PATIENCE)
    idle(crew, 1)
    crew.start(nothing(), "two")
    second = done.get(timeout=PATIENCE)
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("leaselock-one", "leaselock-two")
    crew.close(PATIENCE)
    assert crew.threads == set()


def test_who_waits_too_long_goes_home(crew: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "IDLE", 0.01)
    crew.start(nothing(), "one")
    for thread in list(crew.threads):
        thread.join(PATIENCE)
    assert crew.threads == set()
    assert crew.idle == []


def test_who_is_called_while_he_leaves_stays(
    crew: ThreadPool, done: SimpleQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box is taken out in the moment in which its owner gives up waiting."""
    monkeypatch.setattr(crews, "IDLE", 0.0)

    class Taken(list[Any]):
        def remove(self, box: Any) -> None:
            super().remove(box)
            box.put((nothing(), "late") if not late else None)
            late.append(box)
            raise ValueError

    late: list[Any] = []
    crew.idle = Taken()
    crew.start(nothing(), "one")
    assert [done.get(timeout=PATIENCE)[1] for _ in range(2)] == ["leaselock-one", "leaselock-late"]
    crew.close(PATIENCE)


def test_who_comes_back_while_all_leave_leaves_too(
    crew: ThreadPool, done: SimpleQueue[Any]
) -> None:
    crew.closing = True
    crew.start(nothing(), "one")
    done.get(timeout=PATIENCE)
    for thread in list(crew.threads):
        thread.join(crews.IDLE / 2)
    assert crew.threads == set()
