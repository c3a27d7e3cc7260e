"""The hosted workflows: actionlint accepts them, and their actions are pinned."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from testkit.servers.go_programs import go_program

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))
MODULE, VERSION = "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"


def lint(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(go_program(MODULE, VERSION)), "-no-color", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_actions_are_pinned_by_hash() -> None:
    used = [line for file in WORKFLOWS for line in file.read_text("utf-8").split("uses: ")[1:]]
    assert len(used) > 10
    pinned = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d")
    assert [line.partition("\n")[0] for line in used if not pinned.match(line)] == []


@pytest.mark.nightly
def test_the_workflows_are_understood() -> None:
    ran = lint(*WORKFLOWS)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.nightly
def test_a_workflow_with_an_unknown_key_is_not(tmp_path: Path) -> None:
    wrong = WORKFLOWS[0].read_text("utf-8")
    file = tmp_path / "ci.yml"
    file.write_text(wrong.replace("runs-on:", "run-on:"))
    assert lint(file).returncode == 1
