"""Metrics for Prometheus, and metrics and traces for OpenTelemetry, by their own exporters."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from testkit.servers.process import eventually

import leaselock
from leaselock.contrib import labels, otel, prometheus

if TYPE_CHECKING:
    from pathlib import Path

STORE = "memory://metrics"
ACQUIRED = "leaselock_acquire_duration_seconds_count"


def play(client: leaselock.Client) -> None:
    """One grant, one refusal, one loss, one break."""
    with client.lock("order:5"):
        pass
    with leaselock.Client(STORE) as other, other.lock("order:6"):
        assert client.lock("order:6").try_acquire() is None
    lease = client.lock("order:7").acquire()
    assert client.break_lock("order:7") is not None
    with pytest.raises(leaselock.LeaseLost):
        lease.release()


def test_prometheus_counts_and_times() -> None:
    registry = CollectorRegistry()
    with leaselock.Client(STORE) as client:
        prometheus.instrument(client, registry=registry)
        play(client)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"lock": "order", **labels})

    acquired = "leaselock_acquire_duration_seconds_count"
    assert value(acquired, outcome="acquired") == 2
    assert value(acquired, outcome="timeout") == 1
    assert value("leaselock_hold_duration_seconds_count", outcome="released") == 1
    assert value("leaselock_lost_total") == 1
    assert value("leaselock_broken_total") == 1
    # Two clients of one registry share the metrics; the text is what a server scrapes.
    with leaselock.Client(STORE) as client:
        prometheus.instrument(client, registry=registry)
    assert b'leaselock_lost_total{lock="order"} 1.0' in generate_latest(registry)


def test_counters_begin_at_zero_with_the_first_acquire() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    counters = ("lost", "renewal_failures", "late_renewals", "broken")
    found: list[float | None] = []
    with leaselock.Client(STORE) as client:
        prometheus.instrument(client, registry=registry)
        otel.instrument(client, meter_provider=MeterProvider([reader]))
        with client.lock("first:5"):
            for counter in counters:
                name = f"leaselock_{counter}_total"
                found.append(registry.get_sample_value(name, {"lock": "first"}))
            telemetry = points(reader)
    assert found == [0.0] * len(counters)
    for name in ("lost", "renewal.late", "break", "backend.errors"):
        assert [point.value for point in telemetry[f"leaselock.{name}"]] == [0], name


def test_what_is_held_and_what_waits_is_shown() -> None:
    registry = CollectorRegistry()

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"leaselock_{name}", {"lock": "order"})

    waiting = threading.Event()
    with leaselock.Client(STORE) as client, leaselock.Client(STORE) as other:
        prometheus.instrument(client, registry=registry)
        client.on_event(lambda event: waiting.set() if event.kind == "busy" else None)
        with client.lock("order:5"), client.lock("order:6"):
            assert (value("held"), value("waiting")) == (2.0, 0.0)
        lease = other.lock("order:5").acquire()
        thread = threading.Thread(target=lambda: client.lock("order:5").acquire().release())
        thread.start()
        assert waiting.wait(60)
        assert (value("held"), value("waiting")) == (0.0, 1.0)
        lease.release()
        thread.join()
        assert (value("held"), value("waiting")) == (0.0, 0.0)
        lease = client.lock("order:5").acquire()
        assert client.break_lock("order:5") is not None
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        eventually(lambda: value("held") == 0.0, 60.0)  # the loss is reported in the background


def renewed(name: str, left: float) -> leaselock.Event:
    """A renewal that was confirmed with *left* seconds of a lease of 30 s."""
    return leaselock.Event("renewed", name, "id", 0.0, left, 30.0)


def test_a_late_renewal_is_counted_before_the_loss() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    measured = prometheus.metrics(registry)
    telemetry = otel.Telemetry("memory://", labels.family, meters=MeterProvider([reader]))
    for left in (20.0, 11.0, 9.0, 2.0):
        measured.record(renewed("order:5", left), "order")
        telemetry.record(renewed("order:5", left))
    late = registry.get_sample_value("leaselock_late_renewals_total", {"lock": "order"})
    assert late == 2.0
    assert [point.value for point in points(reader)["leaselock.renewal.late"]] == [2]
    assert registry.get_sample_value("leaselock_lost_total", {"lock": "order"}) == 0.0


def test_the_number_of_series_is_bounded() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    with leaselock.Client(STORE) as client:
        prometheus.instrument(client, registry=registry)
        otel.instrument(client, meter_provider=MeterProvider([reader]))
        for i in range(labels.MOST_LABELS + 100):
            with client.lock(f"user-{i}:a"):
                pass
    count = "leaselock_acquire_duration_seconds_count"
    others = {"lock": labels.OTHERS, "outcome": "acquired"}
    assert registry.get_sample_value(count, others) == 100
    found = points(reader)
    assert len(found["leaselock.acquire.duration"]) == labels.MOST_LABELS + 1
    assert sum(point.value for point in found["leaselock.held"]) == 0
    # What a server scrapes, with all series of all labels.
    assert len(generate_latest(registry).splitlines()) < 62 * (labels.MOST_LABELS + 2)


def test_a_label_ends_when_it_was_not_used_for_long() -> None:
    now, begun, ended = [0.0], list[str](), list[str]()
    own = labels.Labels(begin=begun.append, end=ended.append, clock=lambda: now[0])
    for i in range(labels.MOST_LABELS):
        assert own.use(f"user-{i}") == f"user-{i}"
    now[0] = labels.IDLE - 1
    assert own.use("user-0") == "user-0"
    assert own.use("new") == labels.OTHERS
    now[0] = labels.IDLE
    assert own.use("new") == "new"
    assert own.all() == [labels.OTHERS, "new", "user-0"]
    assert len(ended) == labels.MOST_LABELS - 1
    assert begun[-2:] == [labels.OTHERS, "new"]


def test_the_series_of_a_label_that_ended_are_removed() -> None:
    registry = CollectorRegistry()
    measured = prometheus.metrics(registry)
    now = [0.0]
    measured.locks._clock = lambda: now[0]
    for kind in ("acquiring", "granted", "renewed", "renewal_failed", "lost", "released", "broken"):
        measured.record(renewed("order:5", 20.0)._replace(kind=kind), "order")
    assert b'lock="order"' in generate_latest(registry)
    now[0] = labels.IDLE
    measured.record(renewed("other", 20.0)._replace(kind="acquiring"), "other")
    text = generate_latest(registry)
    assert b'lock="order"' not in text
    assert b'leaselock_lost_total{lock="other"} 0.0' in text


def test_prometheus_works_in_multiprocess_mode(tmp_path: Path) -> None:
    program = """
