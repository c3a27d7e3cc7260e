"""The measure of the checker plants what it says, and nothing else."""

from __future__ import annotations

import pytest
from verification.chaos.sensitivity import found, parts, planted, successions

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import FOREVER, Event, Record, lock_id

pytestmark = pytest.mark.long

HOLDS, LENGTH, GAP = 50, 1000, 400
ALWAYS = 1


def history(holds: int = HOLDS) -> list[Record]:
    """Two processes in turns; each asks while the other holds."""
    records = []
    for n in range(holds):
        began = n * (LENGTH + GAP)
        events = (
            (began - LENGTH, Event.ACQUIRING, FOREVER),
            (began, Event.GRANTED, 0),
            (began + LENGTH, Event.RELEASING, 0),
            (began + LENGTH + 1, Event.RELEASED, 0),
        )
        for ts, event, aux in events:
            token = n + 1 if event is Event.GRANTED else None
            ident, pid = n + 1, n % 2 + 1
            records.append(Record(ts, event, lock_id("a"), ident, pid, 0, 0, token, aux))
    return records


@pytest.mark.parametrize(("early", "is_found"), [(0, False), (GAP - 1, False), (GAP + 1, True)])
def test_an_overlap_is_found_if_it_is_longer_than_the_gap(early: int, is_found: bool) -> None:
    assert found(history(), ALWAYS, early, seed=1) is is_found


def test_nothing_moves_before_the_hold_that_it_overlaps_nor_before_its_request() -> None:
    records = history()
    chosen = list(successions(History.of(records)))
    assert len(chosen) == HOLDS - 1
    for lock in History.of(planted(records, chosen[:1], 10 * LENGTH)).locks.values():
        first, second = lock.grants()[:2]
        assert (first.granted or 0) < (second.granted or 0)
        assert second.began < (second.granted or 0)


def test_parts_have_whole_holds() -> None:
    pieces = list(parts(history(), 10))
    assert [len(check(History.of(piece)).violations) for piece in pieces] == [0] * len(pieces)
    assert len(pieces) == HOLDS // 10
