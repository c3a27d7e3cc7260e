"""How a child process is polled for its end and for stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from leaselock._cli.child import Child


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


def until_dead(pid: int) -> None:
    """Wait until the process is a zombie, without reaping it."""
    waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


waitid = os.waitid


@pytest.mark.parametrize("stopped", [False, True])
def test_poll_of_a_child_that_dies_between_two_waitid_calls(
    sleeper: subprocess.Popen[bytes], stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux fails with ECHILD for a dead child when asked for stopped children alone."""
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
    assert child.poll() in {(False, 0), (True, 0)}
    assert child.poll() == (True, 0)
    monkeypatch.undo()
    assert child.reap() == -signal.SIGKILL
    sleeper.returncode = 0


def test_poll_reports_each_stop_once(sleeper: subprocess.Popen[bytes]) -> None:
    child = Child(sleeper.pid, None)
    assert child.poll() == (False, 0)
    os.kill(sleeper.pid, signal.SIGSTOP)
    waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert child.poll() == (False, signal.SIGSTOP)
    assert child.poll() == (False, 0)
    os.kill(sleeper.pid, signal.SIGKILL)
    until_dead(sleeper.pid)
    assert child.poll() == (True, 0)
    child.reap()
    sleeper.returncode = 0
