"""Threads that take a few locks again and again, at times for longer than a lease, and log it."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from verification.chaos.operations import Log, Operation

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOCKS = ("a", "b")
EXCLUSIVE = ("exclusive", 0, 0)
# "b" is a semaphore where locks are shared.
SEMAPHORE, LIMIT = "b", 3
# How long a claim of permits waits, where claims wait, and a pause after a refusal elsewhere.
PATIENCE, PAUSE = 60.0, 0.005
# The clocks of a client and its store agree to this, in nanoseconds.
CLOCKS = 100_000_000
# The percentage of the holds that last longer than the lease.
LONG = 25


class HeldLock(Protocol):
    """A lock that is held."""

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    @property
    def shares(self) -> tuple[str, int, int]:
        """Its mode, and of a semaphore the permits and their limit."""
        ...

    def valid_until(self) -> int:
        """The instant until which the owner may rely on it, as the clock of `now` has it."""
        ...

    def release(self) -> bool:
        """Give it back; False when it was lost before."""
        ...


class Locks(Protocol):
    """What a thread uses."""

    reentrant: bool
    lease: float

    def acquire(self, name: str) -> HeldLock | None:
        """Take it, waiting a while."""
        ...

    def close(self) -> None:
        """End what the thread alone has used."""
        ...


def now() -> int:
    """Nanoseconds of the clock of all instants."""
    return time.monotonic_ns()


class Worker:
    """One thread."""

    def __init__(self, number: int, locks: Locks, log: Log, rng: random.Random) -> None:
        self.number = number
        self.locks = locks
        self.log = log
        self.rng = rng
        self.count = 0

    def turn(self) -> None:
        """Take a lock, hold it, end the hold."""
        name = self.rng.choice(LOCKS)
        began = now()
        held = self.locks.acquire(name)
        granted = now()
        if held is None:
            return
        if held.valid_until() <= granted:
            # The lease was over before the grant arrived: it was relied on at no instant.
            held.release()
            return
        self.count += 1
        hold, owner = f"{self.number}-{self.count}", str(self.number)
        asked = (name, self.number, "acquire", hold, owner, held.token, began, granted)
        first = Operation(*asked, *held.shares)
        self.log.add(first)
        if self.locks.reentrant and self.rng.random() < 0.3:
            self.nested(first)
        long = self.rng.randrange(100) < LONG
        time.sleep(self.locks.lease * self.rng.uniform(1.1, 1.6) if long else 0.001)
        valid_until = held.valid_until()
        releasing = now()
        released = held.release()
        ended = now()
        # The owner relied on it until it began to release, or until the lease was over.
        relied = min(releasing, valid_until)
        kind = "release" if released else "expire"
        self.log.add(first._replace(kind=kind, call=relied, returned=max(ended, relied)))

    def nested(self, outer: Operation) -> None:
        """Take it again within, and give that back."""
        began = now()
        try:
            held = self.locks.acquire(outer.lock)
        except leaselock.LeaseLost:
            return
        if held is None:
            return
        granted, valid_until, releasing = now(), held.valid_until(), now()
        released, ended = held.release(), now()
        # What happened after the end of the lease, or in another hold since then, claims nothing.
        if released and held.token == outer.token and ended < valid_until:
            inner = outer._replace(hold=f"{outer.hold} within", call=began, returned=granted)
            self.log.add(inner)
            self.log.add(inner._replace(kind="release", call=releasing, returned=ended))


class PermitWorker(Worker):
    """One that takes numbered permits, and logs each hold that was in the store."""

    locks: OurPermits

    def turn(self) -> None:
        """Take permits, hold them, end the hold; or be refused."""
        name, permits = self.rng.choice(LOCKS), self.rng.choice((1, 1, 2))
        self.count += 1
        began = now()
        lease = self.locks.take(name, permits)
        granted = now()
        asked = (name, self.number, "acquire", f"{self.number}-{self.count}", str(self.number))
        shares = ("permits", permits, LIMIT)
        if lease is None:
            if not self.locks.waits:
                self.log.add(Operation(*asked, 0, began, granted, *shares)._replace(kind="refuse"))
            time.sleep(PAUSE)
            return
        first = Operation(*asked, lease.token, began, granted, *shares, lease.slots)
        self.log.add(first)
        held = OurHold(lease)
        long = self.rng.randrange(100) < LONG
        time.sleep(self.locks.lease * self.rng.uniform(1.1, 1.6) if long else 0.001)
        relied = min(now(), held.valid_until())
        if held.release():
            self.log.add(first._replace(kind="release", call=relied, returned=max(now(), relied)))
            return
        # The numbers are taken until the lease ends in the store, which is after the report.
        over = max(now(), granted + round(self.locks.lease * 1e9) + CLOCKS)
        self.log.add(first._replace(kind="expire", call=relied, returned=over))


def run(
    makers: Sequence[Callable[[], Locks]],
    seconds: float,
    seed: int,
    worker_type: type[Worker] = Worker,
) -> list[Operation]:
    """A thread for each of *makers*, for that many seconds; what they did."""
    log, over = Log(), now() + round(seconds * 1e9)
    errors: list[BaseException] = []

    def work(number: int, make: Callable[[], Locks]) -> None:
        try:
            with closing(make()) as locks:
                worker = worker_type(number, locks, log, random.Random(f"{seed} {number}"))
                while now() < over:
                    worker.turn()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(number, make)) for number, make in enumerate(makers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return log.operations


class Ours:
    """Leaselock's own, without renewal, so that long holds are lost."""

    reentrant = True

    def __init__(self, client: leaselock.Client, lease: float) -> None:
        self.client = client
        self.lease = lease

    def acquire(self, name: str) -> HeldLock | None:
        """Take it."""
        lease = self.client.lock(name, lease=self.lease, renew=False).try_acquire(timeout=2.0)
        return None if lease is None else OurHold(lease)

    def close(self) -> None:
        """Do nothing: the owner of the client closes it."""


