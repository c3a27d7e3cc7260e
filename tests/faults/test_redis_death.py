"""Processes that die: holders and waiters, by SIGKILL, on a real server.

Invariant: a dead waiter does not delay the others, and a dead holder does so for its lease at most.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.contenders import LOCK, Contest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.redis import Redis

COLOURS = ("threads", pytest.param("asyncio", marks=pytest.mark.variant))
LEASE = 2.0
SHORT = 0.5
LONG = 60.0
BILLION = 1_000_000_000
# What a loaded machine may add; the figures themselves are measured by the benchmarks.
SLACK = 1.5


@pytest.fixture
def contest(server: Redis) -> Iterator[Contest]:
    server.ask("FLUSHALL")
    contest = Contest(server)
    yield contest
    contest.end()


@pytest.mark.timing
@pytest.mark.parametrize("colour", COLOURS)
def test_a_dead_waiter_is_skipped(
    colour: str, contest: Contest, record_property: Callable[[str, object], None]
) -> None:
    holder = contest.holder(colour, LONG)
    first = holder.granted()
    before, dead, behind = (contest.waiter(colour, LONG) for _ in range(3))
    dead.end()
    holder.release()
    second = before.granted()
    released = time.monotonic_ns()
    before.release()
    third = behind.granted()
    delay = (third.at - released) / BILLION
    record_property("delay", delay)
    assert delay < SLACK
    assert first.token < second.token < third.token


@pytest.mark.parametrize("colour", COLOURS)
def test_all_waiters_but_the_last_are_dead(colour: str, contest: Contest) -> None:
    holder = contest.holder(colour, LONG)
    holder.granted()
    dead = [contest.waiter(colour, LONG) for _ in range(3)]
    last = contest.waiter(colour, LONG)
    for contender in dead:
        contender.end()
    holder.release()
    assert holder.read_line() == ["released"]
    last.granted()


@pytest.mark.timing
@pytest.mark.parametrize("waiter", COLOURS)
@pytest.mark.parametrize("holder", COLOURS)
def test_the_lock_of_a_dead_holder_is_granted_when_its_lease_ends(
    holder: str,
    waiter: str,
    server: Redis,
    contest: Contest,
    record_property: Callable[[str, object], None],
) -> None:
    victim = contest.holder(holder, LEASE)
    victim.granted()
    successor, next_one = contest.waiter(waiter, LEASE), contest.waiter(waiter, LEASE)
    victim.process.kill()
    left, now = server.ask("PTTL", f"lock:{LOCK}"), time.monotonic_ns()
    late = (successor.granted().at - now) / BILLION - left / 1000
    record_property("late", late)
    assert -0.05 < late < SLACK
    successor.release()
    next_one.granted()


@pytest.mark.timing
@pytest.mark.parametrize("colour", COLOURS)
def test_a_dead_holder_and_dead_waiters_delay_a_live_waiter_by_one_lease(
    colour: str, contest: Contest
) -> None:
    victim = contest.holder(colour, SHORT)
    victim.granted()
    waiters = [contest.waiter(colour, SHORT) for _ in range(2)]
    living = contest.waiter(colour, SHORT)
    for contender in (*waiters, victim):
        contender.end()
    ended = time.monotonic_ns()
    # No process is left that could notify the waiter.
    assert (living.granted().at - ended) / BILLION < SHORT + 1.0
