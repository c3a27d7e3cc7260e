"""Signals: what is passed on, what ends a wait, and what the command is left with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.cli.processes import LEASELOCK, LOOP, Shell, gone, stopped, until

SHOW_IGNORED = (
    "import signal as s; print([n.name for n in s.Signals if s.getsignal(n) == s.SIG_IGN])"
)


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
def test_signals_reach_the_command(shell: Shell, name: str) -> None:
    job = shell.job("a", trap=f"'exit 9' {name}", script=LOOP)
    job.wrapper.send_signal(getattr(signal, f"SIG{name}"))
    assert job.wrapper.wait(10) == 9


def test_any_number_of_descriptors_may_be_inherited(shell: Shell) -> None:
    """select() knows no more than 1,024 of them."""
    program = f"""
import os, resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
for number in range(3, 1100):
    os.dup2(0, number)
os.execv({LEASELOCK[0]!r}, {[*LEASELOCK, "run", "a", "--", "sh", "-c", "exit 7"]!r})
"""
    done = subprocess.run([sys.executable, "-c", program], env=shell.env, check=False)
    assert done.returncode == 7


def test_signals_reach_the_whole_group(shell: Shell) -> None:
    file = shell.folder / "inner"
    job = shell.job("a", script=f"sh -c 'echo $$ > \"{file}\"; exec sleep 60'; exit 3")
    inner = shell.pid_in(file)
    job.wrapper.terminate()
    assert job.wrapper.wait(10) == 143
    until(lambda: gone(inner))


def test_the_wrapper_survives_until_the_command_is_gone(shell: Shell) -> None:
    ready, go = shell.folder / "ready", shell.folder / "go"
    os.mkfifo(go)
    job = shell.job("a", trap=f'\'echo > "{ready}"; read x < "{go}"; exit 6\' TERM', script=LOOP)
    job.wrapper.terminate()
    until(ready.exists)
    job.wrapper.terminate()
    assert shell.run("run", "-n", "a", "true").returncode == 75
    go.write_text("go\n")
    assert job.wrapper.wait(10) == 6


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM"])
def test_a_signal_ends_the_wait_and_leaves_nothing(shell: Shell, name: str) -> None:
    shell.job("a")
    number = getattr(signal, f"SIG{name}")
    waiter = shell.waiter("a", command=str(shell.folder / "never"))
    waiter.send_signal(number)
    assert waiter.wait(10) == 128 + number
    assert shell.waiting("a") == 0


@pytest.mark.parametrize("words", [("acquire", "a"), ("wait", "a")])
def test_a_signal_ends_every_wait(shell: Shell, words: tuple[str, ...]) -> None:
    shell.job("a")
    waiter = shell.start(*words)
    until(lambda: shell.waiting("a"))
    waiter.terminate()
    assert waiter.wait(10) == 143
    assert shell.waiting("a") == 0


def test_a_signal_ends_the_wait_until_it_is_held(shell: Shell) -> None:
    waiter = shell.start("-v", "wait", "a", "--until", "held")
    until((shell.folder / "locks.db").exists)
    waiter.send_signal(signal.SIGINT)
    assert waiter.wait(10) in (130, -signal.SIGINT)


def test_a_signal_at_any_moment_leaves_nothing_and_starts_nothing_late(shell: Shell) -> None:
    """From the start of the interpreter to the end of the job: each time a little later."""
    for step in range(24):
        began = shell.folder / f"began{step}"
        wrapper = shell.start("run", "a", "--", "sh", "-c", f'echo > "{began}"; exec sleep 60')
        try:
            wrapper.wait(0.01 * step)
        except subprocess.TimeoutExpired:
            wrapper.terminate()
        assert wrapper.wait(10) in (143, -signal.SIGTERM)
        assert shell.holder("a") is None


def test_what_was_ignored_stays_ignored(shell: Shell) -> None:
    ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    words = [*LEASELOCK, "run", "a", "--", sys.executable, "-c", SHOW_IGNORED]
    program = f"{ignoring} os.execv(sys.executable, {words!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell.env, capture_output=True, text=True, check=True
    )
    # What Python ignores for itself, and SIGHUP.
    alone = subprocess.check_output([sys.executable, "-c", SHOW_IGNORED], text=True)
    assert set(eval(done.stdout)) == set(eval(alone)) | {"SIGHUP"}


def test_a_command_is_as_a_shell_would_leave_it(shell: Shell) -> None:
    status = shell.run("run", "a", "--", "cat", "/proc/self/status").stdout
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    for mask in ("SigBlk", "SigIgn", "SigCgt"):
        # From the 32nd on they are the C library's own, and it has its ways.
        assert int(masks[mask], 16) & 0x7FFFFFFF == 0, mask


def test_only_the_lock_is_inherited(shell: Shell) -> None:
    names = shell.run("run", "a", "--", "sh", "-c", "readlink /proc/$$/fd/*").stdout.splitlines()
    extra = [name for name in names if not name.startswith(("pipe:", "/dev/null"))]
    assert len(extra) == 2
    assert all(".clients/" in name or name.endswith("(deleted)") for name in extra), extra


def test_a_stop_is_passed_on_and_so_is_the_going_on(shell: Shell) -> None:
    # No shell in between: one that is just starting a program cannot be stopped.
    job = shell.job("a")
    job.wrapper.send_signal(signal.SIGTSTP)
    until(lambda: stopped(job.pid))
    job.wrapper.send_signal(signal.SIGCONT)
    until(lambda: not stopped(job.pid) and not stopped(job.wrapper.pid))
    job.wrapper.terminate()
    assert job.wrapper.wait(10) == 143
