"""What TLC checks: the models, their constants, and the flaws that it must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from verification.simulation.document import APART, RATE
from verification.tla import document_runs
from verification.tla.projection import TICKS, events_of, ticks

from leaselock._core.rules import CONFIRM_WITHIN, FORGET_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = 1_000_000


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
    "MaxLate": "0",
    "Renewals": "1",
    "Forget": str(NEVER),
    "Punctual": "FALSE",
    "Drops": "FALSE",
    "Distinct": "FALSE",
}
LEASE_HOLDS = ("Exclusion", "StoreExclusion", "Agreed", "Ghosts", "DroppedEnds", "NoTwice")
SMALL = LEASE | {"Leases": "{1}", "Renewals": "0"}
READERS = LEASE | {"Modes": '{"exclusive", "shared"}'}
LATE = LEASE | {"MaxLate": "1"}
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
REDLOCK_HOLDS = ("Exclusion", "Agreed", "TokensRise")
DRIFT = REDLOCK | {"Lease": "2", "Drift": "1"}
LOSS = REDLOCK | {"Losses": "1"}
AGAIN = REDLOCK | {"MaxTries": "2"}

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
SESSION_HOLDS = ("Exclusion", "Agreed", "Ghosts", "OneNode", "Woken")

DOCUMENT = {
    "Clients": "{a, b}",
    "Lease": "2",
    "Offer": "1",
    "RollCall": "1",
    "Clock": "FALSE",
    "Uncertain": "0",
    "LateReplies": "FALSE",
    "MaxLate": "1",
}
DOCUMENT_HOLDS = ("Exclusion", "Ghosts")
DOCUMENT_CLOCK = DOCUMENT | {"Clock": "TRUE", "Uncertain": "1"}
LATE_REPLIES = DOCUMENT | {"LateReplies": "TRUE"}


def flawed(
    model: str, constants: dict[str, str], flaw: str, invariants: tuple[str, ...], *violated: str
) -> Check:
    """A check with a planted flaw."""
    return Check(f"{model}: {flaw}", model, constants | {"Flaw": flaw}, invariants, violated)


CHECKS = (
    Check("lease, small", "lease", SMALL, LEASE_HOLDS),
    Check("lease", "lease", LEASE, LEASE_HOLDS, complete=False),
    Check("lease, late requests", "lease", LATE, LEASE_HOLDS, complete=False, long=True),
    Check("lease, readers and writers", "lease", READERS, LEASE_HOLDS, complete=False, long=True),
    Check(
        "lease, dropped when lost",
        "lease",
        LATE | {"Drops": "TRUE"},
        LEASE_HOLDS,
        complete=False,
        long=True,
    ),
    Check("lease, notice of loss", "lease", PUNCTUAL, NOTICE, complete=False, long=True),
    flawed("lease", PUNCTUAL | {"Margin": "0"}, "none", NOTICE, "NoticeFirst"),
    flawed("lease", LATE, "no_tombstone", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LATE, "not_unsure", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LATE, "try_not_withdrawn", LEASE_HOLDS, "Ghosts"),
    flawed("lease", LEASE, "from_reply", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", LEASE, "expires_early", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", LEASE, "release_unchecked", LEASE_HOLDS, "Exclusion", "Agreed"),
    flawed("lease", READERS, "promotes_beside", LEASE_HOLDS, "StoreExclusion", "Exclusion"),
    flawed("lease", READERS, "writer_beside_readers", LEASE_HOLDS, "StoreExclusion", "Exclusion"),
    Check("redlock", "redlock", REDLOCK, REDLOCK_HOLDS, complete=False),
    Check("redlock, drift", "redlock", DRIFT, REDLOCK_HOLDS, complete=False, long=True),
    Check("redlock, two tries", "redlock", AGAIN, REDLOCK_HOLDS, complete=False, long=True),
    Check(
        "redlock, delayed restart",
        "redlock",
        LOSS | {"Delayed": "TRUE"},
        REDLOCK_HOLDS,
        complete=False,
        long=True,
    ),
    flawed("redlock", LOSS, "none", ("Exclusion",), "Exclusion"),
    flawed("redlock", REDLOCK, "none", ("InOrder",), "InOrder"),
    flawed("redlock", REDLOCK, "minority", ("Exclusion",), "Exclusion"),
    flawed("redlock", REDLOCK, "from_reply", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", DRIFT, "no_drift", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", REDLOCK, "release_unchecked", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    flawed("redlock", AGAIN, "counts_undone", REDLOCK_HOLDS, "Exclusion", "Agreed"),
    Check("sessions, ZooKeeper", "sessions", ZOOKEEPER, SESSION_HOLDS),
    Check("sessions, SQL", "sessions", SQL, SESSION_HOLDS, complete=False, long=True),
    flawed(
        "sessions", ZOOKEEPER | {"Terminates": "TRUE"}, "none", SESSION_HOLDS, "Exclusion", "Agreed"
    ),
    flawed("sessions", ZOOKEEPER, "whole_timeout", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "from_reply", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "ping_proves", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "head_unchecked", SESSION_HOLDS, "Exclusion", "Agreed"),
    flawed("sessions", ZOOKEEPER, "creates_unread", SESSION_HOLDS, "OneNode"),
    flawed("sessions", ZOOKEEPER, "unknown_is_absent", SESSION_HOLDS, "Ghosts"),
    flawed("sessions", ZOOKEEPER, "no_recheck", SESSION_HOLDS, "Woken"),
    Check("document", "document", DOCUMENT, DOCUMENT_HOLDS, complete=False),
    Check(
        "document, late replies",
        "document",
        LATE_REPLIES,
        DOCUMENT_HOLDS,
        complete=False,
        long=True,
    ),
    Check("document, clock", "document", DOCUMENT_CLOCK, DOCUMENT_HOLDS, complete=False, long=True),
    flawed("document", DOCUMENT, "kept_beat", DOCUMENT_HOLDS, "Exclusion"),
    flawed("document", DOCUMENT, "no_compare", DOCUMENT_HOLDS, "Exclusion", "Ghosts"),
    flawed("document", DOCUMENT, "release_not_written", DOCUMENT_HOLDS, "Ghosts"),
    flawed("document", LATE_REPLIES, "from_reply", DOCUMENT_HOLDS, "Exclusion"),
    flawed("document", DOCUMENT_CLOCK, "exact_time", DOCUMENT_HOLDS, "Exclusion"),
)


def three_clients(name: str, model: str, constants: dict[str, str], *holds: str) -> Check:
    """A check with three clients, as far as the time goes."""
    of_three = constants | {"Clients": "{a, b, c}"}
    return Check(f"three clients, {name}", model, of_three, holds, complete=False, long=True)


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
    events_of,
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
    document_runs.document_events,
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
