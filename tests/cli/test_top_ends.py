"""top ends when its terminal is gone, and by a signal although its terminal reads no more."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import LEASELOCK, ended, until

if TYPE_CHECKING:
    from tests.cli.processes import Shell


class Screen:
    """`top` on a terminal that sends it no SIGHUP: it is not the controlling terminal."""

    def __init__(self, shell: Shell) -> None:
        self.ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            [*LEASELOCK, "top"],
            env=shell.env | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            text=True,
        )
        os.close(theirs)
        shell.started.append(self.process)
        self.text = b""
        until(self.shows_locks)

    def shows_locks(self) -> bool:
        self.text += os.read(self.ours, 65536)
        return b"no locks" in self.text


@pytest.fixture
def screen(shell: Shell) -> Screen:
    return Screen(shell)


def test_it_ends_when_its_terminal_is_gone(screen: Screen) -> None:
    os.close(screen.ours)
    assert ended(screen.process) in (-signal.SIGHUP, 128 + signal.SIGHUP)


def test_a_signal_ends_it_although_its_terminal_reads_nothing(screen: Screen) -> None:
    for _ in range(200):  # each key is a new picture of the screen
        os.write(screen.ours, b"?e")
    screen.process.terminate()
    assert ended(screen.process) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    os.close(screen.ours)
