"""The wrapper is killed: the lock is free once the command has ended, and not before."""

from __future__ import annotations

import os
import signal
import time

from tests.cli.processes import LOOP, Shell, ended, gone, paced, until


def test_killed_wrapper_ends_the_command_and_frees_the_lock(shell: Shell) -> None:
    job = shell.job("a")
    waiter = shell.waiter("a")
    job.wrapper.kill()
    began = time.monotonic()
    assert ended(waiter) == 0
    assert gone(job.pid)
    # Not by the end of the lease, which is 30 seconds.
    assert time.monotonic() - began < 25.0


def test_pdeathsig_chooses_the_signal(shell: Shell) -> None:
    word = shell.folder / "word"
    trap = f"'echo > \"{word}\"; exit 0' USR1"
    job = shell.job("a", "--pdeathsig", "USR1", trap=trap, script=LOOP)
    job.wrapper.kill()
    until(lambda: gone(job.pid))
    assert word.exists()


def test_command_that_outlives_its_wrapper_keeps_the_lock(shell: Shell) -> None:
    job = shell.job("a", "--pdeathsig", "none", "--lease", paced(0.5))
    job.wrapper.kill()
    job.wrapper.wait()
    # Well beyond the lease, which is no longer renewed.
    assert shell.run("run", "-w", paced(1.0), "a", "true").returncode == 75
    waiter = shell.waiter("a")
    os.kill(job.pid, signal.SIGKILL)
    assert ended(waiter) == 0


def test_command_that_ignores_the_signal_keeps_the_lock(shell: Shell) -> None:
    # The command's own children count: the lock is free when the last of them has ended.
    job = shell.job("a", "--lease", paced(0.5), trap="'' TERM", script="sleep 60; sleep 60")
    job.wrapper.kill()
    job.wrapper.wait()
    assert shell.run("run", "-w", paced(1.0), "a", "true").returncode == 75
    waiter = shell.waiter("a")
    os.killpg(job.pid, signal.SIGKILL)
    assert ended(waiter) == 0


def test_lock_kept_by_a_surviving_command_can_be_broken(shell: Shell) -> None:
    job = shell.job("a", "--pdeathsig", "none")
    job.wrapper.kill()
    job.wrapper.wait()
    assert shell.run("break", "a", "--yes", "--message", "stuck").returncode == 0
    assert shell.run("run", "-n", "a", "true").returncode == 0
    assert not gone(job.pid)
