"""The page of a store with 1,000 locks and 5,000 waiters, for 10 viewers: figures, and that the
store is not asked more often for more viewers.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from testkit.servers.chromium import Chromium
from testkit.servers.redis import Redis
from tests.cli.processes import LIMIT
from tests.web.many_waiters import LOCKS, WAITERS_OF_EACH

if TYPE_CHECKING:
    from tests.cli.processes import Shell

pytestmark = pytest.mark.heavy

VIEWERS = 10
READS = 6
INTERVAL = 0.5


class Viewer(threading.Thread):
    """Reads a stream of events until it ends, and keeps the number of the newest read."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.number = 0
        self.moved = threading.Condition()
        self.bytes: list[int] = []

    def run(self) -> None:
        """Read."""
        with httpx.stream("GET", f"{self.url}api/events", timeout=LIMIT) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.bytes.append(len(line))
                    with self.moved:
                        self.number = json.loads(line[len("data: ") :])["number"]
                        self.moved.notify()

    def end(self) -> None:
        """Wait until it has ended, if it was started."""
        if self.ident is not None:
            self.join()

    def wait(self, number: int) -> None:
        """Wait until it has seen a read."""
        with self.moved:
            assert self.moved.wait_for(lambda: self.number >= number, LIMIT)


class Cost(NamedTuple):
    """What some reads cost."""

    reads: int
    seconds: float
    commands: int
    cpu: float


def measured(redis: Redis, server: subprocess.Popen[str], viewer: Viewer) -> Cost:
    """Wait for some reads, and count the commands that the store got."""
    viewer.wait(viewer.number + 1)
    first, began = viewer.number, time.monotonic()
    before, used = commands(redis), cpu_of(server)
    viewer.wait(first + READS)
    reads = viewer.number - first
    return Cost(reads, time.monotonic() - began, commands(redis) - before, cpu_of(server) - used)


def commands(redis: Redis) -> int:
    """How many commands the store has executed, also in scripts, but for those that ask it."""
    stats = redis.info("commandstats").items()
    found = {name: dict(pair.split("=") for pair in value.split(",")) for name, value in stats}
    return sum(int(each["calls"]) for name, each in found.items() if name != "cmdstat_info")


def cpu_of(process: subprocess.Popen[str]) -> float:
    """The seconds of CPU time that a process has used."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_the_page_of_a_large_store(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(Redis())
        clients = subprocess.Popen(
            [sys.executable, "-m", "tests.web.many_waiters", redis.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        shell.started.append(clients)
        assert clients.stdout is not None
        assert clients.stdout.readline() == "ready\n"
        server = shell.start("web", "--port", "0", "--interval", str(INTERVAL), redis.url)
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        # It keeps its place in all queues, and sends nothing while the commands are counted.
        clients.send_signal(signal.SIGSTOP)
        stack.callback(clients.send_signal, signal.SIGCONT)

        viewers = [Viewer(url) for _ in range(VIEWERS)]
        for viewer in viewers:
            stack.callback(viewer.end)
        stack.callback(server.terminate)
        viewers[0].start()
        one = measured(redis, server, viewers[0])
        for viewer in viewers[1:]:
            viewer.start()
        ten = measured(redis, server, viewers[-1])

        browser = stack.enter_context(Chromium())
        browser.size(1280, 900)
        began = time.monotonic()
        browser.begin_to_open(url)
        browser.wait("document.querySelectorAll('#rows tr').length === 200")
        shown = time.monotonic() - began
        assert browser.text("#held") == str(LOCKS)
        assert browser.text("#waiting") == str(LOCKS * WAITERS_OF_EACH)
        assert browser.problems == []
        browser.open("about:blank")
    with capsys.disabled():
        print(f"\n{LOCKS} locks, {LOCKS * WAITERS_OF_EACH} waiters; shown after {shown:.2f} s")
        for viewers_, cost in ((1, one), (VIEWERS, ten)):
            print(
                f"{viewers_} viewers: {cost.reads / cost.seconds:.1f} reads/s, "
                f"{cost.commands / cost.seconds:.0f} commands/s, {cost.commands / cost.reads:.0f} "
                f"a read; {cost.cpu / cost.reads * 1000:.0f} ms of CPU a read"
            )
        state, *changes = viewers[0].bytes
        print(f"bytes for a viewer: {state} at first, {max(changes)} for each read at most")
    # Each count may begin and end within a read.
    assert ten.commands / ten.reads < 1.5 * one.commands / one.reads