import leaselock, prometheus_client, prometheus_client.multiprocess, subprocess, sys
from leaselock.contrib.prometheus import instrument
with leaselock.Client("memory://") as client:
    instrument(client)
    with client.lock("order:5"): pass
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "again"], check=True)
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.multiprocess.MultiProcessCollector(registry)
    labels = {"lock": "order", "outcome": "acquired"}
    print(registry.get_sample_value("leaselock_acquire_duration_seconds_count", labels))
"""
    path, folder = tmp_path / "program.py", tmp_path / "metrics"
    path.write_text(program, "utf-8")
    folder.mkdir()
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2.0\n"


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """The data points of each metric."""
    data: Any = reader.get_metrics_data()
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_telemetry_measures() -> None:
    reader = InMemoryMetricReader()
    with leaselock.Client(STORE) as client:
        otel.instrument(client, meter_provider=MeterProvider([reader]))
        play(client)
    found = points(reader)
    outcomes = {p.attributes["outcome"]: p.count for p in found["leaselock.acquire.duration"]}
    assert outcomes == {"acquired": 2, "timeout": 1}
    assert all(p.attributes["leaselock.lock"] == "order" for p in found["leaselock.lost"])
    assert sum(p.value for p in found["leaselock.lost"]) == 1
    assert sum(p.value for p in found["leaselock.held"]) == 0


def hold(url: str, traced: Any, release: Any) -> None:
    """Hold the lock inside a span of another process."""
    tracer = TracerProvider()
    with leaselock.Client(url) as client:
        otel.instrument(client, tracer_provider=tracer)
        nightly = tracer.get_tracer("test").start_as_current_span("nightly")
        with nightly as span, client.lock("order:5"):
            traced.put(span.get_span_context().trace_id)
            release.get()


def test_the_span_of_a_waiter_links_to_the_trace_of_the_holder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    spawn = multiprocessing.get_context("spawn")
    traced, release = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=hold, args=(url, traced, release))
    process.start()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_id = traced.get()
    with leaselock.Client(url) as client:
        otel.instrument(client, tracer_provider=provider)
        client.on_event(lambda event: release.put(1) if event.kind == "busy" else None)
        holder = client.lock("order:5").holder()
        assert holder is not None
        assert f"{trace_id:032x}" in holder.note
        with client.lock("order:5") as lease:
            token = lease.token
    process.join()
    (span,) = exporter.get_finished_spans()
    assert span.name == "leaselock.acquire"
    assert [link.context.trace_id for link in span.links] == [trace_id]
    assert dict(span.attributes or {}) == {
        "leaselock.lock.name": "order:5",
        "leaselock.backend": "sqlite",
        "leaselock.outcome": "acquired",
        "leaselock.fence": token,
    }


@pytest.mark.parametrize("note", ["", "x", "w-x-y-z", "00-0-0-0", f"00-{2**128:x}-1-01"])
def test_a_holder_without_a_trace_has_no_link(note: str) -> None:
    assert otel.link_to(note) is None
