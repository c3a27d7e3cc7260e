"""Worker processes: start them, exchange JSON lines with them, and always end them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
# Seconds for one reply: the slowest take two minutes.
REPLY_TIMEOUT = 300.0


class WorkerProcess:
    """A process that prints one JSON value on each line."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self.command = command
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()

    def receive(self) -> Any:
        """Return the next value that the process reports; raise if it ends or is too late."""
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        while b"\n" not in self.received:
            if not poll.poll(REPLY_TIMEOUT * 1000):
                raise TimeoutError(f"no reply for {REPLY_TIMEOUT:g} s: {self._command()}")
            if not (data := os.read(output, 1 << 16)):
                raise RuntimeError(f"ended with {self.process.wait()}: {self._command()}")
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def _command(self) -> str:
        return " ".join(word for word in self.command if "/" not in word)

    def send(self, text: str) -> None:
        """Send one line to the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def request(self, text: str) -> Any:
        """Send a command and return the reply."""
        self.send(text)
        return self.receive()


def python_worker(module: str, *arguments: object) -> WorkerProcess:
    """Start a module as a worker process."""
    return WorkerProcess([sys.executable, "-m", module, *map(str, arguments)])


def memory(field: str) -> int:
    """Return the memory of this process in bytes: VmRSS is the present, VmHWM the peak."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def report(value: object) -> None:
    """Print *value* for `WorkerProcess.receive`; called in the worker process."""
    print(json.dumps(value), flush=True)
