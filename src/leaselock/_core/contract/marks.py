"""What a store notes about the hold of some permits, at the beginning of its metadata.

    {"slots": [0, 2], "free_from": 1763793503.25, "host": …

`slots` are the numbers of the permits. The client writes an empty list into the claim. The request
that grants the claim, or that confirms its grant, fills in the lowest numbers that are free.
`free_from` is until when the permits stay taken, on the store's clock.

Every store keeps the metadata of a hold as it is. So neither needs a column or a layout of its own,
and a program of an earlier version, which knows neither, leaves both as they are: if it grants such
a claim, its client confirms the grant, and it is numbered then.
"""

from __future__ import annotations

import re
from itertools import count, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# How many permits a numbered semaphore has at most: each holder stores the numbers that it has.
MOST_SLOTS = 1000

_MARKS = re.compile(
    r'\{(?:"slots": \[((?:\d{1,9}(?:, \d{1,9})*)?)\], )?(?:"free_from": (\d{1,12}\.\d{1,6}), )?'
)


def slots_of(metadata: str) -> tuple[int, ...] | None:
    """The numbers of the permits; empty if they are yet to be numbered, None if they never are."""
    match = _MARKS.match(metadata)
    if match is None or match[1] is None:
        return None
    return tuple(map(int, match[1].split(", "))) if match[1] else ()


def free_from_of(metadata: object) -> float:
    """Until when the permits stay taken; 0 if that is not noted, or if it is no metadata at all."""
    match = _MARKS.match(metadata) if isinstance(metadata, str) else None
    return float(match[2]) if match is not None and match[2] else 0.0


def with_marks(metadata: str, slots: Sequence[int] | None, free_from: float = 0.0) -> str:
    """The metadata with these marks instead of those that it has; what is no metadata stays."""
    match = _MARKS.match(metadata)
    if match is None:
        return metadata
    marks = "" if slots is None else f'"slots": [{", ".join(map(str, slots))}], '
    marks += f'"free_from": {free_from:.6f}, ' if free_from else ""
    return "{" + marks + metadata[match.end() :]


def numbered_claim(metadata: str, permits: int) -> str:
    """The metadata of a claim whose *permits* are to be numbered."""
    if permits > MOST_SLOTS:
        raise ValueError(f"at most {MOST_SLOTS} permits can be numbered, not {permits}")
    return with_marks(metadata, ())


def lowest_free(taken: Iterable[int], permits: int) -> tuple[int, ...]:
    """The lowest numbers, from 0 on, that are not taken."""
    known = set(taken)
    return tuple(islice((number for number in count() if number not in known), permits))
