"""Worker processes: start them, exchange JSON lines with them, and always end them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """A process that prints one JSON value on each line."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()

    def receive(self) -> Any:
        """Return the next value that the process reports."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark failed: {self.process.wait()}")
        return json.loads(line)

    def send(self, text: str) -> None:
        """Send one line to the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def request(self, text: str) -> Any:
        """Send a command and return the reply."""
        self.send(text)
        return self.receive()


def python_worker(module: str, *arguments: object) -> WorkerProcess:
    """Start a module as a worker process."""
    return WorkerProcess([sys.executable, "-m", module, *map(str, arguments)])


def report(value: object) -> None:
    """Print *value* for `WorkerProcess.receive`; called in the worker process."""
    print(json.dumps(value), flush=True)
