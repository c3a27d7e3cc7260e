"""One scheduler of a fleet runs the jobs: `leading`, for APScheduler 3.

    scheduler = BackgroundScheduler()
    scheduler.add_job(report, "cron", minute="*/5")
    with leading(scheduler, "redis://localhost:6379/0"):
        serve()

Every process has the same jobs, and one of them runs them. If it dies, another one takes over when
its lease ends; if it is stopped, at once. A scheduler of APScheduler 4 shares its jobs with others
through its data store, and does not need this.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leaselock import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from apscheduler.schedulers.base import BaseScheduler

    from leaselock import Election, Lease

NAME = "apscheduler"


@contextmanager
def leading(
    scheduler: BaseScheduler,
    store: Any = None,
    *,
    name: str = NAME,
    lease: float = 15.0,
    label: str | None = None,
) -> Iterator[Election]:
    """Start *scheduler*, and let it run jobs for as long as this process leads the election *name*.

    *scheduler* is one whose `start` returns, such as BackgroundScheduler. *store* is that of
    `Client`; *lease* is in seconds. The value is the election. StoreError is raised if the store
    does not answer. At the end of the block the scheduler is shut down, after the jobs that run;
    then the next process leads. A loss of the leadership starts no further job, and stops none that
    runs: a job that must not overlap with the next leader's takes a lock of its own.

    Each process counts the times of its jobs itself. A new leader also runs the jobs that were due
    within their `misfire_grace_time` (1 second) before, which the former one may have run already.
    A job that must run once per period takes a lock with `min_hold`.
    """
    with Client(store, label=label or "apscheduler") as client:
        election = client.election(name, lease=lease)
        election.leader()  # the store is usable, or an error here and now
        scheduler.start(paused=True)
        term = _Term(scheduler)
        thread = threading.Thread(target=election.run, args=(term.lead,), name="apscheduler leader")
        thread.start()
        try:
            yield election
        finally:
            try:
                if scheduler.running:  # the block may have shut it down itself
                    scheduler.pause()
                    scheduler.shutdown()
            finally:
                term.stop()
                client.close()  # ends a campaign that waits
                thread.join()


class _Term:
    """What the leader does until it has lost its lease, or is stopped."""

    def __init__(self, scheduler: BaseScheduler) -> None:
        self.scheduler = scheduler
        self.stopped = False
        self.changed = threading.Event()

    def lead(self, lease: Lease) -> None:
        """Let the scheduler run jobs, until the lease is lost."""
        lease.on_lost(lambda _: self.changed.set())
        if not self.stopped and self.scheduler.running:
            self.scheduler.resume()
        while not (self.stopped or lease.lost):
            self.changed.wait()
            self.changed.clear()
        if not self.stopped and self.scheduler.running:
            self.scheduler.pause()

    def stop(self) -> None:
        """Let `lead` return."""
        self.stopped = True
        self.changed.set()
