"""The order of the queue, by enumeration: all orders of small queues, all around the circle."""

from __future__ import annotations

import itertools

import pytest
from verification.models.sides import claim_of

from leaselock._backends.zookeeper.queue_order import (
    CONTENDER,
    CURATOR,
    CURATOR_READ,
    CURATOR_WRITE,
    HALF,
    KAZOO,
    KAZOO_READ,
    conflicting,
    contender_pattern,
    distance,
    entries_of,
    entry,
    in_order,
    incompatible,
    own_mark,
    position_of,
)
from leaselock._backends.zookeeper.requests import AT_ONCE, in_parts

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
            found = position_of(listed, owner)
            assert found is not None
            assert (found.entry.node, found.first.node) == (queue[index], queue[0])
            ahead = found.ahead.node if found.ahead else None
            assert ahead == (queue[index - 1] if index else None)


@pytest.mark.parametrize("present", list(itertools.product((False, True), repeat=4)))
def test_every_queue_after_some_have_left(present: tuple[bool, ...]) -> None:
    """One contender holds, and each of the others watches a different node."""
    queue = [written(OWNERS[n], KAZOO, LAST - 1 + n) for n in range(4) if present[n]]
    positions = [position_of(queue, owner) for owner in OWNERS]
    assert [one is not None for one in positions] == list(present)
    found = [one for one in positions if one is not None]
    assert sum(one.ahead is None for one in found) == bool(found)
    watched = [one.ahead.node for one in found if one.ahead]
    assert len(set(watched)) == len(watched)


def test_the_sequence_overflows_to_a_negative_number() -> None:
    before, after = written("a", KAZOO, LAST), written("b", KAZOO, LAST + 1)
    assert (before[-10:], after[-11:]) == ("2147483647", "-2147483648")
    assert distance(LAST, -LAST - 1) == 1
    waiting = position_of([after, before], "b")
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
    "node", ["", "lock-", "__lock__", "a__lock__123", "a__mine__0000000001", "-lock-00000000x1"]
)
def test_names_of_other_nodes(node: str) -> None:
    assert entry(node) is None
    assert in_order([node]) == []
    assert position_of([node], "a") is None


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


@pytest.mark.parametrize("mark", ["__rlock__", "__READ__", "__WRIT__"])
def test_entries_of_read_write_locks_count(mark: str) -> None:
    ahead = written("r", mark, 1)
    place = position_of([written("a", KAZOO, 2), ahead], "a")
    assert place is not None
    assert place.ahead is not None
    assert place.ahead.node == ahead
    # kazoo's waits for ours, Curator's does not.
    for ours in (KAZOO, CURATOR):
        assert (incompatible([ahead], ours) is None) == (mark == "__rlock__")


def test_extra_patterns_add_entries() -> None:
    pattern = contender_pattern(("__mine__", "-[ab]-"))
    for node in ("x__mine__0000000001", "x-b-0000000001", "x__lock__0000000001"):
        assert [one.node for one in in_order([node], pattern)] == [node]
    assert in_order(["x__mine__0000000001"]) == []
    with pytest.raises(ValueError, match="is no pattern of names"):
        contender_pattern(("(",))


READERS = [
    written("a", KAZOO_READ, 1),
    written("b.update", KAZOO_READ, 2),
    written("c", KAZOO_READ, 3),
    written("d", KAZOO, 4),
    written("e", KAZOO_READ, 5),
    written("f.update", KAZOO_READ, 6),
]


@pytest.mark.parametrize(
    ("owner", "mode", "ahead", "holds"),
    [
        ("a", "shared", None, 1),
        ("b", "update", None, 1),
        ("c", "shared", None, 2),
        ("d", "exclusive", 2, 3),
        ("e", "shared", 3, 3),
        ("f", "update", 3, 3),
    ],
)
def test_modes_wait_for_the_nearest_that_conflicts(
    owner: str, mode: str, ahead: int | None, holds: int
) -> None:
    for listed in itertools.permutations(READERS):
        place = position_of(listed, owner)
        assert place is not None
        assert place.entry.mode == mode
        assert (place.ahead and place.ahead.node) == (READERS[ahead] if ahead is not None else None)
        assert (place.upgrades, place.is_next) == (False, False)
        assert ahead is None or place.holds == holds


def test_how_many_hold_before_a_contender() -> None:
    """Two updates do not hold at once, and a writer holds alone."""
    second, last = written("u.update", KAZOO_READ, 3), written("w", KAZOO, 4)
    for queue, holds in (
        ([last], 1),
        ([READERS[3], written("w", KAZOO, 5)], 1),
        ([*READERS[:2], last], 2),
        ([*READERS[:2], second, last], 2),
    ):
        place = position_of(queue, "w")
        assert place is not None
        assert place.holds == holds


def test_an_update_waits_for_an_update() -> None:
    place = position_of([READERS[1], READERS[5]], "f")
    assert place is not None
    assert place.ahead is not None
    assert (place.ahead.owner, place.is_next) == ("b", False)


def test_all_behind_an_upgrade_wait_for_it() -> None:
    upgrade = written("b", KAZOO, 2)
    queue = [*READERS[:3], upgrade]
    for listed in itertools.permutations(queue):
        place = position_of(listed, "c")
        assert place is not None
        assert place.ahead is not None
        assert (place.ahead.node, place.upgrades) == (upgrade, True)
        before, own = position_of(listed, "a"), position_of(listed, "b")
        assert before is not None
        assert own is not None
        assert (before.ahead, own.ahead, own.entry.mode) == (None, None, "update")


def test_a_try_looks_only_for_what_conflicts() -> None:
    readers = READERS[:3]
    assert not conflicting(readers, "shared", CONTENDER)
    assert conflicting(readers, "update", CONTENDER)
    assert conflicting(readers, "exclusive", CONTENDER)
    assert not conflicting(readers[:1], "update", CONTENDER)


def test_the_sides_of_curator_ignore_all_other_formats() -> None:
    queue = [written("a", CURATOR_READ, 1), written("b", CURATOR_WRITE, 2)]
    place = position_of(queue, "b")
    assert place is not None
    assert place.ahead is not None
    assert (place.ahead.mode, place.entry.mode) == ("shared", "exclusive")
    assert incompatible(queue, CURATOR_WRITE) is None
    for mark in (KAZOO, KAZOO_READ, CURATOR):
        assert incompatible([*queue, written("c", mark, 3)], CURATOR_READ) is not None


def test_the_mark_of_a_claim_follows_from_its_mode_and_the_names() -> None:
    claim = claim_of("0" * 32, "a", 1, 4.0)
    reader = claim._replace(mode="shared")
    assert own_mark(claim, KAZOO) == KAZOO
    assert own_mark(reader, KAZOO) == KAZOO_READ
    assert own_mark(claim, CURATOR) == CURATOR
    assert own_mark(claim._replace(of_rwlock=True), CURATOR) == CURATOR_WRITE
    assert own_mark(reader._replace(of_rwlock=True), CURATOR) == CURATOR_READ


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 20_000])
def test_names_are_inspected_in_parts(count: int) -> None:
    """One batch is answered as a whole, within one deadline, and other requests wait for it."""
    names = [f"lock {number}" for number in range(count)]
    parts = list(in_parts(names))
    assert [name for part in parts for name in part] == names
    assert all(0 < len(part) <= AT_ONCE for part in parts)
