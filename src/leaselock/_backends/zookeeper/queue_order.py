"""The order of the queue, from the names of its nodes. Pure.

A contender is a child of the lock's node with the name ``<owner><mark><sequence>``. ZooKeeper
appends the sequence. A contender holds the lock when no contender before it conflicts with it;
otherwise it watches the nearest one that does.

Formats that are understood, by the mode of a contender:

    kazoo     exclusive  3f2a…9c__lock__0000000007          Lock, WriteLock
              shared     3f2a…9c__rlock__0000000007         ReadLock
              update     3f2a…9c.update__rlock__0000000007  kazoo takes it for a reader
    Curator   exclusive  _c_5a77…-lock-0000000007           InterProcessMutex
              exclusive  _c_5a77…-__WRIT__0000000007        InterProcessReadWriteLock
              shared     _c_5a77…-__READ__0000000007

Curator's names may lack the part before the mark. This library writes either format, as the URL
says. ?extra_lock_patterns= adds those of other programs, as kazoo's argument of that name does.

An upgrade is a second node of the update contender: ``<owner>__lock__<its own sequence>``, created
without a number from the server. To all contenders behind it is a writer.

The sequence is a signed 32-bit integer that overflows from 2147483647 to -2147483648. Two of them
are compared by their distance around the circle, never as texts (hazard I4). Contenders of the
same time are much closer to each other than half of the circle.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.contract.backend import COMPATIBLE_MODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock._core.contract.backend import Claim, Mode

KAZOO, KAZOO_READ = "__lock__", "__rlock__"
CURATOR, CURATOR_READ, CURATOR_WRITE = "-lock-", "-__READ__", "-__WRIT__"
UPDATE = ".update"
# The server formats it with "%010d": a negative number has ten digits, or nine from -999999999 on.
SEQUENCE = "(?P<sequence>-?[0-9]{10}|-[0-9]{9})"
MARKS = (KAZOO, CURATOR, "^lock-", KAZOO_READ, CURATOR_READ, CURATOR_WRITE, "__READ__", "__WRIT__")
# The marks of names without a dash before them.
FULL = {"lock-": CURATOR, "__READ__": CURATOR_READ, "__WRIT__": CURATOR_WRITE}
SHARED = (KAZOO_READ, CURATOR_READ)
SIDES = (CURATOR_READ, CURATOR_WRITE)
# The programs that create these never wait for a node of ours with the mark on the left.
IGNORED_BY = {KAZOO: (CURATOR, *SIDES), KAZOO_READ: (CURATOR, *SIDES), CURATOR: SIDES}
IGNORED_BY |= dict.fromkeys(SIDES, (CURATOR, KAZOO, KAZOO_READ))
CIRCLE = 2**32
HALF = 2**31


def contender_pattern(extra: Iterable[str] = ()) -> re.Pattern[str]:
    """The pattern of contenders' names; ValueError for an *extra* one that is no pattern."""
    for one in extra:
        try:
            re.compile(one)
        except re.error as error:
            raise ValueError(
                f"a list of patterns: {one!r} is no pattern of names: {error}"
            ) from None
    marks = "|".join((*MARKS, *extra))
    return re.compile(rf"(?P<owner>.*?)(?P<mark>{marks}){SEQUENCE}")


CONTENDER = contender_pattern()


class Entry(NamedTuple):
    """One node of the queue, which holds or waits."""

    node: str
    owner: str
    mark: str
    sequence: int
    mode: Mode = "exclusive"

    @property
    def digits(self) -> str:
        """The sequence as the server wrote it."""
        return f"{self.sequence:010d}"


class Position(NamedTuple):
    """The position of one owner in the queue."""

    entry: Entry
    first: Entry
    ahead: Entry | None
    """The nearest one before that conflicts, which is the node to watch; None when it holds."""
    others: int
    """How many of the children are no contenders."""
    upgrades: bool = False
    """The node ahead is the upgrade of an update contender."""
    holds: int = 1
    """How many hold, as far as the names tell."""

    @property
    def is_next(self) -> bool:
        """Whether it holds as soon as the node ahead is deleted, without listing again."""
        return self.ahead == self.first and self.first.mode != "update"


