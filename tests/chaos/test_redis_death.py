"""Processes that die: holders and waiters, by SIGKILL, on a real server.

Law: a dead waiter delays nobody, and a dead holder no longer than its lease.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.people import LOCK, Street

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers.redis import Redis

COLOURS = ("threads", "asyncio")
LEASE = 2.0
SHORT = 0.5
LONG = 60.0
BILLION = 1_000_000_000
# What a loaded machine may add; the figures themselves are measured by the benchmarks.
SLACK = 1.5


@pytest.fixture
def street(server: Redis) -> Iterator[Street]:
    server.ask("FLUSHALL")
    street = Street(server)
    yield street
    street.end()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_dead_waiter_is_passed_over(
    colour: str, street: Street, record_property: Callable[[str, object], None]
) -> None:
    holder = street.holder(colour, LONG)
    first = holder.granted()
    before, dead, behind = (street.waiter(colour, LONG) for _ in range(3))
    dead.end()
    holder.give_back()
    second = before.granted()
    released = time.monotonic_ns()
    before.give_back()
    third = behind.granted()
    delay = (third.at - released) / BILLION
    record_property("delay", delay)
    assert delay < SLACK
    assert first.token < second.token < third.token


@pytest.mark.parametrize("colour", COLOURS)
def test_all_waiters_but_the_last_are_dead(colour: str, street: Street) -> None:
    holder = street.holder(colour, LONG)
    holder.granted()
    dead = [street.waiter(colour, LONG) for _ in range(3)]
    last = street.waiter(colour, LONG)
    for person in dead:
        person.end()
    holder.give_back()
    assert holder.await_wakeup() == ["released"]
    last.granted()


@pytest.mark.parametrize("waiter", COLOURS)
@pytest.mark.parametrize("holder", COLOURS)
def test_the_lock_of_a_dead_holder_passes_on_when_its_lease_is_over(
    holder: str,
    waiter: str,
    server: Redis,
    street: Street,
    record_property: Callable[[str, object], None],
) -> None:
    victim = street.holder(holder, LEASE)
    victim.granted()
    heir, next_one = street.waiter(waiter, LEASE), street.waiter(waiter, LEASE)
    victim.process.kill()
    left, now = server.ask("PTTL", LOCK), time.monotonic_ns()
    late = (heir.granted().at - now) / BILLION - left / 1000
    record_property("late", late)
    assert -0.05 < late < SLACK
    heir.give_back()
    next_one.granted()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_dead_holder_and_dead_heirs_delay_the_living_by_the_lease_alone(
    colour: str, street: Street
) -> None:
    victim = street.holder(colour, SHORT)
    victim.granted()
    heirs = [street.waiter(colour, SHORT) for _ in range(2)]
    living = street.waiter(colour, SHORT)
    for person in (*heirs, victim):
        person.end()
    ended = time.monotonic_ns()
    # Nobody is left to call it.
    assert (living.granted().at - ended) / BILLION < SHORT + 1.0
