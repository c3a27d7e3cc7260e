"""The wrapper is killed: the lock passes on when the command is gone, and not before."""

from __future__ import annotations

import os
import signal
import time

from tests.cli.processes import LOOP, Shell, gone, until


def test_the_command_dies_with_its_wrapper_and_frees_the_lock(shell: Shell) -> None:
    job = shell.job("a")
    waiter = shell.waiter("a")
    job.wrapper.kill()
    began = time.monotonic()
    assert waiter.wait(10) == 0
    assert gone(job.pid)
    assert time.monotonic() - began < 1.0


def test_another_signal_can_be_chosen_for_that(shell: Shell) -> None:
    word = shell.folder / "word"
    trap = f"'echo > \"{word}\"; exit 0' USR1"
    job = shell.job("a", "--pdeathsig", "USR1", trap=trap, script=LOOP)
    job.wrapper.kill()
    until(lambda: gone(job.pid))
    assert word.exists()


def test_the_lock_stays_with_a_command_that_outlives_its_wrapper(shell: Shell) -> None:
    job = shell.job("a", "--pdeathsig", "none", "--ttl", "500ms")
    job.wrapper.kill()
    job.wrapper.wait()
    # Well beyond the lease, which nobody renews.
    assert shell.run("run", "-w", "1.2s", "a", "true").returncode == 75
    waiter = shell.waiter("a")
    os.kill(job.pid, signal.SIGKILL)
    assert waiter.wait(1.0) == 0


def test_the_lock_stays_with_a_command_that_does_not_listen(shell: Shell) -> None:
    # Its own children, too, are the command: the lock is free when the last one is gone.
    job = shell.job("a", "--ttl", "500ms", trap="'' TERM", script="sleep 60; sleep 60")
    job.wrapper.kill()
    job.wrapper.wait()
    assert shell.run("run", "-w", "1.2s", "a", "true").returncode == 75
    waiter = shell.waiter("a")
    os.killpg(job.pid, signal.SIGKILL)
    assert waiter.wait(1.0) == 0


def test_a_lock_that_outlived_its_wrapper_can_be_broken(shell: Shell) -> None:
    job = shell.job("a", "--pdeathsig", "none")
    job.wrapper.kill()
    job.wrapper.wait()
    assert shell.run("break", "a", "--yes", "--reason", "stuck").returncode == 0
    assert shell.run("run", "-n", "a", "true").returncode == 0
    assert not gone(job.pid)