class OurShared(Ours):
    """A read/write lock, and a semaphore."""

    reentrant = False

    def __init__(self, client: leaselock.Client, lease: float, rng: random.Random) -> None:
        super().__init__(client, lease)
        self.rng = rng

    def acquire(self, name: str) -> HeldLock | None:
        """Take a side, or some permits."""
        lease = self.lease
        if name == SEMAPHORE:
            permits = self.rng.choice((1, 1, 2))
            semaphore = self.client.semaphore(name, permits=LIMIT, lease=lease, renew=False)
            taken, shares = semaphore.try_acquire(permits, timeout=2.0), ("permits", permits, LIMIT)
        else:
            sides = self.client.rwlock(name, lease=lease, renew=False)
            mode = self.rng.choice(("shared", "shared", "exclusive"))
            lock = sides.write if mode == "exclusive" else sides.read
            taken, shares = lock.try_acquire(timeout=2.0), (mode, 0, 0)
        return None if taken is None else OurHold(taken, shares)


class OurPermits(Ours):
    """Semaphores with numbered permits. Claims wait, or only try."""

    reentrant = False

    def __init__(self, client: leaselock.Client, lease: float, *, waits: bool) -> None:
        super().__init__(client, lease)
        self.waits = waits

    def take(self, name: str, permits: int) -> leaselock.Lease | None:
        """Take that many permits."""
        lock = self.client.semaphore(name, LIMIT, numbered=True, lease=self.lease, renew=False)
        return lock.try_acquire(permits, timeout=PATIENCE if self.waits else 0.0)


class OurHold:
    """A lease."""

    def __init__(self, lease: leaselock.Lease, shares: tuple[str, int, int] = EXCLUSIVE) -> None:
        self.lease = lease
        self.shares = shares
        self.token = lease.token
        # The clock first: the sum must not be later than the truth. Now, since nothing remains of a
        # lease that is over, however long it has been.
        asked = now()
        self.end = asked + round(lease.remaining * 1e9)

    def valid_until(self) -> int:
        """As the lease said at the grant; it is not renewed."""
        return self.end

    def release(self) -> bool:
        """Give it back."""
        try:
            self.lease.release()
        except (leaselock.LeaseLost, leaselock.NotHeld):
            return False
        return True
