"""Which locks a command runs under: one, shared or exclusive; permits; or several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.cli.exit_codes import Usage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from leaselock import Client, Holder, Leases, Lock, Waiter


def locks_of(
    client: Client, name: str, label: str, options: argparse.Namespace
) -> Lock | SeveralLocks:
    """The locks that the options of `run` name."""
    if options.shared and options.slots is not None:
        raise Usage("either --shared or --slots, not both")
    lease, renew = options.lease, not options.no_renew
    if options.min_hold and (options.shared or options.slots is not None):
        raise Usage("--min-hold and --once-per need an exclusive lock")
    if options.slots is not None:
        lock: Lock = client.semaphore(name, options.slots, lease=lease, renew=renew, label=label)
    elif options.shared:
        lock = client.rwlock(name, lease=lease, renew=renew, label=label).read
    else:
        lock = client.lock(name, lease=lease, renew=renew, label=label, min_hold=options.min_hold)
    if not options.others:
        return lock
    others = [
        client.lock(other, lease=lease, renew=renew, label=label)
        for other in dict.fromkeys(options.others)
        if other != name
    ]
    return SeveralLocks(client, lock, others)


class SeveralLocks:
    """The lock of a command and those of --with. They are acquired together; the first one is
    shown.
    """

    def __init__(self, client: Client, lock: Lock, others: list[Lock]) -> None:
        self.locks = [lock, *others]
        self.together = client.lock_all(self.locks)
        self.name = lock.name

    def acquire(self, timeout: float | None) -> SeveralLeases | None:
        """Acquire all; None when the time has passed."""
        leases = self.together.acquire(timeout) if timeout is not None else self.together.acquire()
        return None if leases is None else SeveralLeases(leases, self.name)

    def holder(self) -> Holder | None:
        """The holder of the first lock that has one."""
        holders = (lock.holder() for lock in self.locks)
        return next((holder for holder in holders if holder is not None), None)

    def waiters(self) -> list[Waiter]:
        """The waiters for the first lock that has any."""
        return next((found for lock in self.locks if (found := lock.waiters())), [])


class SeveralLeases:
    """Their leases, as the one lease of a command; token and renewals are those of its lock."""

    def __init__(self, leases: Leases, name: str) -> None:
        self.leases = leases
        self.name = name
        self.main = next(lease for lease in leases.leases if lease.name == name)
        self.token = self.main.token
        self.release = leases.release
        self.on_lost: Callable[[Callable[[Leases], object]], None] = leases.on_lost

    @property
    def renewals(self) -> int:
        """How often the lease was renewed."""
        return self.main.renewals

    @property
    def remaining(self) -> float:
        """Seconds for which all are valid."""
        return self.leases.remaining

    @property
    def lost(self) -> bool:
        """Whether any is lost."""
        return self.leases.lost

    def make_inheritable(self) -> tuple[int, ...]:
        """The descriptors that the command must inherit."""
        found = [number for lease in self.leases.leases for number in lease.make_inheritable()]
        return tuple(dict.fromkeys(found))
