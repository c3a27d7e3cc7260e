"""Inspection of holders, waiters and locks, and the forced release."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from leaselock.errors import NotHeld
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock import Holder, Waiter
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness

# Seconds by which the wall clocks of a store and of this machine may differ.
CLOCKS = 60.0


def _check_holder(holder: Holder | Waiter | None, title: str, label: str | None) -> None:
    assert holder is not None
    here = (socket.gethostname(), os.getpid(), title, label)
    assert (holder.host, holder.pid, holder.thread, holder.label) == here
    assert holder.since is not None
    assert abs(holder.since - time.time()) < CLOCKS


@scenario("leases_expire")
async def holder_is_shown(harness: Harness) -> None:
    """Every client sees host, process, thread, start, token and remaining time."""
    lock, watcher = harness.lock("a", lease=20.0, label="nightly"), harness.client().lock("a")
    assert (await lock.holder(), await lock.locked()) == (None, False)
    lease = await harness.must_acquire(lock)
    for holder in (await lock.holder(), await watcher.holder()):
        _check_holder(holder, harness.current_name(), "nightly")
        assert holder is not None
        assert holder.token == lease.token
        if harness.store.session_timeout < float("inf"):
            assert holder.remaining is None
        else:
            assert holder.remaining is not None
            assert 10.0 < holder.remaining <= 20.0
    await lease.release()
    assert (await watcher.holder(), await watcher.locked()) == (None, False)


@scenario()
async def client_label_is_the_default(harness: Harness) -> None:
    """A label of the lock takes precedence."""
    client = harness.client(label="reports")
    async with client.lock("a") as _, client.lock("b", label="weekly"):
        shown = [report.holder for report in await client.locks()]
    assert [holder and holder.label for holder in shown] == ["reports", "weekly"]


@scenario()
async def any_thread_or_task_name_is_shown(harness: Harness) -> None:
    """Characters that a store cannot keep are replaced, and long names are cut."""
    title = "job \udcff\0" + 100_000 * "x"
    shown = await harness.spawn(_shown_to_itself, harness.lock("a"), title=title).join()
    assert shown.startswith("job ?\0xxx")
    assert len(shown) <= 255


async def _shown_to_itself(lock: Lock) -> str:
    async with lock:
        holder = await lock.holder()
    assert holder is not None
    return holder.thread


@scenario("has_queue", "fair")
async def waiters_are_shown_in_order(harness: Harness) -> None:
    """They have no token, and disappear when they give up."""
    lock, client = harness.lock("a"), harness.client()
    async with lock:
        others = []
        for number in range(3):
            waiting = client.lock("a", label=f"label {number}")
            others.append(
                harness.spawn(partial(waiting.acquire, timeout=20.0), title=f"waiter {number}")
            )
            await harness.wait_for_waiters(lock, number + 1)
        for number, waiter in enumerate(await lock.waiters()):
            _check_holder(waiter, f"waiter {number}", f"label {number}")
        await client.close()
        assert await lock.waiters() == []


@scenario("has_queue")
async def locks_are_listed(harness: Harness) -> None:
    """Locks that are held or waited for, sorted, filtered by the pattern."""
    assert await harness.first.locks() == []
    leases = [await harness.must_acquire(harness.lock(name)) for name in ("b:1", "a", "b:2", "c")]
    other = harness.spawn(partial(harness.client().lock("a").acquire, timeout=20.0))
    await harness.wait_for_waiters(harness.lock("a"), 1)
    reports = await harness.client().locks()
    assert [report.name for report in reports] == ["a", "b:1", "b:2", "c"]
    assert [len(report.waiters) for report in reports] == [1, 0, 0, 0]
    tokens = {report.name: report.holder and report.holder.token for report in reports}
    assert tokens == {lease.name: lease.token for lease in leases}
    for pattern, names in (("b:*", ["b:1", "b:2"]), ("?", ["a", "c"]), ("[ab]", ["a"]), ("x", [])):
        assert [report.name for report in await harness.first.locks(pattern)] == names
    for lease in leases:
        await lease.release()
    await other.join()


@scenario("has_queue")
async def break_frees_the_lock(harness: Harness) -> None:
    """break_lock returns the previous holder; None for a free lock."""
    client = harness.client()
    assert await client.break_lock("a") is None
    lease = await harness.must_acquire(harness.lock("a", label="stuck"))
    waiting = harness.spawn(_token, client.lock("a"))
    await harness.wait_for_waiters(harness.lock("a"), 1)
    broken = await client.break_lock("a")
    _check_holder(broken, harness.current_name(), "stuck")
    assert broken is not None
    assert broken.token == lease.token
    assert await waiting.join() > lease.token


async def _token(lock: Lock) -> int:
    async with lock as lease:
        return lease.token


@scenario()
async def break_may_name_a_token(harness: Harness) -> None:
    """With another token nothing changes."""
    client = harness.client()
    await (await harness.must_acquire(harness.lock("a"))).release()
    lease = await harness.must_acquire(harness.lock("a"))
    for token in (lease.token - 1, lease.token + 1):
        with raising(NotHeld, "a", str(token)):
            await client.break_lock("a", token=token)
        lease.ensure()
    assert await harness.try_once(client.lock("a")) is None
    broken = await client.break_lock("a", token=lease.token)
    assert broken is not None
    assert await client.break_lock("a", token=lease.token) is None
    assert not await client.lock("a").locked()
