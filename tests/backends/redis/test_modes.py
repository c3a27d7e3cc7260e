"""Readers, writers and permits on a real server, request by request."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from tests.redis_calls import calls_during, calls_of_scripts
from verification.models.sides import claim_of

from leaselock._backends.redis import scripted_backend
from leaselock._backends.redis.blocking import BlockingConnection
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.backend import Busy, Claim, Grant, Mode
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads
from leaselock.errors import LimitMismatch, NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator


LOCK = "lock:a"


class Process:
    """A client of its own, which sends nothing by itself: a stopped process still listens."""

    def __init__(self, server: Redis, number: int, form: str = "hash", user: str = "") -> None:
        url = server.url.replace("://", f"://{user}")
        store = RedisStore(settings_of(url), now, BlockingConnection)
        self.driver = Threads((store,))
        self.backend: Any = store.backend(form)
        self.number = number
        self.serial = 0

    def claim(self, mode: Mode, **terms: Any) -> Claim:
        self.serial += 1
        claim = claim_of(f"{self.number}" * 32, "a", self.serial, 30.0)
        return claim._replace(mode=mode, **terms)

    def acquire(self, claim: Claim, *, wait: bool = False) -> Grant | Busy:
        reply: Grant | Busy = self.run(self.backend.acquire(claim, wait=wait, until=now() + 5.0))
        return reply

    def release(self, claim: Claim) -> None:
        self.run(self.backend.release(claim, tombstone=False, until=now() + 5.0))

    def run(self, operation: Any) -> Any:
        return self.driver.run(operation)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def processes(server: Redis) -> Iterator[list[Process]]:
    server.ask("FLUSHALL")
    with ExitStack() as stack:
        found = [Process(server, number) for number in (1, 2, 3)]
        for process in found:
            stack.callback(process.driver.end, _nothing())
        yield found


async def _nothing() -> None:
    pass


def waits(process: Process, claim: Claim) -> Busy:
    """Enter the queue."""
    reply = process.acquire(claim, wait=True)
    assert isinstance(reply, Busy)
    return reply


def test_a_stopped_writer_keeps_readers_out_for_a_bounded_time(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel has a subscriber, but it does not ask when all waiters must show they live."""
    monkeypatch.setattr(scripted_backend, "RECHECK_MS", 10)
    reader, stopped, late = processes
    assert isinstance(reader.acquire(reader.claim("shared")), Grant)
    writer, waiting = stopped.claim("exclusive"), late.claim("shared")
    waits(stopped, writer)
    waits(late, waiting)
    eventually(lambda: isinstance(late.acquire(waiting, wait=True), Grant))


def test_a_writer_without_a_subscriber_keeps_no_reader_out(processes: list[Process]) -> None:
    reader, dead, late = processes
    assert isinstance(reader.acquire(reader.claim("shared")), Grant)
    waits(dead, dead.claim("exclusive"))
    waiting = late.claim("shared")
    assert isinstance(late.acquire(waiting), Busy)
    dead.driver.end(_nothing())
    eventually(lambda: isinstance(late.acquire(waiting), Grant))


def test_a_dead_reader_ends_alone(processes: list[Process], server: Redis) -> None:
    """The hash lasts as long as the other reader, and a writer enters after both."""
    one, other, writer = processes
    assert isinstance(one.acquire(one.claim("shared", lease=0.05)), Grant)
    living = other.claim("shared")
    assert isinstance(other.acquire(living), Grant)
    first = writer.acquire(writer.claim("exclusive"))
    assert isinstance(first, Busy)
    eventually(lambda: _holds(writer) == 1)
    assert server.ask("HGET", LOCK, "used") in ("1", "2")
    assert isinstance(writer.acquire(writer.claim("exclusive")), Busy)
    other.release(living)
    assert isinstance(writer.acquire(writer.claim("exclusive")), Grant)


def test_an_upgrade_that_is_asked_for_again_makes_older_conversions_late(
    processes: list[Process],
) -> None:
    """The request that gave up the first try was lost, and arrives after the second try."""
    reader, process, _ = processes
    assert isinstance(reader.acquire(reader.claim("shared")), Grant)
    claim = process.claim("update")
    assert isinstance(process.acquire(claim), Grant)
    for step, mode, found in ((1, "exclusive", 1), (3, "exclusive", 3), (2, "update", 3)):
        reply = process.run(process.backend.convert(claim, step, mode, now() + 5.0))
        assert (reply.held.mode, reply.held.step) == ("upgrading", found)


def _holds(process: Process) -> int:
    (state,) = process.run(process.backend.inspect("a", "*", now() + 5.0))
    return len(state.holds)


def test_a_reader_that_was_downgraded_is_renewed_by_the_request_of_a_writer(
    processes: list[Process], server: Redis
) -> None:
    """The request was sent before the downgrade and arrives after it."""
    process = processes[0]
    claim = process.claim("exclusive", lease=1.0)
    assert isinstance(process.acquire(claim), Grant)
    process.run(process.backend.convert(claim, 1, "shared", now() + 5.0))
    (owner,) = (f for f in server.ask("HKEYS", LOCK) if f.startswith("1111"))
    before = int(server.ask("HGET", LOCK, owner))
    renewed = process.run(process.backend.renew([claim._replace(lease=60.0)], now() + 5.0))
    assert renewed == (True,)
    assert int(server.ask("HGET", LOCK, owner)) >= before + 50_000
    assert server.ask("PTTL", LOCK) > 50_000


def test_an_ended_hold_is_not_renewed_beside_others(processes: list[Process]) -> None:
    one, other, _ = processes
    short = one.claim("shared", lease=0.02)
    assert isinstance(one.acquire(short), Grant)
    assert isinstance(other.acquire(other.claim("shared")), Grant)
    eventually(lambda: _holds(other) == 1)
    assert one.run(one.backend.renew([short], now() + 5.0)) == (False,)


def test_an_exclusive_claim_to_a_semaphore_is_refused(processes: list[Process]) -> None:
    one, other, _ = processes
    assert isinstance(one.acquire(one.claim("permits", limit=2)), Grant)
    for wait in (False, True):
        with pytest.raises(LimitMismatch, match="a semaphore of 2 permits, not as a lock"):
            other.acquire(other.claim("exclusive"), wait=wait)


def test_a_hash_of_another_program_is_not_a_lock(processes: list[Process], server: Redis) -> None:
    server.ask("HSET", LOCK, "name", "value", "mode", "shared")
    with pytest.raises(NotApplied, match="which is not a lock"):
        processes[0].acquire(processes[0].claim("shared"))
    assert server.ask("HGETALL", LOCK) == ["name", "value", "mode", "shared"]


def test_a_reader_takes_few_calls_however_many_read(
    processes: list[Process], server: Redis
) -> None:
    """A grant, a renewal and a release, beside 3 readers and beside 60."""
    counts = []
    process = processes[1]
    # Opens its connection: that costs a request of its own.
    processes[2].release(processes[2].claim("shared"))
    for readers in (3, 60):
        for _ in range(readers):
            assert isinstance(process.acquire(process.claim("shared")), Grant)
        last = processes[2].claim("shared")
        steps = (
            lambda last=last: processes[2].acquire(last),
            lambda last=last: processes[2].run(processes[2].backend.renew([last], now() + 5.0)),
            lambda last=last: processes[2].release(last),
        )
        counts.append([_calls(server, step) for step in steps])
    for acquiring, renewing, releasing in counts:
        assert acquiring <= 12
        assert renewing <= 5
        assert releasing <= 8


def _calls(server: Redis, step: Any) -> int:
    return calls_of_scripts(calls_during(server, step))
