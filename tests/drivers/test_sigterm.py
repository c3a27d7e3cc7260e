"""SIGTERM ends a plain program without cleaning up; `exit_on_sigterm` makes it an exit."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import contextlib, sys, time
import leaselock

around = leaselock.exit_on_sigterm if sys.argv[2] == "exit" else contextlib.nullcontext
with around(), leaselock.Client(sys.argv[1]) as client:
    lease = client.lock("a", lease=600).acquire()
    try:
        print("held", flush=True)
        time.sleep(600)
    finally:
        print("cleaned up", flush=True)
"""


@pytest.mark.parametrize("how", ["exit", "plain"])
def test_sigterm_releases_where_the_program_wants_it(tmp_path: Path, how: str) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    words = [sys.executable, "-c", PROGRAM, url, how]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        program.terminate()
        printed = program.stdout.read()
    assert printed == ("cleaned up\n" if how == "exit" else "")
    assert program.returncode == (128 + signal.SIGTERM if how == "exit" else -signal.SIGTERM)
    with leaselock.Client(url) as client:
        assert not client.lock("a").locked()


def test_a_program_that_handles_the_signal_keeps_its_handler() -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with leaselock.exit_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    with leaselock.exit_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not before
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(leaselock.exit_on_sigterm()))
        thread.start()
        thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
