"""top on a terminal of 80 by 24, as a user sees it in tmux."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import LEASELOCK, until

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.processes import Shell

pytestmark = pytest.mark.heavy
# Bold, reverse, the default colours, and the greys of a terminal with 256 colours.
PLAIN = re.compile(r"0|1|7|39|49|[34]8;5;2(3[2-9]|4\d|5[0-5])")


class Tmux:
    """A terminal in a tmux server of its own."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.command = ("tmux", "-S", str(shell.folder / "tmux"), "-f", "/dev/null")

    def __call__(self, *words: str) -> str:
        return subprocess.run(
            [*self.command, *words],
            env=self.shell.env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def start(self, *words: str) -> None:
        """Run a command, and then a program that waits."""
        line = f"{shlex.join(words)}; echo ended with $?; exec sleep 600"
        self("new-session", "-d", "-x", "80", "-y", "24", line)

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    def screen(self, *options: str) -> str:
        return self("capture-pane", "-p", *options)

    def shows(self, *texts: str) -> None:
        until(lambda: all(text in self.screen() for text in texts))


@pytest.fixture
def tmux(shell: Shell) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("no server: tmux is not installed")
    tmux = Tmux(shell)
    yield tmux
    subprocess.run([*tmux.command, "kill-server"], capture_output=True, check=False)


def test_a_session(shell: Shell, tmux: Tmux) -> None:
    with Redis() as server, leaselock.Client(server.url, label="nightly") as client:
        shell.env |= {"LEASELOCK_URL": server.url, "NO_COLOR": "1"}
        client.lock("order:5").acquire()
        tmux.start(*LEASELOCK, "top", "--interval", "200ms", "--op-timeout", "1s")
        tmux.shows("1 held  0 waiting", "  order:5", "label: nightly", "/ filter", "q quit")
        assert max(map(len, tmux.screen().splitlines())) <= 80
        codes = {part.partition("m")[0] for part in tmux.screen("-e").split("\x1b[")[1:]}
        assert all(PLAIN.fullmatch(code) for code in codes), "shades of grey alone"
        server.kill()
        tmux.shows("NO ANSWER", "  order:5")
        server.start()
        tmux.shows("0 held", "no locks")
        client.lock("order:6").acquire(timeout=30)
        tmux.shows("  order:6")
        tmux.type("b")
        tmux.shows("type the name of the lock")
        tmux.type("order:6", "Enter")
        tmux.shows("0 held")
        tmux.type("e")
        tmux.shows("broken    order:6")
        tmux.type("q")
        tmux.shows("ended with 0")
        assert "NAME" not in tmux.screen(), "the terminal is as before"


def test_a_signal_restores_the_terminal(shell: Shell, tmux: Tmux) -> None:
    file = shell.folder / "pid"
    script = f"echo $$ > {shlex.quote(str(file))}; exec {shlex.join(LEASELOCK)} top"
    tmux.start("sh", "-c", script)
    tmux.shows("no locks")
    os.kill(shell.pid_in(file), signal.SIGTERM)
    tmux.shows("ended with 143")
    assert "NAME" not in tmux.screen(), "the terminal is as before"


def test_without_its_extra_the_command_is_named(shell: Shell, tmux: Tmux) -> None:
    (shell.folder / "textual.py").write_text("raise ImportError('not installed')")
    known = shell.env.get("PYTHONPATH", "")
    shell.env["PYTHONPATH"] = os.pathsep.join([str(shell.folder), *filter(None, [known])])
    tmux.start(*LEASELOCK, "top")
    tmux.shows("pip install 'textual", "ended with 78")
