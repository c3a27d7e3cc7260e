"""The lease is lost or not renewed: the command ends before another client can get the lock."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import (
    LOOP,
    UNTIL,
    Shell,
    WrappedCommand,
    ended,
    gone,
    paced,
    said,
    stopped,
    until,
)
from tests.pace import pace

if TYPE_CHECKING:
    from collections.abc import Iterator

STUBBORN = "'' TERM"


def boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextmanager
def frozen(job: WrappedCommand, lease: float) -> Iterator[None]:
    """Stop the wrapper for the body, and until its lease has ended."""
    job.wrapper.send_signal(signal.SIGSTOP)
    until(lambda: stopped(job.wrapper.pid))
    began = time.monotonic()
    yield
    until(lambda: time.monotonic() - began > lease)
    job.wrapper.send_signal(signal.SIGCONT)


def break_lock(shell: Shell) -> None:
    """End the hold; its holder notices that at its next renewal, after a third of its lease."""
    assert shell.run("break", "a", "--yes", "--message", "test").returncode == 0


def test_wrapper_stopped_past_its_lease_ends_the_command(shell: Shell) -> None:
    lease = 0.8 * pace()
    job = shell.job("a", "--lease", f"{lease}s")
    with frozen(job, lease):
        pass
    code, errors = said(job.wrapper)
    assert code == 76
    assert gone(job.pid)
    assert f"leaselock: the lease on 'a' in {shell.url} is lost; ending the command\n" in errors


def test_wrapper_stopped_within_its_lease_continues(shell: Shell) -> None:
    job = shell.job("a", "--lease", "1m", trap="'exit 8' USR1", script=LOOP)
    job.wrapper.send_signal(signal.SIGSTOP)
    until(lambda: stopped(job.wrapper.pid))
    job.wrapper.send_signal(signal.SIGCONT)
    job.wrapper.send_signal(signal.SIGUSR1)
    assert ended(job.wrapper) == 8


def test_success_after_the_lease_ended_exits_76(shell: Shell) -> None:
    go, lease = shell.folder / "go", 0.8 * pace()
    job = shell.job("a", "--lease", f"{lease}s", script=f"{UNTIL.format(go=go)}; exit 0")
    with frozen(job, lease):
        go.touch()
        until(lambda: gone(job.pid))
    assert ended(job.wrapper) == 76


@pytest.fixture
def stuck(shell: Shell) -> Iterator[sqlite3.Connection]:
    """Return another connection; while its transaction is open, no renewal succeeds."""
    shell.run("ls")
    database = sqlite3.connect(shell.folder / "locks.db", isolation_level=None, timeout=10)
    yield database
    database.close()


@pytest.mark.timing
def test_failed_renewal_ends_the_command_before_the_lease_ends(
    shell: Shell, stuck: sqlite3.Connection
) -> None:
    job = shell.job("a", "--lease", "1500ms", "--op-timeout", "200ms", trap=STUBBORN, script=LOOP)
    stuck.execute("BEGIN IMMEDIATE")
    ((end_of_lease,),) = stuck.execute("SELECT expires FROM lock WHERE name = 'a'").fetchall()
    until(lambda: gone(job.pid))
    assert end_of_lease - 0.5 < boot_clock() < end_of_lease
    stuck.execute("ROLLBACK")
    code, errors = said(job.wrapper)
    assert code == 76
    assert "could not be renewed and is nearly over; ending the command" in errors


@pytest.mark.timing
def test_store_outage_shorter_than_the_lease_is_survived(
    shell: Shell, stuck: sqlite3.Connection
) -> None:
    word = shell.folder / "word"
    job = shell.job("a", "--lease", "3s", script=f"{UNTIL.format(go=word)}; exit 8")
    stuck.execute("BEGIN IMMEDIATE")
    began = boot_clock()
    until(lambda: boot_clock() - began > 1.3)  # past the first renewal
    stuck.execute("ROLLBACK")
    until(lambda: boot_clock() - began > 3.3)  # past the first lease
    word.write_text("")
    assert ended(job.wrapper) == 8


@pytest.mark.timing
def test_fixed_lease_ends_the_command_before_its_end(shell: Shell) -> None:
    job = shell.job("a", "--no-renew", "--lease", "3s", trap=STUBBORN, script=LOOP)
    taken = boot_clock()
    code, errors = said(job.wrapper)
    assert code == 76
    assert boot_clock() < taken + 3.0 + 0.3
    assert gone(job.pid)
    assert "the fixed lease on 'a' is nearly over; ending the command" in errors


def test_command_may_clean_up_on_the_signal(shell: Shell) -> None:
    word = shell.folder / "word"
    trap = f"'echo tidy > \"{word}\"; exit 0' TERM"
    job = shell.job("a", "--no-renew", "--lease", paced(1.5), trap=trap, script=LOOP)
    assert ended(job.wrapper) == 76
    assert word.read_text() == "tidy\n"


@pytest.mark.parametrize(("action", "signal_of_child"), [("INT", "INT"), ("sigusr2", "USR2")])
def test_on_lost_chooses_the_signal(shell: Shell, action: str, signal_of_child: str) -> None:
    word = shell.folder / "word"
    trap = f"'echo > \"{word}\"; exit 0' {signal_of_child}"
    job = shell.job("a", "--lease", "3s", "--on-lost", action, trap=trap, script=LOOP)
    break_lock(shell)
    assert ended(job.wrapper) == 76
    assert word.exists()


def test_ignored_loss_still_exits_76(shell: Shell) -> None:
    go, word = shell.folder / "go", shell.folder / "word"
    options = ("--no-renew", "--lease", paced(0.5), "--on-lost", "ignore")
    job = shell.job("a", *options, script=f'{UNTIL.format(go=go)}; echo > "{word}"; exit 0')
    assert job.wrapper.stderr is not None
    assert "the command goes on" in job.wrapper.stderr.readline()
    go.touch()
    assert ended(job.wrapper) == 76
    assert word.exists()


def test_broken_lock_ends_the_command(shell: Shell) -> None:
    job = shell.job("a", "--lease", "3s")
    break_lock(shell)
    assert ended(job.wrapper) == 76
    assert gone(job.pid)


def test_lock_broken_during_a_short_command_is_reported(shell: Shell) -> None:
    go = shell.folder / "go"
    job = shell.job("a", script=f"{UNTIL.format(go=go)}; exit 0")
    break_lock(shell)
    go.touch()
    code, errors = said(job.wrapper)
    assert code == 76
    assert "lost" in errors


def test_lost_lease_kills_the_whole_group(shell: Shell) -> None:
    file = shell.folder / "left"
    script = f"(trap '' TERM; sleep 60; true) & echo $! > \"{file}\"; wait"
    job = shell.job("a", "--lease", "3s", script=script)
    left = shell.pid_in(file)
    break_lock(shell)
    assert ended(job.wrapper) == 76
    until(lambda: gone(left))


def test_stopped_command_is_ended_too(shell: Shell) -> None:
    job = shell.job("a", "--lease", "3s")
    os.kill(job.pid, signal.SIGSTOP)
    break_lock(shell)
    assert ended(job.wrapper) == 76
