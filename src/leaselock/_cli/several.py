"""Which locks a command runs under: one, shared or exclusive; permits; or several at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock import AcquireTimeout
from leaselock._cli.exit_codes import Usage
from leaselock._cli.output import say
from leaselock._cli.store import outage_settings
from leaselock.process_identity import host_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from leaselock import Client, Event, Lease, Leases, Lock
    from leaselock._cli.options import CommandOptions


def locks_of(
    client: Client, name: str, label: str, options: CommandOptions
) -> Lock | SeveralLocks | Turn:
    """The locks that the options of `run` name."""
    if options.shared and options.slots is not None:
        raise Usage("either --shared or --slots, not both")
    settings: dict[str, Any] = {
        "lease": options.lease,
        "renew": not options.no_renew,
        "label": label,
        **outage_settings(options, options.on_outage, options.outage_timeout),
    }
    if options.max_hold is not None:
        # The command ends before that. If it cannot be ended, or this process hangs, the lock is
        # free when the time is over.
        settings["max_hold"] = options.max_hold + options.kill_after + options.lease
    if options.on_outage == "wait" and options.outage_timeout is None:
        raise Usage("--on-outage wait needs --outage-timeout DUR: for how long it waits at most")
    if options.on_outage == "fail" and options.outage_timeout is not None:
        raise Usage("--outage-timeout needs --on-outage wait, or another policy than fail")
    if options.min_hold and options.shared:
        raise Usage("--min-hold and --once-per need an exclusive lock, or --slots")
    if options.on_outage != "fail" and not options.quiet:
        client.on_event(_report_outage)
    if options.once_per is not None and options.on_error == "retry":
        del settings["renew"]
        return Turn(client, name, options.once_per, settings)
    if options.slots is not None:
        lock: Lock = client.semaphore(
            name, options.slots, numbered=True, min_hold=options.min_hold, **settings
        )
    elif options.shared:
        lock = client.rwlock(name, **settings).read
    else:
        lock = client.lock(name, min_hold=options.min_hold, **settings)
    if not options.others:
        return lock
    others = [
        client.lock(other, **settings) for other in dict.fromkeys(options.others) if other != name
    ]
    return SeveralLocks(client, lock, others)


def _report_outage(event: Event) -> None:
    if event.kind == "outage":
        say(f"waiting for the store of {event.name!r}: {event.reason}")


class Turn:
    """The turn of a command, which only success uses up."""

    def __init__(self, client: Client, name: str, period: float, settings: dict[str, Any]) -> None:
        self.client = client
        self.name = name
        self.period = period
        self.settings = settings
        self.lock = client.lock(name)

    def acquire(self, *, timeout: float | None) -> Lease:
        """Take the turn; AcquireTimeout if another run has it, or had it in this period."""
        lease = self.client.once(self.name, every=self.period, on_error="retry", **self.settings)
        if lease is None:
            raise AcquireTimeout(self.name, timeout)
        return lease


class SeveralLocks:
    """The lock of a command and those of --with. They are acquired together; the first one is
    shown.
    """

    def __init__(self, client: Client, lock: Lock, others: list[Lock]) -> None:
        self.client = client
        self.locks = [lock, *others]
        client.lock_all(self.locks)  # locks that do not go together are an error here
        self.name = lock.name
        # The name of the lock that was not acquired in time.
        self.timed_out = ""

    def acquire(self, *, timeout: float | None) -> SeveralLeases:
        """Acquire all, as `LockAll.acquire` does; remember which one was not acquired in time."""
        try:
            leases = self.client.lock_all(self.locks).acquire(timeout=timeout)
        except AcquireTimeout as error:
            self.timed_out = error.name
            raise
        return SeveralLeases(leases, self.name)

    def blocking(self) -> Lock:
        """The lock that this process waits for, or did not acquire in time. The others are free, or
        it holds them already.
        """
        if self.timed_out:
            return next(lock for lock in self.locks if lock.name == self.timed_out)
        this_process = host_name(), os.getpid()
        for lock in self.locks:
            if this_process in [(waiter.host, waiter.pid) for waiter in lock.waiters()]:
                return lock
        return self.locks[0]


class SeveralLeases:
    """Their leases, as the one lease of a command; token and renewals are those of its lock."""

    def __init__(self, leases: Leases, name: str) -> None:
        self.leases = leases
        self.name = name
        self.main = next(lease for lease in leases.leases if lease.name == name)
        self.token, self.slots = self.main.token, self.main.slots
        self.release = leases.release
        self.on_lost: Callable[[Callable[[Leases], object]], None] = leases.on_lost

    def failing(self) -> Lease:
        """The lease that was lost, or that ends first."""
        return min(self.leases.leases, key=lambda lease: (not lease.lost, lease.remaining))

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
        descriptors = [
            number for lease in self.leases.leases for number in lease.make_inheritable()
        ]
        return tuple(dict.fromkeys(descriptors))


def blocking(lock: Lock | SeveralLocks | Turn) -> Lock:
    """The lock that is waited for."""
    if isinstance(lock, Turn):
        return lock.lock
    return lock.blocking() if isinstance(lock, SeveralLocks) else lock


def failing(lease: Lease | SeveralLeases) -> Lease:
    """The lease that was lost, or that ends first."""
    return lease.failing() if isinstance(lease, SeveralLeases) else lease


def names_of(held: Lock | SeveralLocks | Turn | Lease | SeveralLeases) -> list[str]:
    """The names of all of them, that of the command's lock last."""
    if isinstance(held, SeveralLocks):
        return [lock.name for lock in reversed(held.locks)]
    if isinstance(held, SeveralLeases):
        names = [lease.name for lease in held.leases.leases]
        return [*(name for name in names if name != held.name), held.name]
    return [held.name]
