"""What TLC checks: the models, their constants, and the flaws that it must find."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from verification.simulation.document import APART, RATE
from verification.tla import document_runs
from verification.tla.lease_runs import TracedScenario
from verification.tla.projection import TICKS, events_of, ticks

from leaselock._core.rows.rules import CONFIRM_WITHIN, FORGET_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = 1_000_000
OF_THREE = {"Clients": "{a, b, c}"}


class Check(NamedTuple):
    """One run of TLC."""

    name: str
    model: str
    constants: dict[str, str]
    invariants: tuple[str, ...]
    violated: tuple[str, ...] = ()
    """The invariants of which TLC must find one violated; none, if it must find no error."""
    complete: bool = True
    """Whether all states are visited; otherwise those that the time limit allows."""
    long: bool = False
    """Whether only `--long` runs it."""


LEASE = {
    "Clients": "{a, b}",
    "Leases": "{2}",
    "Offer": "1",
    "Margin": "0",
    "Modes": '{"exclusive"}',
    "Permits": "{1}",
    "Limit": "1",
    "Conversions": "0",
    "MaxLate": "0",
    "Renewals": "1",
    "Forget": "0",
    "Punctual": "FALSE",
    "Drops": "FALSE",
    "Distinct": "FALSE",
}
LEASE_HOLDS = (
    "Exclusion",
    "StoreExclusion",
    "Agreed",
    "Ghosts",
    "DroppedEnds",
    "InOrder",
    "NoTwice",
)
SMALL = LEASE | {"Leases": "{1}", "Renewals": "0"}
READS = {"Modes": '{"exclusive", "shared"}'}
READERS = LEASE | READS
UPGRADES = SMALL | {"Modes": '{"shared", "update"}', "Conversions": "1"}
UPDATES = SMALL | {"Modes": '{"exclusive", "shared", "update"}', "Conversions": "2"}
SEMAPHORE = SMALL | {"Modes": '{"permits"}', "Permits": "{1, 2}", "Limit": "2"}
LATE = LEASE | {"MaxLate": "1"}
FORGETS = SMALL | {"Forget": "2"}
DROPS = SMALL | {"Drops": "TRUE", "MaxLate": "1"}
PUNCTUAL = LEASE | {"Punctual": "TRUE", "Margin": "1"}
NOTICE = ("NoticeFirst", "Exclusion")

REDLOCK = {
    "Clients": "{a, b}",
    "Servers": "{x, y, z}",
    "Lease": "1",
    "Drift": "0",
    "MaxTries": "1",
    "MaxLate": "0",
    "Losses": "0",
    "Delayed": "FALSE",
    "ClockTokens": "TRUE",
}
REDLOCK_HOLDS = ("Exclusion", "Agreed", "TokensRise", "Ghosts")
DRIFT = REDLOCK | {"Lease": "2", "Drift": "1"}
LOSS = REDLOCK | {"Losses": "1"}
AGAIN = REDLOCK | {"MaxTries": "2"}
LATE_VOTES = REDLOCK | {"MaxLate": "1"}

ZOOKEEPER = {
    "Clients": "{a, b}",
    "Timeout": "3",
    "Lag": "1",
    "Proven": "2",
    "Resumes": "TRUE",
    "Terminates": "FALSE",
    "MaxSessions": "1",
}
SQL = ZOOKEEPER | {"Resumes": "FALSE", "MaxSessions": "2"}
TERMINATED = ZOOKEEPER | {"Terminates": "TRUE"}
SESSION_HOLDS = ("Exclusion", "Agreed", "Ghosts", "OneNode", "Woken")

DOCUMENT = {
    "Clients": "{a, b}",
    "Lease": "2",
    "Offer": "1",
    "RollCall": "1",
    "MinHold": "0",
    "Modes": '{"exclusive"}',
    "Permits": "{1}",
    "Limit": "1",
    "Conversions": "0",
    "Collects": "FALSE",
    "Clock": "FALSE",
    "Uncertain": "0",
    "LateReplies": "FALSE",
    "MaxLate": "1",
}
DOCUMENT_HOLDS = ("Exclusion", "StoreExclusion", "Agreed", "Ghosts", "InOrder", "OneInPeriod")
DOCUMENT_CLOCK = DOCUMENT | {"Clock": "TRUE", "Uncertain": "1"}
LATE_REPLIES = DOCUMENT | {"LateReplies": "TRUE"}
# No write arrives after its sender has given up.
PROMPT = DOCUMENT | {"Lease": "1", "MaxLate": "0"}
DOCUMENT_READERS = PROMPT | READS
DOCUMENT_UPDATES = PROMPT | {"Modes": '{"shared", "update"}', "Conversions": "1"}
DOCUMENT_SEMAPHORE = PROMPT | {"Modes": '{"permits"}', "Permits": "{1, 2}", "Limit": "2"}
PERIODS = PROMPT | {"MinHold": "2"}
COLLECTED = PROMPT | {"MaxLate": "1", "Collects": "TRUE"}


def flawed(
    model: str, constants: dict[str, str], flaw: str, invariants: tuple[str, ...], *violated: str
) -> Check:
    """A check with a planted flaw."""
    return Check(f"{model}: {flaw}", model, constants | {"Flaw": flaw}, invariants, violated)


def unpromised(
    model: str, what: str, constants: dict[str, str], invariants: tuple[str, ...], *violated: str
) -> Check:
    """A check that shows what is not promised."""
    return Check(f"{model}: {what}", model, constants, invariants, violated)


def open_ended(name: str, model: str, constants: dict[str, str], *holds: str) -> Check:
    """A check that goes as far as the time does."""
    return Check(name, model, constants, holds, complete=False, long=True)


CHECKS = (
    Check("lease, small", "lease", SMALL, LEASE_HOLDS),
    Check("lease, forgotten waiters", "lease", FORGETS, LEASE_HOLDS),
    Check("lease, semaphore", "lease", SEMAPHORE, LEASE_HOLDS),
    Check("lease, updates", "lease", UPDATES, LEASE_HOLDS),
    Check("lease", "lease", LEASE, LEASE_HOLDS, complete=False),
    open_ended("lease, late requests", "lease", LATE, *LEASE_HOLDS),
    open_ended("lease, readers and writers", "lease", READERS, *LEASE_HOLDS),
    open_ended("lease, dropped when lost", "lease", DROPS, *LEASE_HOLDS),
    open_ended("lease, notice of loss", "lease", PUNCTUAL, *NOTICE),
    unpromised("lease", "no margin", PUNCTUAL | {"Margin": "0"}, NOTICE, "NoticeFirst"),
    flawed("lease", LATE, "no_tombstone", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LATE, "not_unsure", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LATE, "try_not_withdrawn", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LEASE, "from_reply", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", LEASE, "expires_early", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", LEASE, "release_unchecked", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", SMALL | READS | OF_THREE, "overtakes", LEASE_HOLDS, "InOrder"),
    flawed("lease", READERS, "reader_beside_writer", LEASE_HOLDS, "StoreExclusion"),
    flawed("lease", READERS, "writer_beside_readers", LEASE_HOLDS, "StoreExclusion"),
    flawed("lease", UPDATES, "two_updates", LEASE_HOLDS, "StoreExclusion"),
    flawed("lease", UPDATES, "upgrades_beside", LEASE_HOLDS, "StoreExclusion"),
    flawed("lease", UPGRADES | OF_THREE, "enters_upgrading", LEASE_HOLDS, "InOrder"),
    flawed(
        "lease", UPDATES | {"MaxLate": "1"}, "late_conversion", LEASE_HOLDS, "Exclusion", "Agreed"
    ),
    flawed("lease", SEMAPHORE, "permits_off_by_one", LEASE_HOLDS, "StoreExclusion"),
    Check("redlock", "redlock", REDLOCK, REDLOCK_HOLDS, complete=False),
    open_ended("redlock, drift", "redlock", DRIFT, *REDLOCK_HOLDS),
    open_ended("redlock, late requests", "redlock", LATE_VOTES, *REDLOCK_HOLDS),
    open_ended("redlock, two tries", "redlock", AGAIN, *REDLOCK_HOLDS),
    open_ended(
        "redlock, two tries and late requests", "redlock", AGAIN | {"MaxLate": "1"}, *REDLOCK_HOLDS
    ),
    # A server that has lost its data has no votes, so a holder may be left without a majority.
    open_ended(
        "redlock, delayed restart",
        "redlock",
        LOSS | {"Delayed": "TRUE"},
        *(name for name in REDLOCK_HOLDS if name != "Agreed"),
    ),
    unpromised("redlock", "restart without delay", LOSS, ("Exclusion",), "Exclusion"),
    unpromised("redlock", "first come, first served", REDLOCK, ("InOrder",), "InOrder"),
    flawed("redlock", REDLOCK, "minority", ("Exclusion",), "Exclusion"),
    flawed("redlock", REDLOCK, "from_reply", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", DRIFT, "no_drift", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", REDLOCK, "release_unchecked", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", AGAIN, "counts_undone", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", REDLOCK, "least_token", REDLOCK_HOLDS, "TokensRise"),
    flawed("redlock", LATE_VOTES, "no_tombstone", REDLOCK_HOLDS, "Ghosts"),
    Check("sessions, ZooKeeper", "sessions", ZOOKEEPER, SESSION_HOLDS),
    open_ended("sessions, SQL", "sessions", SQL, *SESSION_HOLDS),
    unpromised("sessions", "terminated", TERMINATED, SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "whole_timeout", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "from_reply", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "ping_proves", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "head_unchecked", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "creates_unread", SESSION_HOLDS, "OneNode"),
    flawed("sessions", ZOOKEEPER, "unknown_is_absent", SESSION_HOLDS, "Ghosts"),
    flawed("sessions", ZOOKEEPER, "no_recheck", SESSION_HOLDS, "Woken"),
    Check("document, prompt", "document", PROMPT, DOCUMENT_HOLDS),
    Check("document", "document", DOCUMENT, DOCUMENT_HOLDS, long=True),
    open_ended("document, late replies", "document", LATE_REPLIES, *DOCUMENT_HOLDS),
    open_ended("document, clock", "document", DOCUMENT_CLOCK, *DOCUMENT_HOLDS),
    Check("document, readers and writers", "document", DOCUMENT_READERS, DOCUMENT_HOLDS, long=True),
    open_ended("document, updates", "document", DOCUMENT_UPDATES, *DOCUMENT_HOLDS),
    Check("document, semaphore", "document", DOCUMENT_SEMAPHORE, DOCUMENT_HOLDS, long=True),
    open_ended("document, periods", "document", PERIODS, *DOCUMENT_HOLDS),
    Check("document, garbage collection", "document", COLLECTED, DOCUMENT_HOLDS, long=True),
    flawed("document", DOCUMENT, "kept_beat", DOCUMENT_HOLDS, "Exclusion", "Agreed"),
    flawed("document", DOCUMENT, "no_compare", DOCUMENT_HOLDS, "Exclusion", "Ghosts", "Agreed"),
    flawed("document", DOCUMENT, "release_not_written", DOCUMENT_HOLDS, "Ghosts"),
    flawed("document", DOCUMENT, "outrun_is_clear", DOCUMENT_HOLDS, "Ghosts"),
    flawed("document", LATE_REPLIES, "from_reply", DOCUMENT_HOLDS, "Exclusion", "Agreed"),
    flawed("document", DOCUMENT_CLOCK, "exact_time", DOCUMENT_HOLDS, "Exclusion", "Agreed"),
    flawed("document", PROMPT | READS | OF_THREE, "overtakes", DOCUMENT_HOLDS, "InOrder"),
    flawed("document", DOCUMENT_READERS, "writer_beside_readers", DOCUMENT_HOLDS, "Exclusion"),
    flawed("document", DOCUMENT_UPDATES, "upgrades_beside", DOCUMENT_HOLDS, "Exclusion"),
    flawed("document", DOCUMENT_SEMAPHORE, "permits_off_by_one", DOCUMENT_HOLDS, "Exclusion"),
    flawed("document", PERIODS, "release_ends_the_period", DOCUMENT_HOLDS, "OneInPeriod"),
    flawed("document", PERIODS, "lease_ends_the_period", DOCUMENT_HOLDS, "OneInPeriod"),
    flawed("document", COLLECTED, "collects_in_use", DOCUMENT_HOLDS, "Exclusion", "Agreed"),
    flawed("document", COLLECTED, "collects_early", DOCUMENT_HOLDS, "Ghosts"),
)


def three_clients(name: str, model: str, constants: dict[str, str], *holds: str) -> Check:
    """A check with three clients, as far as the time goes."""
    return open_ended(f"three clients, {name}", model, constants | OF_THREE, *holds)


THREE = (
    three_clients("lease", "lease", SMALL, *LEASE_HOLDS),
    three_clients("redlock", "redlock", REDLOCK, *REDLOCK_HOLDS),
    three_clients("sessions, ZooKeeper", "sessions", ZOOKEEPER, *SESSION_HOLDS),
    three_clients("sessions, SQL", "sessions", SQL, *SESSION_HOLDS),
    three_clients("document", "document", DOCUMENT, *DOCUMENT_HOLDS),
)


class Trace(NamedTuple):
    """How runs of the code are compared with a model."""

    model: str
    events: Callable[[int], list[dict[str, object]]]
    """The events of the run with a seed."""
    constants: dict[str, str]
    invariants: tuple[str, ...]
    instead: tuple[tuple[str, str], ...] = ()
    """What stands for definitions of the model."""


NAMES = '{"m0", "m1", "m2", "m3"}'
LEASE_TRACE = Trace(
    "trace_lease",
    partial(events_of, TracedScenario),
    LEASE
    | {
        "Clients": NAMES,
        "Leases": "{1}",
        "Offer": str(int(CONFIRM_WITHIN * TICKS)),
        "MaxLate": str(NEVER),
        "Renewals": str(NEVER),
        "Forget": str(int(FORGET_AFTER * TICKS)),
        "Distinct": "TRUE",
        "Flaw": "none",
    },
    ("Exclusion", "StoreExclusion", "Agreed", "Ghosts", "NoTwice"),
)
# The clocks of two clients run apart by less than a thousandth, those of the store's servers are
# apart by less than APART.
DOCUMENT_TRACE = Trace(
    "trace_document",
    partial(events_of, document_runs.TracedDocumentScenario),
    DOCUMENT
    | {
        "Clients": NAMES,
        "Lease": str(ticks(document_runs.LEASE)),
        "Offer": str(ticks(min(document_runs.LEASE, CONFIRM_WITHIN))),
        # The code asks by its own clock, and at other times, too: the choice `alive` covers both.
        "RollCall": str(document_runs.EVER),
        "LateReplies": "TRUE",
        "MaxLate": str(NEVER),
        "Early": str(ticks(document_runs.LEASE * RATE) + 2),
        "Apart": str(ticks(APART)),
        "Ever": str(document_runs.EVER),
        "Flaw": "none",
    },
    DOCUMENT_HOLDS,
    (("Said", "TraceSaid"), ("Stamps", "TraceStamps"), ("Choices", "TraceChoices")),
)
TRACES = {"lease": LEASE_TRACE, "document": DOCUMENT_TRACE}
