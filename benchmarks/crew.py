"""Other processes: started, spoken to line by line, and ended, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent


class Member:
    """One process of ours; it speaks one JSON value on each line."""

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
        """End it."""
        self.process.kill()
        self.process.communicate()

    def hear(self) -> Any:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark failed: {self.process.wait()}")
        return json.loads(line)

    def tell(self, text: str) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def ask(self, text: str) -> Any:
        """Give an order, and hear the answer."""
        self.tell(text)
        return self.hear()


def python(module: str, *arguments: object) -> Member:
    """A member of our own language."""
    return Member([sys.executable, "-m", module, *map(str, arguments)])


def say(value: object) -> None:
    """The member's side of `hear`."""
    print(json.dumps(value), flush=True)
