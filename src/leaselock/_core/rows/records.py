"""Checking the rows of holds and claims before `rules` decide by them.

Other programs may write to a store, and it may be damaged. A number that is text, or a mode that is
unknown, would end a request for another lock, or grant what is taken. So each row is checked when
it is read, and one that cannot be read ends only the requests for its own lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar, cast

from leaselock._core.contract.backend import COMPATIBLE_MODES, Claim, HoldRecord, Unreadable
from leaselock._core.rows.rules import COOLING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Record = TypeVar("Record", HoldRecord, Claim)
# A time in seconds, on any store's clock, or a length of time: below the year 10000.
LATEST = 2.6e11
# Tokens and counts: what all stores can store, with room for the next ones.
GREATEST = 2**63 - 2**32
LIFETIMES = ("either", "lease", "client", "cooling")
TIMED = ("either", "lease", "cooling")
# As much as is shown of a value.
SHOWN = 60
CLIENTS = re.compile(r"[0-9A-Za-z_.-]+")
SURROGATES = re.compile("[\ud800-\udfff]")


def is_text(value: object) -> bool:
    """Whether it is a text; one with bytes that are not UTF-8 has surrogates instead of them."""
    return type(value) is str and (value.isascii() or SURROGATES.search(value) is None)


def readable_text(value: object) -> str:
    """The text to show, with escapes for bytes that are not UTF-8."""
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()


def is_time(value: object) -> bool:
    """Whether it is a number of seconds."""
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < LATEST


def is_duration(value: object) -> bool:
    """Whether it is a length of time in seconds."""
    return is_time(value) and cast("float", value) >= 0.0


def is_count(value: object) -> bool:
    """Whether it is a whole number that may be a token or a count."""
    return type(value) is int and 0 <= value < GREATEST


CLAIM: Mapping[str, Callable[[object], bool]] = {
    "id": is_text,
    "client": lambda value: type(value) is str and CLIENTS.fullmatch(value) is not None,
    "metadata": is_text,
    "since": is_time,
    "mode": lambda value: type(value) is str and value in COMPATIBLE_MODES,
    "permits": lambda value: is_count(value) and value != 0,
}
QUEUED = {**CLAIM, "lease": is_duration, "last_seen": is_time}
HELD = {
    **CLAIM,
    "lifetime": lambda value: value in LIFETIMES,
    "token": is_count,
    "expires": is_time,
    "step": is_count,
    "free_from": is_time,
}


def checked(record: Record, where: str, removal: str) -> Record:
    """The record of a hold or a claim; Unreadable if a field has no value that it may have. *where*
    says in which row it is, and *removal* how to remove that.
    """
    for field, is_valid in (HELD if "token" in record._fields else QUEUED).items():
        value = getattr(record, field)
        if not is_valid(value):
            raise unreadable(where, f"{field} is {value!r:.{SHOWN}}", removal)
    if record.id.removeprefix(COOLING).rpartition(":")[0] != record.client:
        # Whether a hold lasts may depend on its client.
        clients = f"its client is {record.client!r:.{SHOWN}}, and its id {record.id!r:.{SHOWN}}"
        raise unreadable(where, clients, removal)
    return record


def certainly_ended(hold: HoldRecord, now: float) -> bool:
    """Whether the lease of a hold that cannot be read has ended all the same. Nothing else keeps
    it, so it may be removed.
    """
    ends = (hold.expires, hold.free_from)
    timed = cast("object", hold.lifetime) in TIMED
    return timed and all(map(is_time, ends)) and max(ends) <= now


def unreadable(where: str, why: str, removal: str) -> Unreadable:
    """The error for a row that cannot be read."""
    return Unreadable(f"{where} cannot be read: {why}. To remove it: {removal}")
