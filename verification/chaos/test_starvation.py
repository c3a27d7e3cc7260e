"""A writer among readers that come without pause waits for no more than two reads, and a claim of
three permits of four for no more than two turns of the others. `pytest -s` prints the figures.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.pace import pace
from verification.chaos.mode_stores import ORDERED, semaphore, sides, url_of

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS, ROUNDS = 8, 5
READ = 0.3
TIMEOUT = 60.0


class Contenders:
    """Threads that acquire a lock again at once, each with a client of its own."""

    def __init__(self, url: str, make: Callable[[leaselock.Client], leaselock.Lock]) -> None:
        self.url = url
        self.make = make
        self.over = threading.Event()
        self.turn = READ * pace()
        self.more = threading.Event()
        self.longest = 0.0
        self.turns = [0] * READERS
        self.threads = [threading.Thread(target=self._work, args=(n,)) for n in range(READERS)]

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        with leaselock.Client(self.url) as client:
            lock = self.make(client)
            while not self.over.is_set():
                with lock:
                    began = time.monotonic()
                    self.over.wait(self.turn * chance.uniform(0.2, 1.0))
                self.longest = max(self.longest, time.monotonic() - began)
                self.turns[number] += 1
                self.more.set()

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def longest_wait(contenders: Contenders, acquire: Callable[[], leaselock.Lease | None]) -> float:
    """The longest of some waits, each among contenders that all have had another turn."""
    longest = 0.0
    for _ in range(ROUNDS):
        before = list(contenders.turns)
        while not all(now > then for now, then in zip(contenders.turns, before, strict=True)):
            assert contenders.more.wait(TIMEOUT), "a reader was starved"
            contenders.more.clear()
        asked = time.monotonic()
        lease = acquire()
        longest = max(longest, time.monotonic() - asked)
        assert lease is not None
        lease.release()
    return longest


def must_be_soon(name: str, what: str, contenders: Contenders, acquire: Callable[[], Any]) -> None:
    with contenders:
        waited = longest_wait(contenders, acquire)
    print(f"{name}: {what} waited {waited:.2f} s, the longest turn was {contenders.longest:.2f} s")
    assert waited <= 2 * contenders.longest


@pytest.mark.parametrize("name", ORDERED)
def test_a_writer_among_readers_without_pause(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(name, request, tmp_path)
    with leaselock.Client(url) as client:
        write = sides(client).write
        contenders = Contenders(url, lambda client: sides(client).read)
        must_be_soon(name, "a writer", contenders, lambda: write.try_acquire(timeout=TIMEOUT))


@pytest.mark.parametrize("name", ORDERED)
def test_three_permits_of_four_among_single_ones(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(name, request, tmp_path)
    with leaselock.Client(url) as client:
        mine = semaphore(client, 4)
        contenders = Contenders(url, lambda client: semaphore(client, 4))
        must_be_soon(
            name, "three permits", contenders, lambda: mine.try_acquire(3, timeout=TIMEOUT)
        )
