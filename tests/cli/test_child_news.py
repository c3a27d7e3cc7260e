"""What happens to the command between two looks at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from leaselock.cli.child import Child


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


def until_dead(pid: int) -> None:
    """Wait until it is a zombie, and leave it one."""
    waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


waitid = os.waitid


@pytest.mark.parametrize("stopped", [False, True])
def test_a_command_that_ends_while_it_is_looked_at(
    sleeper: subprocess.Popen[bytes], stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux knows no child that is dead when it is asked for stopped ones alone."""
    child = Child(sleeper.pid, None)
    if stopped:
        os.kill(sleeper.pid, signal.SIGSTOP)
        waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)

    def late(kind: int, pid: int, wanted: int) -> Any:
        answer = None if not wanted & os.WEXITED else waitid(kind, pid, wanted)
        os.kill(sleeper.pid, signal.SIGKILL)
        until_dead(sleeper.pid)
        return answer if wanted & os.WEXITED else waitid(kind, pid, wanted)

    monkeypatch.setattr(os, "waitid", late)
    assert child.news() in {(False, 0), (True, 0)}
    assert child.news() == (True, 0)
    monkeypatch.undo()
    assert child.reap() == 128 + signal.SIGKILL
    sleeper.returncode = 0


def test_a_stop_is_news_once(sleeper: subprocess.Popen[bytes]) -> None:
    child = Child(sleeper.pid, None)
    assert child.news() == (False, 0)
    os.kill(sleeper.pid, signal.SIGSTOP)
    waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert child.news() == (False, signal.SIGSTOP)
    assert child.news() == (False, 0)
    os.kill(sleeper.pid, signal.SIGKILL)
    until_dead(sleeper.pid)
    assert child.news() == (True, 0)
    child.reap()
    sleeper.returncode = 0
