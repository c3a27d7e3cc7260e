"""What people are shown: who holds, who waits, which locks there are; and the forced release."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from leaselock.errors import NotHeld
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock import Holder, Waiter
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World

# How far the wall clocks of a store and of this machine may be apart.
CLOCKS = 60.0


def _expect_ours(holder: Holder | Waiter | None, title: str, label: str | None) -> None:
    assert holder is not None
    here = (socket.gethostname(), os.getpid(), title, label)
    assert (holder.host, holder.pid, holder.thread, holder.label) == here
    assert abs(holder.since - time.time()) < CLOCKS


@scenario("expiry")
async def the_holder_is_shown(world: World) -> None:
    """To everybody: where it runs, since when, by which token, for how much longer."""
    lock, watcher = world.lock("a", lease=20.0, label="nightly"), world.client().lock("a")
    assert (await lock.holder(), await lock.locked()) == (None, False)
    lease = await world.take(lock)
    for holder in (await lock.holder(), await watcher.holder()):
        _expect_ours(holder, world.title(), "nightly")
        assert holder is not None
        assert holder.token == lease.token
        if world.store.session < float("inf"):
            assert holder.remaining is None
        else:
            assert holder.remaining is not None
            assert 10.0 < holder.remaining <= 20.0
    await lease.release()
    assert (await watcher.holder(), await watcher.locked()) == (None, False)


@scenario()
async def the_label_of_the_client_is_the_default(world: World) -> None:
    """The lock's own is shown before it."""
    client = world.client(label="reports")
    async with client.lock("a") as _, client.lock("b", label="weekly"):
        shown = [report.holder for report in await client.locks()]
    assert [holder and holder.label for holder in shown] == ["reports", "weekly"]


@scenario()
async def a_thread_or_task_may_be_called_anything(world: World) -> None:
    """What is no text for a store is made visible, and what is long is cut."""
    title = "job \udcff\0" + 100_000 * "x"
    shown = await world.spawn(_shown_to_itself, world.lock("a"), title=title).join()
    assert shown.startswith("job ?\0xxx")
    assert len(shown) <= 255


async def _shown_to_itself(lock: Lock) -> str:
    async with lock:
        holder = await lock.holder()
    assert holder is not None
    return holder.thread


@scenario("queue", "fair")
async def the_waiters_are_shown_in_order(world: World) -> None:
    """Waiters are shown until they stop waiting."""
    lock, client = world.lock("a"), world.client()
    async with lock:
        others = []
        for number in range(3):
            waiting = client.lock("a", label=f"label {number}")
            others.append(world.spawn(waiting.acquire, 20.0, title=f"waiter {number}"))
            await world.until_waiting(lock, number + 1)
        for number, waiter in enumerate(await lock.waiters()):
            _expect_ours(waiter, f"waiter {number}", f"label {number}")
        await client.close()
        assert await lock.waiters() == []


@scenario("queue")
async def the_locks_are_listed(world: World) -> None:
    """Those that are held or waited for, sorted, as far as they match the pattern."""
    assert await world.first.locks() == []
    leases = [await world.take(world.lock(name)) for name in ("b:1", "a", "b:2", "c")]
    other = world.spawn(world.client().lock("a").acquire, 20.0)
    await world.until_waiting(world.lock("a"), 1)
    reports = await world.client().locks()
    assert [report.name for report in reports] == ["a", "b:1", "b:2", "c"]
    assert [len(report.waiters) for report in reports] == [1, 0, 0, 0]
    tokens = {report.name: report.holder and report.holder.token for report in reports}
    assert tokens == {lease.name: lease.token for lease in leases}
    for pattern, names in (("b:*", ["b:1", "b:2"]), ("?", ["a", "c"]), ("[ab]", ["a"]), ("x", [])):
        assert [report.name for report in await world.first.locks(pattern)] == names
    for lease in leases:
        await lease.release()
    await other.join()


@scenario("queue")
async def a_forced_release_frees_the_lock(world: World) -> None:
    """It says from whom; of a free lock, it says None."""
    client = world.client()
    assert await client.break_lock("a") is None
    lease = await world.take(world.lock("a", label="stuck"))
    waiting = world.spawn(_token, client.lock("a"))
    await world.until_waiting(world.lock("a"), 1)
    broken = await client.break_lock("a")
    _expect_ours(broken, world.title(), "stuck")
    assert broken is not None
    assert broken.token == lease.token
    assert await waiting.join() > lease.token


async def _token(lock: Lock) -> int:
    async with lock as lease:
        return lease.token


@scenario()
async def a_forced_release_may_be_of_one_grant_only(world: World) -> None:
    """With another token nothing changes."""
    client = world.client()
    await (await world.take(world.lock("a"))).release()
    lease = await world.take(world.lock("a"))
    for token in (lease.token - 1, lease.token + 1 + world.store.local_handoffs):
        with raising(NotHeld, "a", str(token)):
            await client.break_lock("a", token=token)
        lease.ensure()
    assert await client.lock("a").acquire(timeout=0) is None
    broken = await client.break_lock("a", token=lease.token)
    assert broken is not None
    assert await client.break_lock("a", token=lease.token) is None
    assert not await client.lock("a").locked()
