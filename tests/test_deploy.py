"""The deployment examples: systemd accepts the units, and the lines of the crontab run with the
environment that cron gives them. verification/containers runs the others as they are deployed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import program
from testkit.servers.redis import Redis
from testkit.servers.rights import channels, commands, keys

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

FOLDER = Path(__file__).parents[1] / "examples" / "deploy"
SOURCE = Path(leaselock.__file__).parents[1]
LEASELOCK = [sys.executable, "-m", "leaselock"]


@pytest.fixture
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


def test_the_user_of_compose_has_the_rights_of_the_page() -> None:
    lines = (FOLDER / "compose.yaml").read_text("utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("#   user locks on "))
    every_lock = [key.replace("~lock:orders:", "~lock:") for key in keys()]
    words = [">$PASSWORD", *every_lock, *channels(), *commands()]
    assert line.split()[4:] == words


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


def test_the_command_of_the_unit_is_understood(redis: Redis, tmp_path: Path) -> None:
    (unit,) = (
        line.removeprefix("ExecStart=/usr/local/bin/")
        for line in (FOLDER / "report.service").read_text("utf-8").splitlines()
        if line.startswith("ExecStart=")
    )
    words = unit.split()
    words = [*words[: words.index("--") + 1], "true"]
    assert start(words, redis.url, tmp_path / "output").wait(60) == 0


def test_the_lines_of_the_crontab_run_as_cron_runs_them(redis: Redis, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(redis.url)
    lines = (FOLDER / "crontab").read_text("utf-8").splitlines()
    # The programs that are not installed here, and the file.
    here = {
        "/usr/local/bin/leaselock": shlex.join([str(Path(sys.executable).with_name("leaselock"))]),
        "/usr/local/bin/": "echo ran ",
        "/etc/leaselock/url": str(tmp_path / "url"),
    }
    env = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "HOME": str(tmp_path), "LOGNAME": "me"}
    printed = []
    for line in lines:
        for named, present in here.items():
            line = line.replace(named, present)
        if re.match(r"\w+=", line):
            name, _, value = line.partition("=")
            env[name] = value
        elif line and not line.startswith("#"):
            command = ["/bin/sh", "-c", line.split(maxsplit=5)[5]]
            ran = subprocess.run(
                command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert (ran.returncode, ran.stderr) == (0, "")
            printed.append(ran.stdout)
    assert printed == ["ran report.sh\n", "ran import\n"]
