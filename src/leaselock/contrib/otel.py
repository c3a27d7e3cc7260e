"""Metrics and traces of a client for OpenTelemetry, by its API alone.

    from leaselock.contrib.otel import instrument

    client = leaselock.Client(...)
    instrument(client)

Without `opentelemetry-api` it does nothing; without an SDK the API does nothing. Each acquire is a
span. If it had to wait, the span has a link to the trace of the holder that it waited for, whose
identity is stored with the hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import metrics, trace
except ImportError:  # the program runs without it, and so do its locks
    metrics = trace = None  # type: ignore[assignment]

from leaselock._core.client.events import LATE
from leaselock.contrib.labels import OUTCOMES, Labels, family
from leaselock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock import AsyncClient, Client, Event

NAME = "leaselock"


def instrument(
    client: Client | AsyncClient,
    *,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    label: Callable[[str], str] = family,
) -> None:
    """Report metrics and spans of *client*.

    The providers are the global ones by default. *label* makes the attribute `leaselock.lock` from
    the name of a lock: the default is the part before its first colon. There are at most 200
    values; further ones are reported as "(others)". Spans have the full name.
    """
    if trace is None:
        return
    client.on_event(Telemetry(client.url, label, tracer_provider, meter_provider).record)
    client.annotate(current_trace)


def current_trace() -> str:
    """The trace and span in which a lock is acquired, as W3C writes it; empty outside of any."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def link_to(note: str) -> Any:
    """A link to the trace in the note of a holder; None if it has none."""
    try:
        _, trace_id, span_id, flags = note.split("-")
        context = trace.SpanContext(
            int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16))
        )
    except ValueError:
        return None  # another program, or none that traces
    return trace.Link(context) if context.is_valid else None


class Telemetry:
    """The instruments of one client, and its spans that have not ended."""

    def __init__(
        self, store: str, label: Callable[[str], str], tracers: Any = None, meters: Any = None
    ) -> None:
        self.label = label
        self.backend = store.partition(":")[0]
        self.tracer = trace.get_tracer(NAME, __version__, tracers)
        meter = metrics.get_meter(NAME, __version__, meters)
        self.acquire = meter.create_histogram("leaselock.acquire.duration", "s")
        self.hold = meter.create_histogram("leaselock.hold.duration", "s")
        self.slack = meter.create_histogram("leaselock.renewal.slack", "s")
        self.late = meter.create_counter("leaselock.renewal.late")
        self.lost = meter.create_counter("leaselock.lost")
        self.broken = meter.create_counter("leaselock.break")
        self.errors = meter.create_counter("leaselock.backend.errors")
        self.held = meter.create_up_down_counter("leaselock.held")
        self.waiting = meter.create_up_down_counter("leaselock.waiting")
        # A label is kept for ever: a hold must be subtracted where it was added.
        self.locks = Labels(begin=self._begin, idle=float("inf"))
        self.spans: dict[str, Any] = {}
        self.queued: set[str] = set()

    def record(self, event: Event) -> None:
        """Report one event."""
        self._measure(event)
        if event.kind == "acquiring":
            attributes = {"leaselock.lock.name": event.name, "leaselock.backend": self.backend}
            self.spans[event.id] = self.tracer.start_span(
                "leaselock.acquire", kind=trace.SpanKind.CLIENT, attributes=attributes
            )
        elif (span := self.spans.get(event.id)) is not None:
            self._continue(span, event)

    def _continue(self, span: Any, event: Event) -> None:
        if event.holder is not None and (link := link_to(event.holder.note)) is not None:
            span.add_link(link.context)
        if event.kind in OUTCOMES:
            del self.spans[event.id]
            span.set_attribute("leaselock.outcome", OUTCOMES[event.kind])
            if event.token is not None:
                span.set_attribute("leaselock.fence", event.token)
            if event.kind == "failed":
                span.set_status(trace.Status(trace.StatusCode.ERROR, event.reason))
            span.end()

    def _attributes(self, lock: str) -> dict[str, str]:
        return {"leaselock.backend": self.backend, "leaselock.lock": lock}

    def _begin(self, lock: str) -> None:
        """Start the counters of a label at 0, so that the first loss is an increase."""
        attributes = self._attributes(lock)
        for counter in (self.late, self.lost, self.broken):
            counter.add(0, attributes)
        self.errors.add(0, attributes | {"operation": "renew"})

    def _measure(self, event: Event) -> None:
        attributes = self._attributes(self.locks.use(self.label(event.name)))
        match event.kind:
            case "busy":
                self.queued.add(event.id)
                self.waiting.add(1, attributes)
            case kind if kind in OUTCOMES:
                self.acquire.record(event.seconds, attributes | {"outcome": OUTCOMES[event.kind]})
                if event.id in self.queued:
                    self.queued.discard(event.id)
                    self.waiting.add(-1, attributes)
                self.held.add(event.kind == "granted", attributes)
            case "released" | "lost":
                self.hold.record(event.seconds, attributes | {"outcome": event.kind})
                self.held.add(-1, attributes)
                self.lost.add(event.kind == "lost", attributes)
            case "renewed":
                self.slack.record(event.seconds, attributes)
                self.late.add(event.seconds < event.lease * LATE, attributes)
            case "renewal_failed":
                self.errors.add(1, attributes | {"operation": "renew"})
            case "broken":
                self.broken.add(1, attributes)
