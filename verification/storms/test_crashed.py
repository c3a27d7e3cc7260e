"""A short run of the crashed holders, in memory, which needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.storms.crashed import main

if TYPE_CHECKING:
    import pytest


def test_gc_leaves_nothing_of_crashed_holders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--holders", "20", "memory"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "| memory | 20 | 20 | 20 | 0 |"
