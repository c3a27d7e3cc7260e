"""Signals: which are forwarded, which end a wait, and which the command starts with."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest
from tests.cli.processes import LEASELOCK, LOOP, Shell, ended, gone, stopped, until

SHOW_IGNORED = (
    "import signal as s; print([n.name for n in s.Signals if s.getsignal(n) == s.SIG_IGN])"
)

DESCRIPTORS = 1100


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
def test_signals_are_forwarded_to_the_command(shell: Shell, name: str) -> None:
    job = shell.job("a", trap=f"'exit 9' {name}", script=LOOP)
    job.wrapper.send_signal(getattr(signal, f"SIG{name}"))
    assert ended(job.wrapper) == 9


def test_more_than_1024_inherited_descriptors(shell: Shell) -> None:
    """select() supports at most 1,024 descriptors."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < DESCRIPTORS:
        pytest.skip(f"only {limit} files may be open, and {DESCRIPTORS} are needed")
    program = f"""
import os, resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
for number in range(3, {DESCRIPTORS}):
    os.dup2(0, number)
os.execv({LEASELOCK[0]!r}, {[*LEASELOCK, "run", "a", "--", "sh", "-c", "exit 7"]!r})
"""
    done = subprocess.run([sys.executable, "-c", program], env=shell.env, check=False)
    assert done.returncode == 7


def test_signals_are_forwarded_to_the_whole_group(shell: Shell) -> None:
    file = shell.folder / "inner"
    job = shell.job("a", script=f"sh -c 'echo $$ > \"{file}\"; exec sleep 60'; exit 3")
    inner = shell.pid_in(file)
    job.wrapper.terminate()
    assert ended(job.wrapper) == -signal.SIGTERM
    until(lambda: gone(inner))


def test_wrapper_holds_the_lock_until_the_command_has_ended(shell: Shell) -> None:
    ready, go = shell.folder / "ready", shell.folder / "go"
    os.mkfifo(go)
    job = shell.job("a", trap=f'\'echo > "{ready}"; read x < "{go}"; exit 6\' TERM', script=LOOP)
    job.wrapper.terminate()
    until(ready.exists)
    job.wrapper.terminate()
    assert shell.run("run", "-n", "a", "true").returncode == 75
    go.write_text("go\n")
    assert ended(job.wrapper) == 6


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM"])
def test_signal_ends_the_wait_and_removes_the_waiter(shell: Shell, name: str) -> None:
    shell.job("a")
    number = getattr(signal, f"SIG{name}")
    waiter = shell.waiter("a")
    waiter.send_signal(number)
    assert ended(waiter) == -number
    assert shell.waiting("a") == 0


@pytest.mark.parametrize("words", [("acquire", "a"), ("wait", "a")])
def test_signal_ends_the_wait_of_acquire_and_wait(shell: Shell, words: tuple[str, ...]) -> None:
    shell.job("a")
    waiter = shell.start(*words)
    until(lambda: shell.waiting("a"))
    waiter.terminate()
    assert ended(waiter) == -signal.SIGTERM
    assert shell.waiting("a") == 0


def test_signal_ends_wait_until_held(shell: Shell) -> None:
    waiter = shell.start("-v", "wait", "a", "--until", "held")
    until((shell.folder / "locks.db").exists)
    waiter.send_signal(signal.SIGINT)
    assert ended(waiter) == -signal.SIGINT


@pytest.mark.statistical
def test_signal_at_any_moment_leaves_nothing_held(shell: Shell) -> None:
    """Send the signal at moments from the interpreter's start to the command's run."""
    for step in range(24):
        began = shell.folder / f"began{step}"
        wrapper = shell.start("run", "a", "--", "sh", "-c", f'echo > "{began}"; exec sleep 60')
        try:
            wrapper.wait(0.01 * step)
        except subprocess.TimeoutExpired:
            wrapper.terminate()
        assert ended(wrapper) == -signal.SIGTERM
        assert shell.holder("a") is None


def test_ignored_signals_stay_ignored(shell: Shell) -> None:
    ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    words = [*LEASELOCK, "run", "a", "--", sys.executable, "-c", SHOW_IGNORED]
    program = f"{ignoring} os.execv(sys.executable, {words!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell.env, capture_output=True, text=True, check=True
    )
    # The signals that Python ignores by itself, and SIGHUP.
    alone = subprocess.check_output([sys.executable, "-c", SHOW_IGNORED], text=True)
    assert set(eval(done.stdout)) == set(eval(alone)) | {"SIGHUP"}


def test_signal_masks_of_the_command_are_default(shell: Shell) -> None:
    status = shell.run("run", "a", "--", "cat", "/proc/self/status").stdout
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    for mask in ("SigBlk", "SigIgn", "SigCgt"):
        # Signals from 32 on are used by the C library itself.
        assert int(masks[mask], 16) & 0x7FFFFFFF == 0, mask


def test_command_inherits_only_the_lock_files(shell: Shell) -> None:
    names = shell.run("run", "a", "--", "sh", "-c", "readlink /proc/$$/fd/*").stdout.splitlines()
    extra = [name for name in names if not name.startswith(("pipe:", "/dev/null"))]
    assert len(extra) == 2
    assert all(".clients/" in name or name.endswith("(deleted)") for name in extra), extra


def test_stop_and_continue_are_forwarded(shell: Shell) -> None:
    # No shell in between: a shell that is just starting a program cannot be stopped.
    job = shell.job("a")
    job.wrapper.send_signal(signal.SIGTSTP)
    until(lambda: stopped(job.pid))
    job.wrapper.send_signal(signal.SIGCONT)
    until(lambda: not stopped(job.pid) and not stopped(job.wrapper.pid))
    job.wrapper.terminate()
    assert ended(job.wrapper) == -signal.SIGTERM
