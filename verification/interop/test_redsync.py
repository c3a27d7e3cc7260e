"""redsync (Go), node-redlock and `protocol="string"` contend for one lock."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.foreign import KINDS, build, environment, missing
from tests.pace import pace
from verification.interop.contest import (
    HOLD,
    LONGEST,
    TURNS,
    all_ready,
    check_exclusion,
    contender,
    counts,
    ended,
    finished,
    longest_absence,
    turns,
)

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

pytestmark = pytest.mark.nightly

LIBRARIES = {"go": "redsync", "node": "node-redlock"}
OURS = ["threads", "asyncio"] * 2
THEIRS = 4


@pytest.fixture(params=LIBRARIES)
def kind(request: pytest.FixtureRequest) -> str:
    """A language, whose program is built."""
    kind: str = request.param
    if tools := missing(kind):
        pytest.skip(f"no server: {LIBRARIES[kind]} has to be built: {', '.join(tools)} is missing")
    assert build(kind) == ""
    return kind


def foreign_contender(kind: str, settings: Path, name: str, file: Path) -> subprocess.Popen[str]:
    """Start a program of benchmarks/foreign, which takes its turns and ends."""
    process = subprocess.Popen(
        [*KINDS[kind].run, f"lock:{name}", str(settings)],
        cwd=file.parent,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(f"turns {TURNS} {HOLD / 1000} {file.name}\n")
    process.stdin.close()
    return process


def test_many_clients_of_both_never_hold_at_once_and_all_are_served(
    kind: str, server: Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library, url = LIBRARIES[kind], f"{server.url}?protocol=string"
    ours = [f"{driver} {number}" for number, driver in enumerate(OURS)]
    theirs = [f"{library}-{number}" for number in range(THEIRS)]
    folder, settings = tmp_path / "turns", tmp_path / "settings"
    folder.mkdir()
    settings.mkdir()
    Path(settings, "url").write_text(server.url)
    processes: list[subprocess.Popen[Any]] = []
    with ended(processes):
        with leaselock.Client(url) as client, client.lock("contended"):
            processes.extend(
                contender(file.split()[0], url, "contended", folder / file) for file in ours
            )
            processes.extend(
                foreign_contender(kind, settings, "contended", folder / file) for file in theirs
            )
            all_ready(folder, len(processes), processes)
        finished(processes)
    found = turns(folder)
    check_exclusion(found)
    assert counts(found) == dict.fromkeys([*ours, *theirs], TURNS)
    waits = {name: longest_absence(found, name) for name in [*ours, *theirs, library]}
    with capsys.disabled():
        for name, seconds in waits.items():
            print(f"\n{name}: longest wait {seconds:.2f} s", end="")
    assert max(waits[name] for name in [*ours, library]) < LONGEST * pace(), waits
