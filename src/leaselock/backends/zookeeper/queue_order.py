"""The order of the queue, from the names of its nodes. Pure.

A contender is a child of the lock's node with the name ``<owner><mark><sequence>``. ZooKeeper
appends the sequence. The lowest one holds the lock; every other watches the one before it.

Three formats are understood:

    kazoo's Lock                 3f2a…9c__lock__0000000007
    Curator's InterProcessMutex  _c_5a77…-lock-0000000007   (without protection: lock-0000000007)
    this library                 either, as the URL says

The sequence is a signed 32-bit integer that overflows from 2147483647 to -2147483648. Two of them
are compared by their distance around the circle, never as texts (hazard I4). Contenders of the
same time are much closer to each other than half of the circle.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KAZOO = "__lock__"
CURATOR = "-lock-"
# The server formats it with "%010d": a negative number has ten digits, or nine from -999999999 on.
SEQUENCE = "(?P<sequence>-?[0-9]{10}|-[0-9]{9})"
CONTENDER = re.compile(rf"(?P<owner>.*?)(?P<mark>__lock__|-lock-|^lock-){SEQUENCE}")
CIRCLE = 2**32
HALF = 2**31


class Entry(NamedTuple):
    """One node of the queue, which holds or waits."""

    node: str
    owner: str
    mark: str
    sequence: int


class Position(NamedTuple):
    """The position of one owner in the queue."""

    own: Entry
    first: Entry
    ahead: Entry | None
    """The node to watch; None when the own node is the first."""


@lru_cache(4096)
def entry(node: str) -> Entry | None:
    """The entry with the name *node*; None for a node that is not one."""
    match = CONTENDER.fullmatch(node)
    if match is None:
        return None
    mark = CURATOR if match["mark"] == "lock-" else match["mark"]
    return Entry(node, match["owner"], mark, int(match["sequence"]))


def distance(origin: int, sequence: int) -> int:
    """How far *sequence* is after *origin*, the shorter way around; negative if it is before."""
    return (sequence - origin + HALF) % CIRCLE - HALF


def in_order(nodes: Iterable[str]) -> list[Entry]:
    """The entries among *nodes*, the holder first."""
    found = [one for node in nodes if (one := entry(node)) is not None]
    if not found:
        return []
    origin = found[0].sequence
    return sorted(found, key=lambda one: distance(origin, one.sequence))


def entries_of(nodes: Iterable[str], owner: str) -> list[Entry]:
    """The entries of *owner*, of all its attempts: at most one, as a rule."""
    return [one for one in in_order(nodes) if f"{one.owner}.".startswith(f"{owner}.")]


def position(nodes: Sequence[str], owner: str) -> Position | None:
    """The position of *owner*; None when it is not in the queue."""
    queue = [one for node in nodes if (one := entry(node)) is not None]
    own = [one for one in queue if one.owner == owner]
    if not own:
        return None
    # Without sorting, because every contender of a long queue does this.
    distances = [(distance(own[0].sequence, one.sequence), one) for one in queue]
    mine = min((far, one) for far, one in distances if one.owner == owner)
    before = [other for other in distances if other < mine]
    if not before:
        return Position(mine[1], mine[1], None)
    return Position(mine[1], min(before)[1], max(before)[1])


def incompatible(nodes: Iterable[str], mark: str) -> Entry | None:
    """An entry of a program that ignores nodes with our *mark*.

    Curator cuts a name after "lock-" and sorts a name without it behind all others, so it never
    waits for a node of kazoo's format. kazoo's Lock can be configured to respect Curator's.
    """
    if mark != KAZOO:
        return None
    return next((one for one in in_order(nodes) if one.mark == CURATOR), None)
