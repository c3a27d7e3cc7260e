"""The terminal: the command may read it, Ctrl-C and Ctrl-Z work, a pager keeps it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import LEASELOCK, LIMIT, LOOP, UNTIL, Shell, has_word, stopped, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Starts a session with its stdin as controlling terminal, then runs the given program.
LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
# A minimal job-control shell. It runs one job and logs each stop and the end. After a stop it
# takes the terminal; for each line on its pipe it puts the job into the foreground again.
JOB_SHELL = """
import os, signal, sys
orders, log, background, *words = sys.argv[1:]
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    if not int(background):
        os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(words[0], words)
orders = os.fdopen(int(orders))
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    with open(log, "a") as file:
        if not os.WIFSTOPPED(status):
            print("ended", os.waitstatus_to_exitcode(status), file=file)
            break
        foreground = os.tcgetpgrp(0)
        print("stopped", "with" if foreground == pid else "without", "terminal", file=file)
    os.tcsetpgrp(0, os.getpgrp())
    orders.readline()
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
"""


class Terminal:
    """A pseudo-terminal with a process on it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.ours, self.theirs = os.openpty()
        self.text = ""

    def start(
        self, words: Sequence[str], *, stdout: int | None = None, fds: Sequence[int] = ()
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", LEADER, *words],
            env=self.shell.env | {"TERM": "xterm"},
            stdin=self.theirs,
            stdout=self.theirs if stdout is None else stdout,
            stderr=self.theirs,
            start_new_session=True,
            text=True,
            pass_fds=fds,
        )
        self.shell.started.append(process)
        return process

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def shows(self, pattern: str) -> str:
        """Read the output until it matches the pattern; return all of it."""
        os.set_blocking(self.ours, False)
        until(lambda: re.search(pattern, self._read()))
        return self.text

    def _read(self) -> str:
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self.ours, 4096).decode()
        return self.text

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Terminal]:
    terminal = Terminal(shell)
    yield terminal
    terminal.close()


def run(name: str, script: str, *options: str) -> list[str]:
    return [*LEASELOCK, "run", *options, name, "--", "sh", "-c", script]


def test_command_may_read_and_receives_ctrl_c(shell: Shell, terminal: Terminal) -> None:
    ready = shell.folder / "ready"
    script = f"trap 'exit 5' INT; read line; echo $line > \"{ready}\"; {LOOP}"
    process = terminal.start(run("a", script))
    terminal.type("typed\n")
    until(lambda: has_word(ready))
    assert ready.read_text() == "typed\n"
    terminal.type("\x03")
    assert process.wait(LIMIT) == 5


def test_ctrl_c_ends_the_command(shell: Shell, terminal: Terminal) -> None:
    process = terminal.start(run("a", "echo ready; exec sleep 60"))
    terminal.shows("ready")
    terminal.type("\x03")
    assert process.wait(LIMIT) == -signal.SIGINT
    assert shell.holder("a") is None


def test_ctrl_c_ends_a_wait(shell: Shell, terminal: Terminal) -> None:
    shell.job("a")
    process = terminal.start(run("a", "true"))
    until(lambda: shell.waiting("a"))
    terminal.type("\x03")
    assert process.wait(LIMIT) == -signal.SIGINT
    assert shell.waiting("a") == 0


def test_status_line_is_updated_and_erased(shell: Shell, terminal: Terminal) -> None:
    go = shell.folder / "go"
    holder = shell.job("a", script=UNTIL.format(go=go))
    process = terminal.start([*LEASELOCK, "run", "a", "--", "echo", "mine"])
    text = terminal.shows(r"waiting [\d.]+s.*waiting [\d.]+s")
    assert f":{holder.wrapper.pid} for " in text
    assert "position 1 of 1" in text
    assert text.count("\r\x1b[K") >= 2
    assert "\n" not in text
    go.write_text("")
    assert terminal.shows("mine").endswith("\r\x1b[Kmine\r\n")
    assert process.wait(LIMIT) == 0


