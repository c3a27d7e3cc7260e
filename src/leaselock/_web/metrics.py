"""The state of a store for Prometheus.

Series are labelled with the family of a lock's name, as those of `leaselock.contrib.prometheus`.
Their number is bounded in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from leaselock.contrib.labels import Labels, family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from leaselock import LockInfo
    from leaselock.live import View

# The metrics with a value for each family, and their help.
BY_FAMILY = {
    "leaselock_store_held": "Locks that are held.",
    "leaselock_store_holders": "Holders of locks, readers and permits counted singly.",
    "leaselock_store_waiting": "Owners that wait for a lock.",
    "leaselock_store_oldest_hold_seconds": "For how long the oldest hold has lasted.",
    "leaselock_store_oldest_contended_hold_seconds": (
        "For how long the oldest hold of a lock that others wait for has lasted."
    ),
    "leaselock_store_oldest_wait_seconds": "For how long the oldest waiter has waited.",
    "leaselock_store_deadlocked": "Locks that are part of a deadlock.",
    "leaselock_store_unreadable": "Locks with a record that cannot be read.",
}


class StoreMetrics(Collector):
    """The metrics of the newest view."""

    def __init__(self, view: Callable[[], View]) -> None:
        self.view = view
        # A family stays for an hour, as zero: a series that ends raises no alert.
        self.families = Labels()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def text(self, accept: str) -> tuple[bytes, str]:
        """What a server scrapes, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Make the metrics; called for each scrape."""
        view = self.view()
        up = GaugeMetricFamily("leaselock_store_up", "Whether the store answered the last time.")
        up.add_metric((), float(view.error is None and view.number > 0))
        yield up
        read = GaugeMetricFamily("leaselock_store_read_seconds", "How long the last read took.")
        read.add_metric((), view.took)
        yield read
        lost = CounterMetricFamily(
            "leaselock_store_expired", "Holds that ended because they were not renewed, as seen."
        )
        lost.add_metric((), view.losses)
        yield lost
        yield from self._by_family(view)

    def _by_family(self, view: View) -> Iterator[Metric]:
        values: dict[str, dict[str, float]] = {name: {} for name in BY_FAMILY}
        for lock in view.locks:
            label = self.families.use(family(lock.name))
            for name, value in _figures(lock, view).items():
                before = values[name].get(label, 0.0)
                combined = max(before, value) if "oldest" in name else before + value
                values[name][label] = combined
        labels = self.families.all()
        for name, text in BY_FAMILY.items():
            metric = GaugeMetricFamily(name, text, labels=("lock",))
            for label in labels:
                metric.add_metric((label,), values[name].get(label, 0.0))
            yield metric


def _figures(lock: LockInfo, view: View) -> dict[str, float]:
    holds = [hold for hold in lock.holders if not hold.cooling_down]
    oldest = _age([hold.since for hold in holds], view.at)
    return {
        "leaselock_store_held": float(bool(holds)),
        "leaselock_store_holders": float(len(holds)),
        "leaselock_store_waiting": float(len(lock.waiters)),
        "leaselock_store_oldest_hold_seconds": oldest,
        "leaselock_store_oldest_contended_hold_seconds": oldest if lock.waiters else 0.0,
        "leaselock_store_oldest_wait_seconds": _age([one.since for one in lock.waiters], view.at),
        "leaselock_store_deadlocked": float(lock.name in view.deadlocked),
        "leaselock_store_unreadable": float(lock.unreadable is not None),
    }


def _age(starts: list[float | None] | list[float], at: float) -> float:
    return max([at - since for since in starts if since], default=0.0)
