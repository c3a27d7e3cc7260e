"""Processes that wait for one lock are killed at random; the program of this folder runs more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from verification.chaos.terminated import Grant, judged, run

if TYPE_CHECKING:
    from pathlib import Path


def test_killed_waiters_and_holders(tmp_path: Path) -> None:
    result = run(20, tmp_path, seed=1)
    assert result.violations == []
    assert result.grants >= 20


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (Grant(2, 29, 1, 40), "2 was granted 0.000 ms before 1 ended"),
        (Grant(1, 30, 1, 40), "token 1 was granted after 1"),
    ],
)
def test_a_violation_is_found(second: Grant, words: str) -> None:
    held, killed = Grant(1, 10, 0, None), [(0, 30), (1, 50)]
    assert judged([held, second], killed).violations == [words]
    released = Grant(1, 10, 0, 30)
    assert judged([released, second], killed).violations == [words]
    assert judged([held, Grant(2, 30, 1, 40)], killed).holders == [0]
