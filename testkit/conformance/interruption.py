"""Every operation, interrupted at each of its suspensions, leaves nothing behind.

In asyncio the task is cancelled; in a thread KeyboardInterrupt is raised, as Ctrl-C does. An
operation is repeated, on locks of other names, and interrupted one suspension later each time,
until it ends before that. Each suspension is interrupted when it begins, and in another trial when
it ends, so that its result is lost.

The leases are long, so what was left behind does not end by itself.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock.errors import (
    AcquireTimeout,
    LeaseLost,
    NotHeld,
    OutcomeUnknown,
    StoreUnreachable,
)
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import (
        Client,
        Lease,
        Leases,
        Lock,
        LockAll,
        RWLock,
    )
    from testkit.conformance.harness import Harness, Moment

# Seconds.
LEASE = 600.0
SHORT = 0.02
PERIOD = 0.1
NUMBERS = itertools.count()

Operation = Callable[[], Coroutine[Any, Any, object]]
Prepare = Callable[["Trial"], Awaitable[Operation]]


class Trial:
    """One run of an operation: its clients, its locks, and the leases that are to be released."""

    def __init__(self, harness: Harness, client: Client, rival: Client, name: str) -> None:
        self.harness = harness
        self.client = client
        self.rival = rival
        self.name = name
        self.names = [name]
        # The number of permits, if the name is that of a semaphore.
        self.permits = 0
        self.leases: list[Lease | Leases] = []
        # Those that the operation leaves alone: an interruption of it must not end them.
        self.kept: list[Lease] = []
        # The client whose lock is broken, if one is.
        self.broken: Client | None = None
        # The token of a lease that was detached, if one was.
        self.detached = 0

    def lock(self, client: Client | None = None, name: str = "") -> Lock:
        """A lock of this client, or of another one."""
        return (client or self.client).lock(name or self.name, lease=LEASE)

    def sides(self, client: Client | None = None) -> RWLock:
        """The sides of the lock."""
        return (client or self.client).rwlock(self.name, lease=LEASE)

    async def hold(self, lock: Lock) -> Lease:
        """Acquire a lock, which is released at the end."""
        lease = await self.harness.must_acquire(lock)
        self.leases.append(lease)
        return lease

    async def hold_on(self, lock: Lock) -> Lease:
        """Acquire a lock that an interruption of the operation must not end."""
        self.kept.append(await self.hold(lock))
        return self.kept[-1]

    async def check_kept(self) -> None:
        """Check that the store still has what the operation leaves alone."""
        for lease in self.kept:
            await self.harness.wait_until(partial(_is_confirmed, lease))
            lease.ensure()
            assert await self.rival.lock(self.name).holder() is not None

    async def keep(self, acquiring: Awaitable[Lease | Leases | None]) -> None:
        """Acquire something that is released at the end, if it was granted."""
        with contextlib.suppress(AcquireTimeout):
            if (lease := await acquiring) is not None:
                self.leases.append(lease)

    async def keep_soon(self, acquiring: Awaitable[Lease | Leases | None]) -> None:
        """The same where the client gives the store a second to answer, and perhaps to connect,
        which takes longer on a busy machine.
        """
        with contextlib.suppress(StoreUnreachable, OutcomeUnknown):
            await self.keep(acquiring)

    async def release(self) -> None:
        """Release what is still held by a lease, or was detached."""
        for lease in self.leases:
            with contextlib.suppress(NotHeld, LeaseLost):
                await lease.release()
        if self.detached:
            with contextlib.suppress(NotHeld):
                await (await self.rival.adopt(self.name, self.detached)).release()

    async def acquire_all(self, client: Client) -> list[int]:
        """Acquire and release all locks; return the tokens."""
        tokens = []
        for name in self.names:
            if self.permits:
                semaphore = client.semaphore(name, permits=self.permits, lease=LEASE)
                lease = await semaphore.acquire(permits=self.permits)
                assert lease is not None
            else:
                lease = await self.harness.must_acquire(self.lock(client, name))
            tokens.append(lease.token)
            await lease.release()
        return tokens

    async def check_absent(self) -> None:
        """Check that the store has neither a hold nor a waiter."""
        for name in self.names:
            lock = self.rival.lock(name)
            assert await lock.holder() is None, f"{name!r} is held"
            if self.harness.store.has_queue:
                assert await lock.waiters() == [], f"{name!r} is waited for"


async def _is_confirmed(lease: Lease) -> bool:
    """Whether the store confirms the lease. Some stores do not while a conversion is in doubt,
    which the client repeats.
    """
    try:
        await lease.extend(2 * LEASE)
    except OutcomeUnknown:
        return False
    return True


async def sweep(
    harness: Harness, *operations: Prepare, moments: Sequence[Moment] = ("before", "after")
) -> None:
    """Interrupt each operation at each suspension, and check that nothing is left behind."""
    rival = harness.client()
    for prepare in operations:
        for moment in moments:
            for at in itertools.count(1):
                name = f"{prepare.__name__} {at} {moment} {next(NUMBERS)}"
                if not await interrupted(harness, rival, prepare, name, at, moment):
                    assert at > 1, f"{prepare.__name__} was never interrupted"
                    break


async def interrupted(
    harness: Harness, rival: Client, prepare: Prepare, name: str, at: int, moment: Moment
) -> bool:
    """Interrupt the operation at one suspension, and check; return False if it ended before."""
    closes = prepare is close
    trial = Trial(harness, harness.client() if closes else harness.first, rival, name)
    operation = await prepare(trial)
    error = await harness.interrupt(trial.client, operation, at, moment)
    # A note says that the store has not confirmed the withdrawal yet.
    confirmed = error is not None and not getattr(error, "__notes__", None)
    if confirmed and prepare in WAITS and moment != "twice":
        await trial.check_absent()
    await trial.check_kept()
    if closes:
        await trial.client.close()
    else:
        await trial.release()
    tokens = await trial.acquire_all(rival)
    if not closes:
        again = await trial.acquire_all(trial.client)
        assert all(map(int.__lt__, tokens, again)), f"{name!r} was acquired with an old token"
    if trial.broken is not None:
        await trial.broken.close()
    return error is not None


# --- the operations -------------------------------------------------------------------------------


async def acquire(trial: Trial) -> Operation:
    """Acquire a free lock."""
    lock = trial.lock()
    return lambda: trial.keep(lock.acquire())


async def try_to_acquire(trial: Trial) -> Operation:
    """Acquire a free lock without waiting."""
    lock = trial.lock()
    return lambda: trial.keep(lock.try_acquire())


async def body(trial: Trial) -> Operation:
    """Begin and end the body of a `with`."""

    async def enter_and_leave() -> None:
        async with trial.lock():
            pass

    return enter_and_leave


async def release(trial: Trial) -> Operation:
    """Release a lock."""
    return (await trial.hold(trial.lock())).release


async def acquire_all(trial: Trial) -> Operation:
    """Acquire several free locks."""
    locks = _several(trial)
    return lambda: trial.keep(locks.acquire())


async def body_on_all(trial: Trial) -> Operation:
    """Begin and end the body of a `with` on several locks."""

    async def enter_and_leave() -> None:
        async with _several(trial):
            pass

    return enter_and_leave


async def release_all(trial: Trial) -> Operation:
    """Release several locks."""
    leases = await _several(trial).acquire()
    assert leases is not None
    trial.leases += leases.leases
    return leases.release


def _several(trial: Trial) -> LockAll:
    trial.names = [f"{trial.name} {letter}" for letter in "abc"]
    return trial.client.lock_all(trial.names, lease=LEASE)


async def close(trial: Trial) -> Operation:
    """Close a client that holds two locks."""
    trial.names = [trial.name, f"{trial.name} 2"]
    for name in trial.names:
        await trial.hold(trial.lock(name=name))
    return trial.client.close


async def extend(trial: Trial) -> Operation:
    """Extend a lease."""
    lease = await trial.hold_on(trial.lock())
    return lambda: lease.extend(2 * LEASE)


async def look(trial: Trial) -> Operation:
    """List the locks, and look at one."""
    lock = trial.lock()
    await trial.hold_on(lock)

    async def inspect() -> None:
        await trial.client.locks(trial.name)
        await lock.holder()

    return inspect


async def watch(trial: Trial) -> Operation:
    """Take the first step of watching a lock."""
    await trial.hold_on(trial.lock())
    return lambda: _first_change(trial)


async def _first_change(trial: Trial) -> None:
    async for _ in trial.lock().watch():
        return


async def break_lock(trial: Trial) -> Operation:
    """Take the lock from another client by force."""
    # A client of its own: some stores end the session of the holder, and that may happen late.
    trial.broken = trial.harness.client()
    await trial.hold(trial.lock(trial.broken))
    return lambda: trial.client.break_lock(trial.name)


async def lead(trial: Trial) -> Operation:
    """Begin and end a term."""
    election = trial.client.election(trial.name, lease=LEASE)

    async def term() -> None:
        async with election.lead():
            pass

    return term


async def run(trial: Trial) -> Operation:
    """Call a function in a term."""

    async def work(lease: Lease) -> None:
        lease.ensure()

    election = trial.client.election(trial.name, lease=LEASE)
    return lambda: election.run(work)


async def resign(trial: Trial) -> Operation:
    """Resign inside of a term."""
    election = trial.client.election(trial.name, lease=LEASE)

    async def term() -> None:
        async with election.lead():
            await election.resign()

    return term


async def wait(trial: Trial) -> Operation:
    """Wait for a lock that another client holds, until the time has passed."""
    lock = trial.lock()
    held = await trial.harness.must_acquire(trial.lock(trial.rival))

    async def give_up() -> None:
        try:
            await trial.keep_soon(lock.acquire(timeout=SHORT))
        finally:
            held.ensure()

    trial.leases.append(held)
    return give_up


async def wait_for_all(trial: Trial) -> Operation:
    """The same for the last one of several locks."""
    locks = _several(trial)
    await trial.hold(trial.lock(trial.rival, trial.names[-1]))
    return lambda: trial.keep_soon(locks.acquire(timeout=SHORT))


async def once(trial: Trial) -> Operation:
    """Acquire a lock for a period."""
    return lambda: trial.keep(trial.client.once(trial.name, every=PERIOD))


async def detach(trial: Trial) -> Operation:
    """Detach a lease."""
    lease = await trial.hold(trial.lock())
    trial.detached = lease.token
    return lease.detach


async def adopt(trial: Trial) -> Operation:
    """Adopt a detached lease."""
    lease = await trial.harness.must_acquire(trial.lock(trial.rival))
    await lease.detach()
    trial.detached = lease.token
    return lambda: trial.keep(trial.client.adopt(trial.name, lease.token))


async def downgrade(trial: Trial) -> Operation:
    """Release the write side, and go on reading."""
    sides = trial.sides()
    write = await trial.hold(sides.write)
    await trial.hold_on(sides.read)
    return write.release


async def upgrade(trial: Trial) -> Operation:
    """Make a lease of the update side exclusive."""
    lease = await trial.hold_on(trial.sides().update)
    return lease.upgrade


async def upgrade_in_vain(trial: Trial) -> Operation:
    """Wait for a reader to leave, until the time has passed; then another one can read."""
    lease = await trial.hold_on(trial.sides().update)
    await trial.hold(trial.sides(trial.rival).read)
    return lambda: lease.upgrade(timeout=SHORT)


async def take_permits(trial: Trial) -> Operation:
    """Acquire permits of a semaphore."""
    trial.permits = 3
    semaphore = trial.client.semaphore(trial.name, permits=3, lease=LEASE)
    return lambda: trial.keep(semaphore.acquire(permits=2))


async def resize(trial: Trial) -> Operation:
    """Change the number of permits."""
    semaphore = trial.client.semaphore(trial.name, permits=2, lease=LEASE)
    trial.permits = 3
    await trial.hold(semaphore)

    async def grow() -> None:
        await semaphore.resize(3)

    return grow


# What leaves nothing in the store at the moment when it is interrupted.
WAITS = {acquire, try_to_acquire, acquire_all, take_permits}


@scenario("identifies_owner")
async def acquiring_and_releasing(harness: Harness) -> None:
    """Acquire, try, the body of a `with`, release."""
    await sweep(harness, acquire, try_to_acquire, body, release)


@scenario("identifies_owner")
async def second_interruption(harness: Harness) -> None:
    """The task is cancelled again, or Ctrl-C pressed again, during the clean-up."""
    await sweep(harness, acquire, body_on_all, moments=("twice",))


@scenario("identifies_owner")
async def waiting(harness: Harness) -> None:
    """Wait for a lock, and for one of several, that another client holds."""
    await sweep(harness, wait, wait_for_all)


@scenario("identifies_owner")
async def several_locks(harness: Harness) -> None:
    """Acquire and release several locks together."""
    await sweep(harness, acquire_all, body_on_all, release_all)


@scenario("identifies_owner")
async def elections(harness: Harness) -> None:
    """Lead, run and resign."""
    await sweep(harness, lead, run, resign)


@scenario("identifies_owner")
async def leases(harness: Harness) -> None:
    """Extend, inspect, watch, break."""
    await sweep(harness, extend, look, watch, break_lock)


@scenario("identifies_owner", "detachable")
async def detached_leases(harness: Harness) -> None:
    """Detach, adopt."""
    await sweep(harness, detach, adopt)


@scenario("identifies_owner", "min_hold")
async def periods(harness: Harness) -> None:
    """Acquire once in a period."""
    await sweep(harness, once)


@scenario("identifies_owner", "sharing", "downgrades")
async def downgrades(harness: Harness) -> None:
    """Become a reader again."""
    await sweep(harness, downgrade)


@scenario("identifies_owner", "updates")
async def upgrades(harness: Harness) -> None:
    """Upgrade, with and without a reader in the way."""
    await sweep(harness, upgrade, upgrade_in_vain)


@scenario("identifies_owner", "permits")
async def semaphores(harness: Harness) -> None:
    """Acquire permits, and change their number."""
    await sweep(harness, take_permits, resize)


@scenario("identifies_owner")
async def closing(harness: Harness) -> None:
    """Close a client; closed again, it releases what is left."""
    await sweep(harness, close)
