"""The benchmarks run, verify exclusion and report results; no time is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks import foreign
from benchmarks.__main__ import main
from benchmarks.charts import CHARTS, draw
from benchmarks.contender_group import summary, verify, verify_limit
from benchmarks.contestants import (
    CLASSES,
    ON_REDIS,
    READ_WRITE,
    SEMAPHORES,
    absent,
    bare_redis,
    contestant,
    present,
)
from benchmarks.scale import TINY
from benchmarks.tables import Table
from benchmarks.workers.contender import HoldTimes
from benchmarks.workloads import NAMES, pair, readers, semaphore
from benchmarks.workloads.redis import announce
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.mode_stores import Preparation
    from benchmarks.scale import Scale

pytestmark = [pytest.mark.long, pytest.mark.nightly]

HISTORY = [[HoldTimes(0, 10, 20), HoldTimes(20, 50, 60)], [HoldTimes(0, 20, 50)]]


# The other workloads start many servers, which takes a minute; `make bench` runs them.
SHORT = ["pair", "nested", "contention", "waiting", "redis_leases", "stores"]


def test_run_measures_and_writes_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Starting a Java virtual machine takes longer than everything else together.
    monkeypatch.setattr(foreign, "BUILT", tmp_path)
    assert set(NAMES) > set(SHORT)
    assert main(["--tiny", "--into", str(tmp_path), *SHORT]) == 0
    printed = capsys.readouterr().out
    document = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert list(document["results"])[: len(SHORT)] == SHORT
    for tables in document["results"].values():
        for table in tables:
            assert f"## {table['title']}" in printed
    assert set(document["results"]["pair"][0]["contestants"]) == set(present(CLASSES))
    assert str(tmp_path) not in printed
    assert str(Path.home()) not in printed


def test_published_results_can_be_drawn(tmp_path: Path) -> None:
    published = Path(__file__).parents[1] / "docs" / "benchmarks" / "results.json"
    draw(json.loads(published.read_text("utf-8")), tmp_path)
    for chart in CHARTS:
        assert Path(tmp_path, f"{chart}.png").read_bytes().startswith(b"\x89PNG")


def test_failing_workload_is_reported_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(scale: Scale) -> Iterator[Table]:
        yield Table("before the failure", ["x"], [], {})
        raise RuntimeError("the store is unreachable")

    monkeypatch.setattr(pair, "run", run)
    assert main(["--tiny", "--into", str(tmp_path), "pair", "nested"]) == 1
    captured = capsys.readouterr()
    assert "## before the failure" in captured.out
    assert "**failed: pair**" in captured.out
    assert "RuntimeError: the store is unreachable" in captured.err
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))["results"]
    titles = [table["title"] for table in results["pair"]]
    assert titles == ["before the failure", "pair: failed"]
    assert "nested" in results


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.mark.parametrize("name", [*CLASSES, *ON_REDIS])
def test_contestant_excludes_others(name: str, tmp_path: Path, server: Redis) -> None:
    if why := absent(name):
        pytest.skip(f"no peer: {name}: {why}")
    announce(server.url, tmp_path)
    lock = contestant(name)(tmp_path)
    lock.acquire()
    if not lock.waits:
        # Bare statements do not wait.
        lock.release()
        lock.close()
        return
    command = [sys.executable, "-m", "benchmarks.workers.waiter", name, str(tmp_path)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        assert json.loads(waiter.stdout.readline()) == "waiting"
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(0.3)
        lock.release()
        assert waiter.wait(10) == 0
    lock.close()


def form(word: str) -> object:
    """Return what does not differ from one claim to the next."""
    *lines, last = word.split("\n")
    if lines:
        return len(lines), list(json.loads(last))
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+", "owner", word)


def test_bare_commands_are_those_of_leaselock(server: Redis) -> None:
    sent: list[list[str]] = []
    with leaselock.Client(server.url) as client, server.wire() as monitor:
        lock = client.lock("compared")
        with lock:
            pass
        monitor.ask("MONITOR")
        with lock:
            pass
        while len(sent) < 2:
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', monitor.await_wakeup())
            if words[0] == "EVALSHA":
                sent.append([word.encode().decode("unicode_escape") for word in words])
    for words, command in zip(sent, bare_redis.commands("compared"), strict=True):
        expected = command.decode().split("\r\n")[2::2]
        assert [form(word) for word in words] == [form(word) for word in expected]


def test_overlapping_holds_are_detected() -> None:
    verify("a", HISTORY, 3)
    with pytest.raises(AssertionError, match="1 overlaps"):
        verify("a", [*HISTORY, [HoldTimes(0, 55, 70)]], 4)
    with pytest.raises(AssertionError, match="2 counted of 3"):
        verify("a", HISTORY, 2)


def test_too_many_concurrent_holds_are_detected() -> None:
    # A release and a grant of the same moment do not overlap.
    one, two, three = HoldTimes(0, 0, 10), HoldTimes(0, 5, 20), HoldTimes(0, 10, 15)
    verify_limit("a", [(one, 1), (two, 1), (three, 1)], 2)
    with pytest.raises(AssertionError, match="a: concurrent holds of 2, the limit is 1"):
        verify_limit("a", [(one, 1), (two, 1)], 1)
    with pytest.raises(AssertionError, match="concurrent holds of 3, the limit is 2"):
        verify_limit("a", [(one, 1), (two, 2)], 2)


def test_figures_of_readers_and_a_writer() -> None:
    reads = [[HoldTimes(0, 10, 20)], [HoldTimes(0, 15, 25), HoldTimes(25, 45, 60)]]
    writes = [HoldTimes(10, 30, 40)]
    figures = readers.summary("a", [*reads, writes], cpu=2.0)
    assert figures.reads == pytest.approx(3 / 60e-9)
    assert figures.writes == pytest.approx(1 / 60e-9)
    assert (figures.read_wait, figures.longest_read_wait) == (15e-9, 20e-9)
    assert (figures.write_wait, figures.longest_write_wait) == (20e-9, 20e-9)
    assert figures.longest_read == 15e-9
    assert figures.over_read == pytest.approx(20 / 15)
    assert figures.cpu == 0.5
    with pytest.raises(AssertionError, match="concurrent holds of 3, the limit is 2"):
        readers.summary("a", [*reads, [HoldTimes(10, 24, 40)]], cpu=2.0)


def test_readers_are_measured(server: Redis) -> None:
    names = [*present(["leaselock", "filelock"]), "redis"]
    preparation: Preparation = dict.fromkeys(names, Path.exists)
    preparation["redis"] = partial(announce, server.url)
    tables = readers.measure(preparation, TINY)
    assert [table.title for table in tables] == [
        "readers: 2 readers and 1 writer, 10 ms hold",
        "readers: 2 readers and 1 writer, 0 ms hold",
    ]
    for table in tables:
        assert list(table.data["contestants"]) == names
        assert min(table.data["contestants"]["leaselock"].values()) > 0
        assert READ_WRITE["leaselock"] in "\n".join(table.markdown())


def test_semaphores_are_measured(server: Redis) -> None:
    preparation: Preparation
    preparation = {"leaselock": Path.exists, "redis": partial(announce, server.url)}
    tables = semaphore.measure(preparation, TINY)
    assert [table.title for table in tables] == [
        "semaphore: 2 processes, 1 permit, 10 ms hold",
        "semaphore: 2 processes, 1 permit, 0 ms hold",
    ]
    for table in tables:
        assert list(table.data["contestants"]) == ["leaselock", "redis"]
        assert min(one["rate"] for one in table.data["contestants"].values()) > 0
        assert SEMAPHORES["leaselock"] in "\n".join(table.markdown())


def test_figures_of_contention() -> None:
    figures = summary(HISTORY, cpu=3.0)
    assert (figures.processes, figures.cpu) == (2, 1.0)
    assert figures.rate == pytest.approx(3 / 60e-9)
    assert (figures.p50, figures.longest) == (20e-9, 30e-9)
    assert figures.hold == pytest.approx(50e-9 / 3)
    assert figures.transfers == pytest.approx(2 / 60e-9)
    assert figures.jain == pytest.approx(0.9)
