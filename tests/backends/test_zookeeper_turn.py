"""Whose turn it is, by enumeration: all orders of small queues, all round the circle of numbers."""

from __future__ import annotations

import itertools

import pytest

from leaselock.backends.zookeeper.queue_order import (
    CURATOR,
    HALF,
    KAZOO,
    contender,
    distance,
    in_order,
    owned,
    stranger,
    turn,
)

LAST = 2**31 - 1
STARTS = (0, 7, LAST - 2, LAST, -LAST - 1, -2, -1)
OWNERS = ("3f2a" * 8, "_c_5a77", "c0ffee-12", "lock-er")


def written(owner: str, mark: str, sequence: int) -> str:
    """As ZooKeeper's server writes it: %010d of a signed number of 32 bits."""
    signed = (sequence + HALF) % 2**32 - HALF
    return f"{owner}{mark}{signed:010d}"


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("marks", list(itertools.product((KAZOO, CURATOR), repeat=4)))
def test_every_order_in_which_a_list_may_come(start: int, marks: tuple[str, ...]) -> None:
    queue = [written(OWNERS[n], marks[n], start + n) for n in range(4)]
    for listed in itertools.permutations(queue):
        found = in_order([*listed, "config", "lock", "__lock__", "x-0000000001"])
        assert [one.node for one in found] == queue
        for place, owner in enumerate(OWNERS):
            mine = turn(listed, owner)
            assert mine is not None
            assert (mine.mine.node, mine.first.node) == (queue[place], queue[0])
            ahead = mine.ahead.node if mine.ahead else None
            assert ahead == (queue[place - 1] if place else None)


@pytest.mark.parametrize("present", list(itertools.product((False, True), repeat=4)))
def test_every_queue_from_which_some_have_gone(present: tuple[bool, ...]) -> None:
    """Exactly one holds, and each of the others watches one whom nobody else watches."""
    queue = [written(OWNERS[n], KAZOO, LAST - 1 + n) for n in range(4) if present[n]]
    turns = [turn(queue, owner) for owner in OWNERS]
    assert [t is not None for t in turns] == list(present)
    living = [t for t in turns if t is not None]
    assert sum(t.ahead is None for t in living) == bool(living)
    watched = [t.ahead.node for t in living if t.ahead]
    assert len(set(watched)) == len(watched)


def test_the_numbers_of_a_queue_begin_anew_below_zero() -> None:
    before, after = written("a", KAZOO, LAST), written("b", KAZOO, LAST + 1)
    assert (before[-10:], after[-11:]) == ("2147483647", "-2147483648")
    assert distance(LAST, -LAST - 1) == 1
    waiting = turn([after, before], "b")
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
def test_what_a_contender_is(node: str, owner: str, mark: str, sequence: int) -> None:
    found = contender(node)
    assert found is not None
    assert (found.owner, found.mark, found.sequence) == (owner, mark, sequence)


@pytest.mark.parametrize(
    "node", ["", "lock-", "__lock__", "a__lock__123", "a__rlock__0000000001", "-lock-00000000x1"]
)
def test_what_is_none(node: str) -> None:
    assert contender(node) is None
    assert in_order([node]) == []
    assert turn([node], "a") is None


def test_whose_nodes_are_found_again() -> None:
    queue = [written("a-1.1", KAZOO, 5), written("a-12", KAZOO, 4), written("a-1", KAZOO, 3)]
    assert [one.sequence for one in owned(queue, "a-1")] == [3, 5]


def test_curator_does_not_see_nodes_of_kazoo_s_kind() -> None:
    foreign = written("_c_1", CURATOR, 2)
    queue = [written("a", KAZOO, 1), foreign]
    found = stranger(queue, KAZOO)
    assert found is not None
    assert found.node == foreign
    assert stranger(queue[:1], KAZOO) is None
    assert stranger(queue, CURATOR) is None
