"""The lock of a dead or frozen holder is granted to another; a frozen holder learns of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.child_process import send_to_parent, wait_for_word
from testkit.conformance.queues import AT_ONCE, GRACE, LONG, keep, kill
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness


@scenario("has_queue", "multiprocess")
async def lock_of_a_killed_holder_is_granted_to_a_waiter(harness: Harness) -> None:
    """At once, or at the end of its lease."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name)
        dead = harness.process(keep, name)
        await dead.wait_for_word("holds")
        waiting = [harness.spawn(_when, harness, lock) for _ in range(2)]
        await harness.wait_for_waiters(lock, 2)
        killed = harness.now()
        await kill(harness, dead)
        first = min([await other.join() for other in waiting])
        harness.check_duration(
            first - killed,
            AT_ONCE if harness.store.detects_death else harness.store.death_bound + GRACE,
        )

    await harness.retry_if_slow(3, attempt)


@scenario("multiprocess", "detects_death")
async def lock_of_a_killed_holder_is_free_without_waiters(harness: Harness) -> None:
    """A lock without waiters is free soon after its holder was killed."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name)
        dead = harness.process(keep, name)
        await dead.wait_for_word("holds")
        assert await harness.try_once(lock) is None
        await kill(harness, dead)
        killed = harness.now()
        await (await harness.must_acquire(lock)).release()
        harness.check_elapsed(killed, AT_ONCE)

    await harness.retry_if_slow(3, attempt)


@scenario("leases_expire", "multiprocess")
async def frozen_holder_learns_of_its_loss(harness: Harness) -> None:
    """Stopped for longer than its lease, a holder finds its lease lost when it resumes."""
    lock = harness.lock("a")
    frozen = harness.process(report_loss_when_asked, "a", harness.store.lease)
    await frozen.wait_for_word("holds")
    frozen.freeze()
    lease = await harness.must_acquire(lock)
    frozen.send("look")
    frozen.resume()
    await frozen.wait_for_word("lost")
    await frozen.end()
    lease.ensure()
    await lease.release()


async def report_loss_when_asked(harness: Harness, name: str, length: float) -> None:
    """In a process: hold the lock, and later send whether the lease is still valid."""
    lease = await harness.must_acquire(harness.lock(name, lease=length))
    send_to_parent("holds")
    await wait_for_word(harness, "look")
    send_to_parent("lost" if lease.lost else "valid")
    with raising(LeaseLost, name):
        await lease.release()


@scenario("multiprocess")
async def short_stop_loses_nothing(harness: Harness) -> None:
    """A stop shorter than the lease is no loss."""
    lock = harness.lock("a")
    paused = harness.process(keep, "a", LONG)
    await paused.wait_for_word("holds")
    if harness.store.detects_death:
        paused.freeze()
        assert await harness.try_once(lock, 0.2) is None
        paused.resume()
    assert await harness.try_once(lock) is None
    paused.send("end")
    await paused.end()
    await (await harness.must_acquire(lock)).release()


async def _when(harness: Harness, lock: Lock) -> float:
    async with lock:
        return harness.now()
