"""The order of the queue, by enumeration: all orders of small queues, all around the circle."""

from __future__ import annotations

import itertools

import pytest

from leaselock.backends.zookeeper.queue_order import (
    CURATOR,
    HALF,
    KAZOO,
    distance,
    entries_of,
    entry,
    in_order,
    incompatible,
    position,
)

LAST = 2**31 - 1
STARTS = (0, 7, LAST - 2, LAST, -LAST - 1, -2, -1)
OWNERS = ("3f2a" * 8, "_c_5a77", "c0ffee-12", "lock-er")


def written(owner: str, mark: str, sequence: int) -> str:
    """A name as ZooKeeper's server formats it: %010d of a signed 32-bit integer."""
    signed = (sequence + HALF) % 2**32 - HALF
    return f"{owner}{mark}{signed:010d}"


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("marks", list(itertools.product((KAZOO, CURATOR), repeat=4)))
def test_position_in_every_order_of_the_list(start: int, marks: tuple[str, ...]) -> None:
    queue = [written(OWNERS[n], marks[n], start + n) for n in range(4)]
    for listed in itertools.permutations(queue):
        ordered = in_order([*listed, "config", "lock", "__lock__", "x-0000000001"])
        assert [one.node for one in ordered] == queue
        for index, owner in enumerate(OWNERS):
            found = position(listed, owner)
            assert found is not None
            assert (found.own.node, found.first.node) == (queue[index], queue[0])
            ahead = found.ahead.node if found.ahead else None
            assert ahead == (queue[index - 1] if index else None)


@pytest.mark.parametrize("present", list(itertools.product((False, True), repeat=4)))
def test_every_queue_after_some_have_left(present: tuple[bool, ...]) -> None:
    """One contender holds, and each of the others watches a different node."""
    queue = [written(OWNERS[n], KAZOO, LAST - 1 + n) for n in range(4) if present[n]]
    positions = [position(queue, owner) for owner in OWNERS]
    assert [one is not None for one in positions] == list(present)
    found = [one for one in positions if one is not None]
    assert sum(one.ahead is None for one in found) == bool(found)
    watched = [one.ahead.node for one in found if one.ahead]
    assert len(set(watched)) == len(watched)


def test_the_sequence_overflows_to_a_negative_number() -> None:
    before, after = written("a", KAZOO, LAST), written("b", KAZOO, LAST + 1)
    assert (before[-10:], after[-11:]) == ("2147483647", "-2147483648")
    assert distance(LAST, -LAST - 1) == 1
    waiting = position([after, before], "b")
    assert waiting is not None
    assert waiting.ahead is not None
    assert waiting.ahead.node == before


@pytest.mark.parametrize(
    ("node", "owner", "mark", "sequence"),
    [
        ("0a1b__lock__0000000003", "0a1b", KAZOO, 3),
        ("_c_0a-1b-lock-0000000003", "_c_0a-1b", CURATOR, 3),
        ("lock-0000000003", "", CURATOR, 3),
        ("x-lock--2147483648", "x", CURATOR, -LAST - 1),
        ("x__lock__-1000000000", "x", KAZOO, -(10**9)),
        ("x__lock__-999999999", "x", KAZOO, 1 - 10**9),
        ("x-lock--000000001", "x", CURATOR, -1),
        ("a-lock-b__lock__0000000001", "a-lock-b", KAZOO, 1),
    ],
)
def test_names_of_entries(node: str, owner: str, mark: str, sequence: int) -> None:
    found = entry(node)
    assert found is not None
    assert (found.owner, found.mark, found.sequence) == (owner, mark, sequence)


@pytest.mark.parametrize(
    "node", ["", "lock-", "__lock__", "a__lock__123", "a__rlock__0000000001", "-lock-00000000x1"]
)
def test_names_of_other_nodes(node: str) -> None:
    assert entry(node) is None
    assert in_order([node]) == []
    assert position([node], "a") is None


def test_the_entries_of_an_owner_include_those_of_later_attempts() -> None:
    queue = [written("a-1.1", KAZOO, 5), written("a-12", KAZOO, 4), written("a-1", KAZOO, 3)]
    assert [one.sequence for one in entries_of(queue, "a-1")] == [3, 5]


def test_curator_ignores_nodes_of_kazoo_s_format() -> None:
    foreign = written("_c_1", CURATOR, 2)
    queue = [written("a", KAZOO, 1), foreign]
    found = incompatible(queue, KAZOO)
    assert found is not None
    assert found.node == foreign
    assert incompatible(queue[:1], KAZOO) is None
    assert incompatible(queue, CURATOR) is None
