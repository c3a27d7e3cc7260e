"""The Java side: built once by Maven, then driven line by line.

The real Redisson does the locking; this module starts it, sends its orders and ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROJECT = Path(__file__).parent / "redisson"
TARGET = PROJECT / "target"
BUILT = TARGET / "built"
GOALS = ("compile", "dependency:copy-dependencies")
# What makes a short-lived Java start quickly.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
BUILD_TIMEOUT = 110.0
TIMEOUT = 30.0


def toolchain() -> None:
    """Skip where Java cannot be built; what is missing otherwise is an error."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no server: Redisson has to be built: {', '.join(missing)} is missing")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process build at a time."""
    with open(PROJECT / ".gitignore", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sources() -> list[Path]:
    """What the build is made of."""
    return [PROJECT / "pom.xml", *PROJECT.glob("src/**/*.java")]


def build() -> None:
    """Build it, unless what is built is new enough; from Maven's cache if that has everything."""
    toolchain()
    with alone():
        newest = max(path.stat().st_mtime for path in sources())
        if BUILT.exists() and BUILT.stat().st_mtime > newest:
            return
        if maven("--offline").returncode != 0:
            run = maven()
            assert run.returncode == 0, run.stdout + run.stderr
        BUILT.touch()


def maven(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the build."""
    return subprocess.run(
        ["mvn", "--quiet", "--batch-mode", *options, *GOALS],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
    )


class Java:
    """One Java process with one Redisson client; each *owner* is a thread of it."""

    def __init__(self, ports: Sequence[int], watchdog: float = 30.0) -> None:
        addresses = [f"redis://127.0.0.1:{port}" for port in ports]
        path = f"{TARGET / 'classes'}:{TARGET / 'lib'}/*"
        self.process = subprocess.Popen(
            ["java", *QUICK, "-cp", path, "Orders", str(round(watchdog * 1000)), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.orders: dict[str, Future[str]] = {}
        self.numbers = itertools.count(1)
        self.ready: Future[str] = Future()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def wait(self) -> None:
        """Until it is connected."""
        self.ready.result(TIMEOUT)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, _, answer = line.strip().partition(" ")
            if number == "ready":
                self.ready.set_result("")
            else:
                self.orders.pop(number).set_result(answer)
        for future in (*self.orders.values(), self.ready):
            if not future.done():
                future.set_exception(ConnectionError("Java has ended"))

    def order(self, owner: str, verb: str, name: str, *arguments: object) -> Future[str]:
        """Give an order to the thread *owner*; its answer comes later."""
        number = str(next(self.numbers))
        future = self.orders[number] = Future()
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, (number, owner, verb, name, *arguments))) + "\n")
        self.process.stdin.flush()
        return future

    def obey(self, owner: str, verb: str, name: str, *arguments: object) -> str:
        """Give an order, and wait for the answer."""
        return self.order(owner, verb, name, *arguments).result(TIMEOUT)

    def stop(self) -> None:
        """End it, at once."""
        self.process.kill()
        self.reader.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
