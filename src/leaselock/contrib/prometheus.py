"""Metrics of a client for Prometheus, by `prometheus_client`.

    from leaselock.contrib.prometheus import instrument

    client = leaselock.Client(...)
    instrument(client)

It also works in prometheus_client's multiprocess mode: the gauges `leaselock_held` and
`leaselock_waiting` are the sums of the processes that live. Series are
labelled with the *family* of a lock's name, not with the name: one series for each order would be
too many. There are at most 200 families; further ones are counted as "(others)". The series of a
family end when no event used it for an hour, but for multiprocess mode, which cannot remove series.
Counters start at 0 with the first acquire of a family, so that `increase` sees the first loss.
What a store holds now is a question to the store: `leaselock ls --json`.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from leaselock._core.client.events import LATE
from leaselock.contrib.labels import IDLE, OUTCOMES, Labels, family

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock import AsyncClient, Client, Event

# The variable that makes prometheus_client share its metrics between processes.
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
HOLD_OUTCOMES = ("released", "lost")
# Seconds: from a round trip to an hour.
BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)


class Metrics:
    """The metrics of all clients of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.acquire = Histogram(
            "leaselock_acquire_duration_seconds",
            "How long acquires took, by their outcome.",
            ("lock", "outcome"),
            buckets=BUCKETS,
            registry=registry,
        )
        self.hold = Histogram(
            "leaselock_hold_duration_seconds",
            "How long locks were held.",
            ("lock", "outcome"),
            buckets=BUCKETS,
            registry=registry,
        )
        self.slack = Histogram(
            "leaselock_renewal_slack_ratio",
            "The part of a lease that was left when its renewal was confirmed; 2/3 is normal.",
            ("lock",),
            buckets=(0.05, 0.1, 0.2, 0.33, 0.5, 0.6, 0.66, 0.7, 1),
            registry=registry,
        )
        self.lost = Counter(
            "leaselock_lost", "Leases that were lost.", ("lock",), registry=registry
        )
        self.failed = Counter(
            "leaselock_renewal_failures", "Renewals to repeat.", ("lock",), registry=registry
        )
        self.late = Counter(
            "leaselock_late_renewals",
            "Renewals that were confirmed when less than a third of the lease was left.",
            ("lock",),
            registry=registry,
        )
        self.broken = Counter(
            "leaselock_broken", "Locks broken by force.", ("lock",), registry=registry
        )
        # A process that has died holds no locks and waits for none.
        how: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livesum"}
        self.held = Gauge("leaselock_held", "Locks that are held.", ("lock",), **how)
        self.waiting = Gauge("leaselock_waiting", "Acquires that wait.", ("lock",), **how)
        # What was added to a gauge, and is subtracted from it: the label by the acquisition.
        self.holds: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        idle = float("inf") if MULTIPROCESS in os.environ else IDLE
        self.locks = Labels(begin=self._begin, end=self._end, idle=idle)

    def _begin(self, lock: str) -> None:
        """Start the counters of a label at 0: `increase` does not see the first value of one."""
        for counter in (self.lost, self.failed, self.late, self.broken):
            counter.labels(lock)
        for gauge in (self.held, self.waiting):
            gauge.labels(lock)

    def _end(self, lock: str) -> None:
        """Remove the series of a label."""
        for metric in (self.slack, self.lost, self.failed, self.late, self.broken):
            metric.remove(lock)
        for gauge, counted in ((self.held, self.holds), (self.waiting, self.waits)):
            if lock not in counted.values():  # a hold may last for hours without an event
                gauge.remove(lock)
        for outcome in OUTCOMES.values():
            self.acquire.remove(lock, outcome)
        for outcome in HOLD_OUTCOMES:
            self.hold.remove(lock, outcome)

    def record(self, event: Event, text: str) -> None:
        """Count one event of a lock whose label is *text*."""
        lock = self.locks.use(text)
        self._count(event, lock)
        if event.kind in OUTCOMES:
            self.acquire.labels(lock, OUTCOMES[event.kind]).observe(event.seconds)
        elif event.kind in HOLD_OUTCOMES:
            self.hold.labels(lock, event.kind).observe(event.seconds)
        elif event.kind == "renewed":
            self.slack.labels(lock).observe(event.seconds / event.lease)
            self.late.labels(lock).inc(event.seconds < event.lease * LATE)
        elif event.kind == "renewal_failed":
            self.failed.labels(lock).inc()
        elif event.kind == "broken":
            self.broken.labels(lock).inc()
        if event.kind == "lost":
            self.lost.labels(lock).inc()

    def _count(self, event: Event, lock: str) -> None:
        """What is held, and what waits."""
        if event.kind == "busy" and event.id not in self.waits:
            self.waits[event.id] = lock
            self.waiting.labels(lock).inc()
        elif event.kind in OUTCOMES and (waited := self.waits.pop(event.id, None)) is not None:
            self.waiting.labels(waited).dec()
        if event.kind == "granted":
            self.holds[event.id] = lock
            self.held.labels(lock).inc()
        elif event.kind in HOLD_OUTCOMES and (held := self.holds.pop(event.id, None)) is not None:
            self.held.labels(held).dec()


@cache
def metrics(registry: CollectorRegistry = REGISTRY) -> Metrics:
    """The metrics of a registry, made once."""
    return Metrics(registry)


def instrument(
    client: Client | AsyncClient,
    *,
    registry: CollectorRegistry = REGISTRY,
    label: Callable[[str], str] = family,
) -> None:
    """Record the events of *client* in *registry*.

    *label* makes the value of the label `lock` from the name of a lock; the default is the part
    before its first colon.
    """
    recorder = metrics(registry)
    client.on_event(lambda event: recorder.record(event, label(event.name)))