@lru_cache(4096)
def entry(node: str, pattern: re.Pattern[str] = CONTENDER) -> Entry | None:
    """The entry with the name *node*; None for a node that is not one."""
    match = pattern.fullmatch(node)
    if match is None:
        return None
    owner, mark = match["owner"], FULL.get(match["mark"], match["mark"])
    mode: Mode = "shared" if mark in SHARED else "exclusive"
    if mark == KAZOO_READ and owner.endswith(UPDATE):
        owner, mode = owner.removesuffix(UPDATE), "update"
    return Entry(node, owner, mark, int(match["sequence"]), mode)


def own_mark(claim: Claim, mark: str) -> str:
    """The mark of a claim's node, where *mark* is that of exclusive locks."""
    if mark == CURATOR and claim.of_rwlock:
        return CURATOR_READ if claim.mode == "shared" else CURATOR_WRITE
    return mark if claim.mode == "exclusive" else KAZOO_READ


def name_of(owner: str, mode: Mode, mark: str) -> str:
    """The name of a contender's node, without its sequence."""
    return f"{owner}{UPDATE if mode == 'update' else ''}{mark}"


def distance(origin: int, sequence: int) -> int:
    """How far *sequence* is after *origin*, the shorter way around; negative if it is before."""
    return (sequence - origin + HALF) % CIRCLE - HALF


def in_order(nodes: Iterable[str], pattern: re.Pattern[str] = CONTENDER) -> list[Entry]:
    """The entries among *nodes*, the holder first."""
    entries = [one for node in nodes if (one := entry(node, pattern)) is not None]
    if not entries:
        return []
    origin = entries[0].sequence
    return sorted(entries, key=lambda one: distance(origin, one.sequence))


def entries_of(nodes: Iterable[str], owner: str) -> list[Entry]:
    """The entries of *owner*, of all its attempts: at most one, as a rule."""
    return [one for one in in_order(nodes) if f"{one.owner}.".startswith(f"{owner}.")]


def position_of(
    nodes: Sequence[str], owner: str, pattern: re.Pattern[str] = CONTENDER
) -> Position | None:
    """The position of *owner*; None when it is not in the queue."""
    queue = [one for node in nodes if (one := entry(node, pattern)) is not None]
    attempts = [one for one in queue if one.owner == owner]
    if not attempts:
        return None
    others = len(nodes) - len(queue)
    # Without sorting, because every contender of a long queue does this.
    distances = [(distance(attempts[0].sequence, one.sequence), one) for one in queue]
    mine = min((far, one) for far, one in distances if one.owner == owner)
    before = [other for other in distances if other < mine]
    if not before:
        return Position(mine[1], mine[1], None, others)
    beside, first = COMPATIBLE_MODES[mine[1].mode], min(before)[1]
    holds = 1 if first.mode == "exclusive" else count_holds([one for _, one in sorted(before)])
    if not beside:
        return Position(mine[1], first, max(before)[1], others, holds=holds)
    ahead = max((one for one in before if one[1].mode not in beside), default=(0, None))[1]
    upgrades = any(
        ahead is not None and one.owner == ahead.owner and one.mode == "update" for _, one in before
    )
    upgrades = upgrades and ahead is not None and ahead.mode == "exclusive"
    return Position(mine[1], first, ahead, others, upgrades, holds)


def count_holds(queue: Sequence[Entry]) -> int:
    """How many of a queue in order hold, as far as the names tell: an upgrade may still wait."""
    closed = next((n for n, one in enumerate(queue) if one.mode == "exclusive"), len(queue))
    updates = sum(one.mode == "update" for one in queue[:closed])
    return max(1, closed - max(0, updates - 1))


def conflicting(nodes: Iterable[str], mode: Mode, pattern: re.Pattern[str]) -> bool:
    """Whether a new contender of that mode would have to wait."""
    beside = COMPATIBLE_MODES[mode]
    entries = (entry(node, pattern) for node in nodes)
    return any(one is not None and one.mode not in beside for one in entries)


def incompatible(nodes: Iterable[str], mark: str) -> Entry | None:
    """An entry of a program that ignores nodes with our *mark*.

    Curator cuts a name after "lock-" and sorts a name without it behind all others, so it never
    waits for a node of kazoo's format; its mutex and its read-write lock wait for nodes of their
    own kind only. kazoo's Lock can be configured to respect Curator's mutex.
    """
    return next((one for one in in_order(nodes) if one.mark in IGNORED_BY[mark]), None)
