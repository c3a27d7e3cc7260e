"""actionlint accepts the hosted workflows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from testkit.servers.go_programs import go_program

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
MODULE, VERSION = "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"


def lint(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(go_program(MODULE, VERSION)), "-no-color", *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_workflows_are_understood() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) >= 3
    ran = lint(*workflows)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_workflow_with_an_unknown_key_is_not(tmp_path: Path) -> None:
    wrong = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    file = tmp_path / "ci.yml"
    file.write_text(wrong.replace("runs-on:", "run-on:"))
    assert lint(file).returncode == 1
