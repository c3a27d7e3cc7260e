"""holdfast run: exit codes, signals, death, loss, the terminal, the environment."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from tests.cli.conftest import Shell, gone


def test_the_exit_code_of_the_command_is_passed_through(shell: Shell) -> None:
    assert shell.run("run", "a", "--", "sh", "-c", "exit 7").returncode == 7
    assert shell.run("run", "a", "sh", "-c", "kill -9 $$").returncode == 137


def test_busy_exits_75_and_names_the_holder(shell: Shell) -> None:
    holder = shell.holding("a", "--reason", "month's end")
    busy = shell.run("run", "-n", "a", "--", "true")
    assert busy.returncode == 75
    assert f"process {holder.pid}" in busy.stderr
    assert "month's end" in busy.stderr
    assert shell.run("run", "-n", "-E", "1", "a", "true").returncode == 1
    assert shell.run("run", "-n", "--skip-ok", "a", "true").returncode == 0


def test_a_timed_wait_ends(shell: Shell) -> None:
    shell.holding("a")
    began = time.monotonic()
    assert shell.run("run", "-w", "300ms", "a", "true").returncode == 75
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "a", "--", "/nonexistent/command"], 127),
        (["run", "a", "--", "/etc/passwd"], 126),
        (["run", "a"], 64),
        (["run"], 64),
        (["run", "a", "-n", "true"], 64),
        (["run", "--on-lost", "nonsense", "a", "true"], 64),
        (["run", "-w", "soon", "a", "true"], 64),
        (["run", "a\nb", "true"], 64),
        (["--url", "nosuch://x", "run", "a", "true"], 78),
        (["--url", "sqlite://host/x", "ls"], 78),
        (["--url", "sqlite:////nonexistent/dir/x.db", "ls"], 69),
        (["nonsense"], 64),
    ],
)
def test_what_cannot_be_done_is_said(shell: Shell, words: list[str], code: int) -> None:
    done = shell.run(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_cannot_run_leaves_nothing_held(shell: Shell) -> None:
    shell.run("run", "a", "--", "/nonexistent/command")
    assert shell.run("ls", "--exit-code").returncode == 1


def test_killing_the_wrapper_frees_the_lock_when_its_command_is_gone(shell: Shell) -> None:
    wrapper = shell.holding("a")
    waiter = shell.start("run", "a", "--", "true")
    shell.until(lambda: '"waiters": [{' in shell.run("ls", "--json").stdout)
    wrapper.kill()
    assert shell.until(lambda: gone(shell.job_pid())) < 5  # by the parent-death signal
    began = time.monotonic()
    assert waiter.wait(10) == 0
    assert time.monotonic() - began < 1.0


def test_the_lock_stays_with_a_command_that_outlives_its_wrapper(shell: Shell) -> None:
    wrapper = shell.holding("a", "--pdeathsig", "none", "--ttl", "500ms", job="exec sleep 60")
    wrapper.kill()
    wrapper.wait()
    assert shell.run("run", "-w", "1.5s", "a", "true").returncode == 75
    waiter = shell.start("run", "a", "--", "true")
    os.kill(shell.job_pid(), signal.SIGKILL)
    shell.until(lambda: gone(shell.job_pid()))
    assert waiter.wait(1.0) == 0


def test_a_wrapper_stopped_past_its_lease_ends_its_command(shell: Shell) -> None:
    wrapper = shell.holding("a", "--ttl", "600ms")
    wrapper.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    shell.until(lambda: time.monotonic() - began > 1.0)
    wrapper.send_signal(signal.SIGCONT)
    assert wrapper.wait(10) == 76
    assert gone(shell.job_pid())


def test_a_fixed_lease_ends_the_command_before_its_end(shell: Shell) -> None:
    began = time.monotonic()
    wrapper = shell.holding("a", "--no-renew", "--ttl", "1s", job="trap '' TERM; sleep 60")
    assert wrapper.wait(10) == 76
    assert time.monotonic() - began < 3
    assert gone(shell.job_pid())


def test_loss_can_be_ignored_but_is_not_hidden(shell: Shell) -> None:
    options = ("--no-renew", "--ttl", "200ms", "--on-lost", "ignore")
    done = shell.run("run", *options, "a", "sleep", "1")
    assert done.returncode == 76


def test_a_broken_lock_ends_the_command(shell: Shell) -> None:
    wrapper = shell.holding("a", "--ttl", "1s")
    assert shell.run("break", "a", "--yes", "--reason", "test").returncode == 0
    assert wrapper.wait(10) == 76


def test_a_job_that_runs_too_long_is_ended(shell: Shell) -> None:
    assert shell.run("run", "--max-hold", "300ms", "a", "sleep", "60").returncode == 143


def test_signals_reach_the_command(shell: Shell) -> None:
    out = shell.folder / "got"
    job = f"trap 'echo usr1 > {out}' USR1; trap 'exit 9' TERM; while :; do sleep 0.05; done"
    wrapper = shell.holding("a", job=job)
    wrapper.send_signal(signal.SIGUSR1)
    shell.until(out.exists)
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait(10) == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_leaves_nothing(shell: Shell, number: signal.Signals) -> None:
    shell.holding("a")
    waiter = shell.start("run", "a", "--", "true")
    shell.until(lambda: '"waiters": [{' in shell.run("ls", "--json").stdout)
    waiter.send_signal(number)
    assert waiter.wait(10) == 128 + number
    assert '"waiters": []' in shell.run("show", "--json", "a").stdout


def test_the_command_finds_the_lock_in_its_environment(shell: Shell) -> None:
    script = "print(__import__('json').dumps(dict(__import__('os').environ)))"
    inner = [sys.executable, "-m", "holdfast", "run", "inner", "--", sys.executable, "-c", script]
    done = shell.run("run", "outer", "--", *inner)
    env = json.loads(done.stdout)
    assert env["HOLDFAST_NAME"] == "inner"
    assert env["HOLDFAST_STACK"] == "outer inner"
    assert env["HOLDFAST_TOKEN"] == env["HOLDFAST_FENCE"]
    assert env["HOLDFAST_BACKEND"] == shell.env["HOLDFAST_URL"]


def test_the_shell_form_and_stdin(shell: Shell) -> None:
    done = shell.run("run", "-c", "cat; echo $HOLDFAST_NAME", "a", stdin="hello ")
    assert done.stdout == "hello a\n"


def test_a_name_made_from_the_command_is_the_same_each_time(shell: Shell) -> None:
    script = 'echo "$HOLDFAST_NAME"'
    names = {shell.run("run", "--name-from-command", "sh", "-c", script).stdout for _ in range(2)}
    assert len(names) == 1
    assert names.pop().startswith("command:")


def _in_terminal(shell: Shell, *words: str) -> tuple[int, int]:
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, [sys.executable, "-m", "holdfast", *words], shell.env)
    return pid, terminal


def test_on_a_terminal_the_command_may_read_and_ctrl_c_reaches_it(shell: Shell) -> None:
    ready = shell.folder / "ready"
    job = f"trap 'exit 5' INT; read line; echo $line > {ready}; while :; do sleep 0.05; done"
    pid, terminal = _in_terminal(shell, "run", "a", "--", "sh", "-c", job)
    os.write(terminal, b"typed\n")
    shell.until(ready.exists)
    assert ready.read_text() == "typed\n"
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 5


def test_python_dash_m_and_the_script_are_the_same() -> None:
    words = [sys.executable, "-m", "holdfast", "version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith(
        "holdfast "
    )
