"""The recipe of `docs/how-to/share-a-result.md` where a page cannot play it.

The program is the first block of the page. Its computation is replaced by one that ends when this
test says so.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "share-a-result.md"
LOCK = "compute:daily"
# Computes for as long as its standard input is open.
PROGRAM = """
import sys
from report import shared
from report_for_many import shared_by_many

def compute():
    print("computing", flush=True)
    sys.stdin.readline()
    return sys.argv[2]

print("result", globals()[sys.argv[1]]("daily", compute), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def folder(server: Redis, tmp_path: Path) -> Path:
    """The programs of the page, with a private server that is empty."""
    server.ask("FLUSHALL")
    text = PAGE.read_text("utf-8").replace("redis://localhost:6379/0", server.url)
    for name, source in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(source, "utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    return tmp_path


class Program:
    """A process that asks for the result."""

    def __init__(self, folder: Path, function: str, result: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "program.py", function, result],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> str:
        """Let the computation end; return what was printed since."""
        printed, _ = self.process.communicate("\n", timeout=120)
        assert self.process.returncode == 0
        return printed.strip()

    def kill(self) -> None:
        """End it without a release."""
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.mark.parametrize("function", ["shared", "shared_by_many"])
@pytest.mark.parametrize("killed", [False, True], ids=["finishes", "is killed"])
def test_one_computes_and_the_other_waits(
    function: str, killed: bool, folder: Path, server: Redis
) -> None:
    with leaselock.Client(server.url) as client:
        first = Program(folder, function, "by the first")
        assert first.line() == "computing"
        second = Program(folder, function, "by the second")
        lock = client.lock(LOCK)
        eventually(lambda: len(lock.waiters()) == 1, 60)
        if killed:
            first.kill()
            # The lease of 10 s ends, then the other one computes.
            assert second.line() == "computing"
            assert second.finish() == "result by the second"
        else:
            assert first.finish() == "result by the first"
            assert second.finish() == "result by the first"


def test_a_late_holder_does_not_replace_a_newer_result(folder: Path) -> None:
    specification = importlib.util.spec_from_file_location("report", folder / "report.py")
    assert specification is not None
    assert specification.loader is not None
    report: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(report)
    with report.client:

        def compute() -> str:
            """Meanwhile a later holder saves its result."""
            holder = report.client.lock(LOCK).holder()
            report.save(keys=["result:daily"], args=[holder.token + 1, '"newer"', 60])
            return "older"

        assert report.shared("daily", compute) == "older"
        assert report.read("daily") == b'"newer"'
        report.store.close()
