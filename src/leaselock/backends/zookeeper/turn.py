"""Whose turn it is: the queue as the names of its nodes tell it. Pure.

A contender is a child of the lock's node, called ``<owner><mark><sequence>``, where the sequence
is what ZooKeeper appends. The lowest one holds the lock; every other watches the one before it.

Three ways of writing it are understood:

    kazoo's Lock                 3f2a…9c__lock__0000000007
    Curator's InterProcessMutex  _c_5a77…-lock-0000000007   (without protection: lock-0000000007)
    ours                         either, as the URL says

The sequence is a signed number of 32 bits that begins anew below zero after 2147483647. So two
are compared by their distance round the circle, never as texts (hazard I4): whoever queue at the
same time are much nearer to each other than half of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KAZOO = "__lock__"
CURATOR = "-lock-"
# The server writes it by "%010d": with a sign there are ten digits, or nine from -999999999 on.
SEQUENCE = "(?P<sequence>-?[0-9]{10}|-[0-9]{9})"
CONTENDER = re.compile(rf"(?P<owner>.*?)(?P<mark>__lock__|-lock-|^lock-){SEQUENCE}")
CIRCLE = 2**32
HALF = 2**31


class Contender(NamedTuple):
    """One who holds or waits."""

    node: str
    owner: str
    mark: str
    sequence: int


class Turn(NamedTuple):
    """What the queue means for one contender."""

    mine: Contender
    first: Contender
    ahead: Contender | None
    """Whom to watch; None when it is our turn."""


@lru_cache(4096)
def contender(node: str) -> Contender | None:
    """The contender that a node is; None for another kind of node."""
    match = CONTENDER.fullmatch(node)
    if match is None:
        return None
    mark = CURATOR if match["mark"] == "lock-" else match["mark"]
    return Contender(node, match["owner"], mark, int(match["sequence"]))


def distance(origin: int, sequence: int) -> int:
    """How far *sequence* comes after *origin* (before it, if negative), the shorter way round."""
    return (sequence - origin + HALF) % CIRCLE - HALF


def in_order(nodes: Iterable[str]) -> list[Contender]:
    """The contenders among *nodes*, the holder first."""
    found = [one for node in nodes if (one := contender(node)) is not None]
    if not found:
        return []
    origin = found[0].sequence
    return sorted(found, key=lambda one: distance(origin, one.sequence))


def owned(nodes: Iterable[str], owner: str) -> list[Contender]:
    """What *owner* has in the queue, at whichever time it entered: nothing or one, as a rule."""
    return [one for one in in_order(nodes) if f"{one.owner}.".startswith(f"{owner}.")]


def turn(nodes: Sequence[str], owner: str) -> Turn | None:
    """Who holds, and whom *owner* must watch; None when it does not queue."""
    queue = [one for node in nodes if (one := contender(node)) is not None]
    ours = [one for one in queue if one.owner == owner]
    if not ours:
        return None
    # Without sorting: in a long queue everybody does this.
    after = [(distance(ours[0].sequence, one.sequence), one) for one in queue]
    mine = min((far, one) for far, one in after if one.owner == owner)
    before = [place for place in after if place < mine]
    if not before:
        return Turn(mine[1], mine[1], None)
    return Turn(mine[1], min(before)[1], max(before)[1])


def stranger(nodes: Iterable[str], mark: str) -> Contender | None:
    """One who queues and does not see nodes with our *mark*.

    Curator cuts a name after "lock-" and takes one without it for the last in the queue, so it
    never waits for a node of kazoo's kind. kazoo's Lock can be told to see Curator's.
    """
    if mark != KAZOO:
        return None
    return next((one for one in in_order(nodes) if one.mark == CURATOR), None)
