"""What people are shown of a lock: who holds it, who waits, in numbers and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.core.backend import Busy, Claim, HoldRecord, LockState

ESCAPED = {code: f"\\u{code:04x}" for code in range(0x20)} | {0x22: '\\"', 0x5C: "\\\\"}
ENDLESS = float("inf")


class Holder(NamedTuple):
    """Who holds a lock, or waits for it.

    *since* is Unix time, by the clock of the machine that wrote it. *token* is the fencing token of
    the grant, None for one who waits. *remaining* is seconds until the lease ends; None where it
    does not end by time, or nothing is held. *version* is that of leaselock there; None for another
    library, or one that does not say.
    """

    host: str
    pid: int
    thread: str
    since: float
    label: str | None
    token: int | None
    remaining: float | None
    version: str | None = None

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        text = f"{self.host}, process {self.pid}, {self.thread}{label}"
        # Messages have it, and are logged: what could forge a line there is made visible.
        return text if text.isprintable() else text.encode("unicode_escape").decode()


class LockInfo(NamedTuple):
    """One lock that is held or waited for; *waiters* are in order."""

    name: str
    holder: Holder | None
    waiters: tuple[Holder, ...]


def quoted(text: str | None) -> str:
    """A text as JSON has it."""
    return "null" if text is None else f'"{text.translate(ESCAPED)}"'


def holder_of(held: HoldRecord | None, remaining: float | None) -> Holder | None:
    """The holder that a hold on record names."""
    if held is None:
        return None
    ends = remaining is not None and abs(remaining) < ENDLESS
    return _about(held.metadata, held.since, held.token, remaining if ends else None)


def waiter_of(claim: Claim) -> Holder:
    """The waiter that a queued claim names."""
    return _about(claim.metadata, claim.since, None, None)


def report_of(sight: LockState) -> LockInfo:
    """What people see of one lock."""
    waiters = tuple(waiter_of(claim) for claim in sight.waiting)
    return LockInfo(sight.name, holder_of(sight.held, sight.remaining), waiters)


def reports_of(sights: Sequence[LockState]) -> list[LockInfo]:
    """What people see of many locks."""
    return [report_of(sight) for sight in sights]


def _about(text: str, since: float, token: int | None, remaining: float | None) -> Holder:
    import json  # only where somebody is told, for it takes its time to load

    # Written by other programs, of other versions: nothing in it is taken for granted.
    if not abs(since) < ENDLESS:  # also true for NaN
        since = 0.0
    try:
        words = json.loads(text)
        host, pid, thread = str(words["host"]), int(words["pid"]), str(words["thread"])
        label, version = _text(words.get("label")), _text(words.get("version"))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        host, pid, thread = "unknown host", 0, f"described as {text!r:.80}"
        label = version = None
    return Holder(host, pid, thread, since, label, token, remaining, version)


def _text(word: object) -> str | None:
    return None if word is None else str(word)


def busy_message(name: str, busy: Busy, timeout: float | None, wall: float) -> str:
    """Why a lock could not be had, and who has it."""
    waited = "" if timeout is None else f" within {timeout:g} s"
    holder = holder_of(busy.held, None)
    if holder is None:
        return f"{name!r} could not be had{waited}"
    ago = max(0.0, wall - holder.since)
    return f"{name!r} could not be had{waited}: held by {holder} for {ago:.1f} s"
