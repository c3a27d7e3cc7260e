"""`scripts/audit` does not pass when it has audited nothing."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "audit"
AUDITED = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
VULNERABLE = {"name": "c", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}


def script() -> Any:
    spec = spec_from_loader("audit", SourceFileLoader("audit", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("packages", "exits", "said"),
    [
        ([AUDITED, SKIPPED], 0, "2 packages, 1 of them audited, 0 known"),
        ([VULNERABLE, SKIPPED], 1, "c 1: X-1, mended in 2"),
        ([SKIPPED, SKIPPED], 2, "nothing was audited: not found"),
        ([], 2, "nothing was audited"),
    ],
    ids=["some", "vulnerable", "none was found", "none is there"],
)
def test_what_was_audited_decides(
    packages: list[dict[str, Any]], exits: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script().told(packages) == exits
    assert said in "".join(capsys.readouterr())


def test_no_answer_of_the_database_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert script().not_audited("no answer") == 2
    assert "no answer" in capsys.readouterr().err
