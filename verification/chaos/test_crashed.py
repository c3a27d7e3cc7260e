"""A short run of the crashed holders, in memory, which needs no server."""

from __future__ import annotations

import pytest
from verification.chaos.crashed import main

pytestmark = pytest.mark.long


def test_gc_leaves_nothing_of_crashed_holders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--holders", "20", "memory"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:3] == ["memory", "20", "20"]
    assert cells[5:] == ["20", "0"]
