"""This tree beside three states of it before the first release, whose layouts had no numbers yet,
or the same number and other columns: they exclude each other, or the store is refused.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from verification.releases.two_releases import LIMIT, Release

import leaselock

if TYPE_CHECKING:
    from testkit.servers.postgres import Postgres

pytestmark = [pytest.mark.nightly, pytest.mark.heavy]

REPOSITORY = Path(__file__).parents[2]
# Before the markers were compared by one rule (abe364e4), after it, and before columns were renamed
# (2773d9c3).
COMMITS = ("e1ca1960", "1491daa6", "2773d9c3^")
OK, UNMET, BUSY, CONFIG = 0, 1, 75, 78
PATIENT = ("--op-timeout", "60s")


@pytest.fixture(params=COMMITS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    """That state of the package."""
    command = ["git", "-C", str(REPOSITORY), "archive", request.param, "src"]
    archived = subprocess.run(command, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip("no history of the repository")
    folder = tmp_path / "old"
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archived.stdout, check=True)
    return Release(request.param, folder / "src")


@pytest.fixture
def new() -> Release:
    return Release(leaselock.__version__, Path(leaselock.__file__).parents[1])


def take(release: Release, url: str) -> subprocess.CompletedProcess[str]:
    return release.run("run", "--url", url, *PATIENT, "-w", "60s", "a", "--", "true")


def refused(release: Release, url: str, words: str) -> None:
    """It says why, and what to do; doctor fails, and setup changes nothing."""
    for ran in (take(release, url), release.run("setup", url, *PATIENT)):
        assert (ran.returncode, words in ran.stderr) == (CONFIG, True), ran
    doctor = release.run("doctor", url, *PATIENT)
    assert (doctor.returncode, words in doctor.stdout) == (UNMET, True), doctor


def test_a_file(old: Release, new: Release, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    assert take(old, url).returncode == OK
    refused(new, url, "move the file away")
    assert take(old, url).returncode == OK


def test_tables(old: Release, new: Release, postgres_server: Postgres) -> None:
    postgres_server.query("DROP DATABASE IF EXISTS old")
    postgres_server.query("CREATE DATABASE old")
    url = postgres_server.url.removesuffix("postgres") + "old"
    assert old.run("setup", url, *PATIENT).returncode == OK
    assert take(old, url).returncode == OK
    refused(new, url, "drop its tables")
    assert take(old, url).returncode == OK


def test_redis(old: Release, new: Release) -> None:
    """No format has changed since: they exclude each other."""
    with Redis() as server:
        for holder, other in ((old, new), (new, old)):
            words = ("run", "--url", server.url, *PATIENT, "a", "--", "sh", "-c", "echo; cat")
            holding = subprocess.Popen(
                holder.command(*words),
                env=holder.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert holding.stdout is not None
            assert holding.stdout.readline() == "\n"
            tried = other.run("run", "--url", server.url, *PATIENT, "-n", "a", "--", "true")
            assert tried.returncode == BUSY, tried
            holding.communicate(timeout=LIMIT)
            assert take(other, server.url).returncode == OK
