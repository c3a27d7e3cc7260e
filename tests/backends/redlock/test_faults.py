"""Redlock on real masters of which some are dead or frozen, or have lost their data."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.variant

SOON = 10.0


@pytest.fixture(params=[3, 5])
def masters(request: pytest.FixtureRequest) -> Iterator[list[Redis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Redis()) for _ in range(request.param)]


@pytest.fixture
def three() -> Iterator[list[Redis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Redis()) for _ in range(3)]


def urls(masters: list[Redis]) -> list[str]:
    return [master.url for master in masters]


def until_all_have_voted(masters: list[Redis]) -> None:
    """Wait for the last vote, for which a grant does not wait."""
    until = time.monotonic() + SOON
    while not all(master.ask("EXISTS", "lock:a") for master in masters):
        assert time.monotonic() < until


def test_a_minority_may_be_dead(masters: list[Redis]) -> None:
    with leaselock.Client(urls(masters)) as one, leaselock.Client(urls(masters)) as two:
        for master in masters[: len(masters) // 2]:
            master.kill()
        with one.lock("a") as lease:
            assert two.lock("a").try_acquire() is None
            assert str(two.lock("a").holder()) == str(one.lock("a").holder())
        later = two.lock("a").acquire(timeout=SOON)
        assert later.token > lease.token
        later.release()


def test_a_majority_may_not(masters: list[Redis]) -> None:
    dead = masters[: len(masters) // 2 + 1]
    for master in dead:
        master.kill()
    with leaselock.Client(urls(masters), op_timeout=1.0) as client:
        with pytest.raises(leaselock.StoreError, match=f"of {len(masters)} masters") as raised:
            client.lock("a").acquire(timeout=0)
        assert str(dead[0].port) in str(raised.value)
        for master in dead:
            master.start()
        with client.lock("a", timeout=SOON) as lease:
            lease.ensure()


def test_a_frozen_master_costs_its_timeout_only_occasionally(masters: list[Redis]) -> None:
    with leaselock.Client(urls(masters)) as client:
        lock = client.lock("a")
        with lock:
            pass
        masters[0].pause()
        try:
            began = time.monotonic()
            for _ in range(20):
                with lock as lease:
                    lease.ensure()
            assert time.monotonic() - began < SOON
        finally:
            masters[0].cont()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_tokens_increase_with_any_majority(three: list[Redis], lost: int) -> None:
    """Any two majorities share a master, which has the greatest token."""
    tokens: list[int] = []
    for turn in range(3):
        away = three[(lost + turn) % 3]
        away.restart()
        away.pause()
        with leaselock.Client(urls(three)) as client, client.lock("a", timeout=SOON) as lease:
            tokens.append(lease.token)
        away.cont()
    assert tokens == sorted(set(tokens))


def test_a_lost_majority_is_reported(three: list[Redis]) -> None:
    reported = threading.Event()
    with leaselock.Client(urls(three)) as client:
        lease = client.lock("a", lease=1.0).acquire()
        assert lease is not None
        lease.on_lost(lambda lease: reported.set())
        until_all_have_voted(three)
        for master in three[:2]:
            master.ask("FLUSHALL")
        assert reported.wait(SOON)
        assert lease.lost
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_a_lost_minority_is_no_loss(three: list[Redis]) -> None:
    with leaselock.Client(urls(three)) as client:
        lease = client.lock("a", lease=0.6).acquire()
        assert lease is not None
        until_all_have_voted(three)
        three[1].ask("FLUSHALL")
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            lease.ensure()
            threading.Event().wait(0.05)
        lease.release()


def test_without_a_majority_the_outcome_is_unknown(three: list[Redis]) -> None:
    """One master has the vote, one has lost it, one is silent: an error now, and a loss later."""
    reported = threading.Event()
    with leaselock.Client(urls(three), op_timeout=1.0) as client:
        lease = client.lock("a", lease=1.5).acquire()
        assert lease is not None
        lease.on_lost(lambda lease: reported.set())
        until_all_have_voted(three)
        three[1].ask("FLUSHALL")
        three[2].kill()
        with pytest.raises(leaselock.OutcomeUnknown, match="not known"):
            lease.extend(5.0)
        assert reported.wait(SOON)


def test_a_vote_on_a_frozen_master_is_released_later(three: list[Redis]) -> None:
    with leaselock.Client(urls(three)) as client:
        lease = client.lock("a", lease=60.0).acquire()
        assert lease is not None
        until_all_have_voted(three)
        three[2].pause()
        lease.release()
        three[2].cont()
        until = time.monotonic() + SOON
        while three[2].ask("EXISTS", "lock:a") and time.monotonic() < until:
            threading.Event().wait(0.01)
        assert three[2].ask("EXISTS", "lock:a") == 0


async def until_waiting(lock: leaselock.AsyncLock, count: int) -> None:
    while len(await lock.waiters()) < count:
        pass


def test_waiting_tasks_are_served_in_order(three: list[Redis]) -> None:
    order: list[int] = []

    async def contend() -> None:
        async with leaselock.AsyncClient(urls(three)) as client:
            lock = client.lock("a")

            async def enter(number: int) -> None:
                async with lock:
                    order.append(number)

            async with lock:
                tasks = []
                for number in range(10):
                    tasks.append(asyncio.create_task(enter(number)))
                    await until_waiting(lock, number + 1)
            await asyncio.gather(*tasks)

    asyncio.run(contend())
    assert order == list(range(10))


def test_the_doctor_checks_each_master(three: list[Redis]) -> None:
    three[1].kill()
    with leaselock.Client(urls(three), op_timeout=1.0) as client:
        findings = client.doctor()
        assert "loss of 1" in findings[0].what
        (failed,) = [f for f in findings if f.level == "fail"]
        assert str(three[1].port) in failed.what
        agreed = [f.what for f in findings if "its clock agrees with this machine's" in f.what]
        assert sorted(int(what.split(":")[1]) for what in agreed) == sorted(
            server.port for server in (three[0], three[2])
        )
    with leaselock.Client([*urls(three), "redis://127.0.0.1:1"]) as client:
        assert client.doctor()[0].level == "warn"


def test_one_server_under_two_names_has_two_votes(three: list[Redis]) -> None:
    """A majority of names is then no majority of servers. Where the names do not tell, the doctor
    notices it.
    """
    port = three[0].port
    names = [f"redis://127.0.0.1:{port}", f"redis://127.1:{port}", three[1].url]
    with pytest.raises(ValueError, match="are one server"):
        leaselock.Client([names[0], f"redis://localhost:{port}", three[1].url])
    three[1].kill()
    with leaselock.Client(names, op_timeout=1.0) as client, client.lock("a"):
        (failed,) = (f for f in client.doctor() if "counts twice" in f.what)
        assert failed.level == "fail"
        assert "127.1" in failed.what
    with leaselock.Client(urls(three), op_timeout=1.0) as client:
        assert not any("counts twice" in finding.what for finding in client.doctor())


def test_one_url_names_all_masters(three: list[Redis]) -> None:
    text = ",".join(urls(three)) + "?protocol=redlock"
    with leaselock.Client(text) as client, client.lock("a") as lease:
        lease.ensure()
        assert client.url.count("redis://") == 3
