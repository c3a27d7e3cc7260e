"""The logger `leaselock`: what happens to the locks of a client, for people and for log storage.

DEBUG: each acquire and release. WARNING: a wait that reaches 30 seconds, once; waits for a store
that is out of reach, late and failed renewals, locks broken by force. ERROR: lost leases, and
requests that the store did not answer. Each record has the fields of the event as attributes
(`extra`), so that a formatter for JSON writes them out.

A record of DEBUG needs a request to the logger for each acquire. So they are written if the level
was set before the client was made.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from leaselock._core.client.events import LATE
from leaselock._core.client.hold import CLIENT_CLOSED

if TYPE_CHECKING:
    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.events import Event

NAME = "leaselock"
DEBUG, WARNING, ERROR = 10, 30, 40


def attach(service: ClientCore, store: str) -> None:
    """Log what happens to the locks of this client."""

    def log(event: Event) -> None:
        write(event, store)

    # A program that has not loaded `logging` has set no level. Another thread may be loading it.
    logging: Any = sys.modules.get("logging")
    loading = getattr(getattr(logging, "__spec__", None), "_initializing", False)
    known = logging is not None and not loading
    debug = known and logging.getLogger(NAME).isEnabledFor(DEBUG)
    service.listen(log, rare=not debug)


def write(event: Event, store: str) -> None:
    """Write the record of one event, if there is anything to say."""
    level, text = described(event)
    import logging  # needed by few programs, and slow to load

    logger = logging.getLogger(NAME)
    if not logger.handlers:
        # Where a program has configured no log, a library must not write to its standard error.
        logger.addHandler(logging.NullHandler())
    if logger.isEnabledFor(level):
        extra = {"lock": event.name, "store": store, "event": event.kind, "seconds": event.seconds}
        extra |= {"lease": event.lease, "token": event.token, "holder": _holder(event)}
        extra |= {"reason": event.reason, "acquisition": event.id}
        logger.log(level, text, extra=extra)


def _holder(event: Event) -> str | None:
    return None if event.holder is None else str(event.holder)


def described(event: Event) -> tuple[int, str]:
    """The level and the text of an event."""
    name, seconds, holder = repr(event.name), f"{event.seconds:.3f} s", _holder(event)
    by = f", held by {holder}" if holder else ""
    match event.kind:
        case "acquiring":
            return DEBUG, f"acquire {name}"
        case "busy":
            return DEBUG, f"{name} is busy{by}"
        case "waiting":
            return WARNING, f"still waiting for {name} after {seconds}{by}"
        case "outage":
            return WARNING, f"waiting for the store of {name}: {event.reason}"
        case "granted":
            return DEBUG, f"acquired {name} after {seconds}, token {event.token}"
        case "timed_out":
            why = f": {event.reason}" if event.reason else ""
            return DEBUG, f"gave up {name} after {seconds}{by}{why}"
        case "released":
            return DEBUG, f"released {name} after {seconds}, token {event.token}"
        case "renewed":
            late = event.seconds < event.lease * LATE
            how = "late" if late else "in time"
            return WARNING if late else DEBUG, f"renewed {name} {how}: {seconds} were left"
        case "renewal_failed":
            return WARNING, f"{name} was not renewed, {seconds} are left: {event.reason}"
        case "broken":
            return WARNING, f"{name} was broken by force{by}"
        case "lost":
            level = WARNING if event.reason == CLIENT_CLOSED else ERROR
            return level, f"{name} was lost after {seconds}: {event.reason}"
        case "cancelled":
            return DEBUG, f"stopped waiting for {name} after {seconds}: {event.reason}"
        case "failed":
            return ERROR, f"{name} could not be acquired: {event.reason}"
