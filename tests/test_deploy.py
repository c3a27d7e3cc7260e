"""The deployment examples: systemd accepts the units, and cron's line runs. verification/containers
runs the others as they are deployed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import program
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

FOLDER = Path(__file__).parents[1] / "examples" / "deploy"
SOURCE = Path(leaselock.__file__).parents[1]
LEASELOCK = [sys.executable, "-m", "leaselock"]


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def start(words: list[str], url: str, output: Path) -> subprocess.Popen[bytes]:
    """Start a command of an example, with the programs of this machine."""
    assert words[0] == "leaselock"
    command = [*LEASELOCK, *words[1:]]
    env = {**os.environ, "LEASELOCK_URL": url, "PYTHONPATH": str(SOURCE)}
    with open(output, "ab") as file:
        return subprocess.Popen(command, cwd=FOLDER, env=env, stdout=file, stderr=file)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in ("report.service", "report.timer"):
        text = (FOLDER / unit).read_text("utf-8")
        # The programs that are not installed here.
        for missing in ("/usr/local/bin/leaselock", "/usr/local/bin/report.sh"):
            text = text.replace(missing, "/bin/true")
        (tmp_path / unit).write_text(text)
    ran = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(tmp_path / "report.timer")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_commands_of_cron_and_systemd_are_understood(redis: Redis, tmp_path: Path) -> None:
    (line,) = (
        line for line in (FOLDER / "crontab").read_text("utf-8").splitlines() if "run" in line
    )
    (unit,) = (
        line.removeprefix("ExecStart=/usr/local/bin/")
        for line in (FOLDER / "report.service").read_text("utf-8").splitlines()
        if line.startswith("ExecStart=")
    )
    for command in (line.split(maxsplit=5)[5], unit):
        words = command.replace('"', "").split()
        words = [*words[: words.index("--") + 1], "true"]
        assert start(words, redis.url, tmp_path / "output").wait(60) == 0
