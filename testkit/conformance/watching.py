"""Watching a lock: its holder, and each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock import LockChange
    from testkit.conformance.api_types import Lock, RWLock
    from testkit.conformance.harness import Harness


async def report_changes(lock: Lock | RWLock, report: Callable[[LockChange], object]) -> None:
    """Report each change of a lock until the client is closed."""
    async for change in lock.watch():
        report(change)


@scenario("leases_expire")
async def each_change_is_reported(harness: Harness) -> None:
    """The first report is the present state; a release and a grant are reported; the iteration ends
    with the client.
    """
    client = harness.client()
    changes: list[LockChange] = []
    peer = harness.spawn(report_changes, client.lock("a"), changes.append)

    def complete() -> list[LockChange]:
        # Some formats write the record after they took the lock, and a watcher may look between.
        return [one for one in changes if one.holder is None or one.holder.token is not None]

    await harness.wait_until(lambda: len(complete()) == 1)
    lease = await harness.must_acquire(harness.lock("a", label="one"))
    await harness.wait_until(lambda: len(complete()) == 2)
    await lease.release()
    await harness.wait_until(lambda: len(complete()) == 3)
    await client.close()
    assert await peer.end() is None
    assert [change.name for change in complete()] == ["a", "a", "a"]
    first, second, third = (change.holder for change in complete())
    assert first is third is None
    assert second is not None
    assert (second.token, second.label) == (lease.token, "one")


@scenario("leases_expire")
async def the_present_holder_is_reported_at_once(harness: Harness) -> None:
    """A holder that was there before the watch; then its successor, with a greater token."""
    changes: list[LockChange] = []
    lease = await harness.must_acquire(harness.lock("a"))
    watcher = harness.client()
    peer = harness.spawn(report_changes, watcher.lock("a"), changes.append)
    await harness.wait_until(lambda: len(changes) == 1)
    broken = await harness.client().break_lock("a")
    assert broken is not None
    assert broken.token == lease.token
    later = await harness.must_acquire(harness.client().lock("a"))
    # A format that writes its record after it took the lock shows a holder without a token first.
    await harness.wait_until(
        lambda: (
            [c.holder.token for c in changes if c.holder and c.holder.token]
            == [lease.token, later.token]
        )
    )
    await watcher.close()
    assert await peer.end() is None
    await later.release()


@scenario("leases_expire", "detachable")
async def the_end_of_a_lease_is_reported(harness: Harness) -> None:
    """It sends no notification: the watcher looks when the lease is over."""
    changes: list[LockChange] = []
    lease = await harness.must_acquire(harness.lock("a", lease=harness.store.lease, renew=False))
    await lease.detach()  # at once: the lease is short
    watcher = harness.client()
    peer = harness.spawn(report_changes, watcher.lock("a"), changes.append)
    await harness.wait_until(lambda: bool(changes) and changes[-1].holder is None)
    await watcher.close()
    assert await peer.end() is None
