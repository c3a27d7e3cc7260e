"""The wrapper is killed: the lock is free once the command has ended, and not before."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial

from tests.cli.processes import LOOP, Shell, ended, gone, paced, stopped, until


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


def test_the_processes_that_keep_the_lock_are_named(shell: Shell) -> None:
    """Nobody is told that the lock can be broken: its job goes on."""
    job = shell.job("a", "--pdeathsig", "none")
    job.wrapper.kill()
    job.wrapper.wait()
    shown = shell.run("show", "a").stdout
    assert f"still at work: process {job.pid} (" in shown
    assert "cannot release it" not in shown
    assert "(gone, its command goes on)" in shell.run("ls").stdout
    assert shell.run("ls", "--stale").stdout.count("\n") <= 1
    (lock,) = json.loads(shell.run("ls", "--json").stdout)["locks"]
    assert lock["holder"]["descendants"] == [job.pid]
    assert lock["holder"]["gone"] is False
    doctor = shell.run("doctor")
    assert f"is kept by processes that it has started: {job.pid}" in doctor.stdout
    os.kill(job.pid, signal.SIGKILL)
    assert shell.run("run", "-w", "60", "a", "true").returncode == 0
    assert shell.run("show", "a").stdout == "a: free\n"


def test_a_stopped_wrapper_holds_until_its_lease_ends(shell: Shell) -> None:
    """Whether another one waits already, or asks later."""
    first = shell.job("a", "--lease", paced(0.5))
    second = shell.job("b", "--lease", paced(0.5))
    waiter = shell.waiter("a")
    for job in (first, second):
        job.wrapper.send_signal(signal.SIGSTOP)
        until(partial(stopped, job.wrapper.pid))
    assert ended(waiter) == 0
    assert shell.run("run", "-w", "60", "b", "true").returncode == 0
    for job in (first, second):
        assert not gone(job.pid)
        job.wrapper.send_signal(signal.SIGCONT)
        assert ended(job.wrapper) == 76
        assert gone(job.pid)


def test_a_wrapper_that_is_killed_while_it_is_stopped_leaves_the_lock_to_its_command(
    shell: Shell,
) -> None:
    job = shell.job("a", "--lease", paced(0.5), "--pdeathsig", "none")
    job.wrapper.send_signal(signal.SIGSTOP)
    until(lambda: stopped(job.wrapper.pid))
    job.wrapper.kill()
    job.wrapper.wait()
    assert shell.run("run", "-w", paced(1.0), "a", "true").returncode == 75
    os.kill(job.pid, signal.SIGKILL)
    assert shell.run("run", "-w", "60", "a", "true").returncode == 0