@pytest.mark.timing
def test_a_check_that_takes_long_says_so(shell: Shell, terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        process = terminal.start([*LEASELOCK, "--url", url, "--op-timeout", "4s", "doctor"])
        terminal.shows(rf"\x1b\[Kleaselock: checking {url}, [\d.]+s")
        assert process.wait(LIMIT) == 1
        assert re.search(r"s\r\x1b\[K.*ok ", terminal.shows("fail")), "erased"


@pytest.mark.parametrize("how", ["--no-color", pytest.param("NO_COLOR", marks=pytest.mark.variant)])
def test_no_color_sends_no_escapes(shell: Shell, terminal: Terminal, how: str) -> None:
    go = shell.folder / "go"
    shell.job("a", script=UNTIL.format(go=go))
    option = [how] if how.startswith("--") else []
    shell.env |= {} if option else {how: "1"}
    process = terminal.start([*LEASELOCK, *option, "run", "a", "--", "true"])
    assert "\x1b" not in terminal.shows(r"waiting [\d.]+s.*'a'.*\n")
    go.write_text("")
    assert process.wait(LIMIT) == 0


def test_pager_in_the_pipeline_keeps_the_terminal(shell: Shell, terminal: Terminal) -> None:
    # One process group for the pipeline, as in a shell: its last program reads the terminal.
    wrapper = f"{shlex.join(LEASELOCK)} run a -- sh -c 'echo page; exec sleep 60'"
    pager = "read page; read key < /dev/tty; echo got $page $key"
    terminal.start(["sh", "-c", f"{wrapper} | {{ {pager}; }}; exit 0"])
    until(lambda: shell.holder("a"))
    terminal.type("q\n")
    terminal.shows("got page q")
    holder = shell.holder("a")
    assert holder is not None
    os.kill(holder.pid, signal.SIGTERM)


def test_command_before_a_pipe_gets_the_terminal_when_it_reads(
    shell: Shell, terminal: Terminal
) -> None:
    wrapper = f"{shlex.join(LEASELOCK)} run a -- sh -c 'read line; echo got $line'"
    process = terminal.start(["sh", "-c", f"{wrapper} | cat"])
    until(lambda: shell.holder("a"))
    terminal.type("typed\n")
    terminal.shows("got typed")
    assert process.wait(LIMIT) == 0


def test_ctrl_c_is_forwarded_with_no_tty(shell: Shell, terminal: Terminal) -> None:
    process = terminal.start(run("a", f"trap 'exit 5' INT; echo ready; {LOOP}", "--no-tty"))
    terminal.shows("ready")
    terminal.type("\x03")
    assert process.wait(LIMIT) == 5


class JobControl:
    """One job under a shell that can put it into the background and back."""

    def __init__(self, terminal: Terminal, words: Sequence[str], *, background: bool) -> None:
        self.log = terminal.shell.folder / "log"
        reads, self.writes = os.pipe()
        leader = [sys.executable, "-c", JOB_SHELL, str(reads), str(self.log), str(int(background))]
        self.process = terminal.start([*leader, *words], fds=[reads])
        os.close(reads)

    def until(self, *lines: str) -> None:
        """Wait until the shell has logged exactly these lines."""
        until(lambda: self.log.exists() and self.log.read_text().splitlines() == list(lines))

    def foreground(self) -> None:
        """What ``fg`` does."""
        os.write(self.writes, b"fg\n")


def test_ctrl_z_stops_the_job_and_fg_continues_it(shell: Shell, terminal: Terminal) -> None:
    file = shell.folder / "pid"
    script = f'echo $$ > "{file}"; read line; echo got $line; exit 3'
    shell_job = JobControl(terminal, run("a", script), background=False)
    pid = shell.pid_in(file)
    terminal.type("\x1a")
    shell_job.until("stopped with terminal")
    assert stopped(pid)
    shell_job.foreground()
    terminal.type("typed\n")
    terminal.shows("got typed")
    shell_job.until("stopped with terminal", "ended 3")
    os.close(shell_job.writes)


def test_background_job_that_reads_is_stopped_until_fg(shell: Shell, terminal: Terminal) -> None:
    shell_job = JobControl(terminal, run("a", "read line; echo got $line"), background=True)
    shell_job.until("stopped without terminal")
    shell_job.foreground()
    terminal.type("typed\n")
    terminal.shows("got typed")
    shell_job.until("stopped without terminal", "ended 0")
    os.close(shell_job.writes)


@pytest.mark.parametrize("words", [("ls",), ("ls", "--all")])
def test_ls_says_on_a_terminal_that_only_the_index_was_read(
    shell: Shell, terminal: Terminal, words: tuple[str, ...]
) -> None:
    with Redis() as redis:
        shell.env["LEASELOCK_URL"] = redis.url
        terminal.start([*LEASELOCK, *words]).wait(LIMIT)
        shown = terminal.shows("no locks in .*\n")
        assert ("--all looks at all keys" in shown) is (words == ("ls",))
