"""Programs of users' size, each in a folder of its own, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCE = str(Path(leaselock.__file__).parents[1])
# It only bounds a failure.
LIMIT = 300.0


class Program(NamedTuple):
    """A process, whose output goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text("utf-8", errors="replace")

    def ended(self) -> str:
        """Wait until it has ended without an error; return what it printed."""
        assert self.process.wait(LIMIT) == 0, self.output()
        return self.output()


class Programs:
    """Files of a project, and the processes that were started in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Program] = []

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> Program:
        """Start a Python module with arguments, in a process group of its own."""
        log = self.folder / f"log-{len(self.started)}"
        own = {"PYTHONPATH": f"{self.folder}:{SOURCE}", "PYTHONUNBUFFERED": "1", **(env or {})}
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=self.folder,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.started.append(Program(process, log))
        return self.started[-1]

    def lines(self, name: str) -> list[str]:
        """The lines of a file that the programs write."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def wait_for_lines(self, name: str, count: int) -> list[str]:
        """Wait until they have written that many lines, or one of the programs has failed."""
        eventually(lambda: len(self.lines(name)) >= count or any(self.failed()), LIMIT)
        assert not any(self.failed()), "\n".join(program.output() for program in self.started)
        return self.lines(name)

    def failed(self) -> list[bool]:
        """Of each program, whether it has ended with an error, and not by a signal of the test."""
        return [(program.process.poll() or 0) > 0 for program in self.started]

    def close(self) -> None:
        """End what still runs, with its children."""
        for program in self.started:
            if program.process.poll() is None:
                os.killpg(program.process.pid, signal.SIGTERM)
                try:
                    program.process.wait(30.0)
                except subprocess.TimeoutExpired:
                    os.killpg(program.process.pid, signal.SIGKILL)
                    program.process.wait()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """A project in an empty folder."""
    made = Programs(tmp_path)
    yield made
    made.close()
