"""run --metrics-file: what cron jobs export through node exporter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from tests.cli.processes import Shell, ended

import leaselock

if TYPE_CHECKING:
    from pathlib import Path


def values(path: Path) -> dict[tuple[str, str, str], float]:
    """The values of all series: by metric, lock and outcome."""
    families = text_string_to_metric_families(path.read_text("utf-8"))
    return {
        (each.name, each.labels["lock"], each.labels.get("outcome", "")): each.value
        for metric in families
        for each in metric.samples
    }


def test_each_outcome_is_counted(shell: Shell) -> None:
    path = shell.folder / "job.prom"
    option = ("--metrics-file", str(path))
    for name, script, code in (("a:1", "exit 0", 0), ("a:2", "exit 76", 76)):
        assert shell.run("run", *option, name, "--", "sh", "-c", script).returncode == code
    long = ("--max-hold", "50ms", "a", "--", "sleep", "60")
    assert shell.run("run", *option, *long).returncode == 124
    with leaselock.Client(shell.url) as client, client.lock("a"):
        assert shell.run("run", *option, "-n", "--skip-ok", "a", "true").returncode == 0
    job = shell.job("a", *option)
    holder = shell.holder("a")
    assert holder is not None
    broken = shell.run("break", "a", "--token", str(holder.token), "-m", "test")
    assert (broken.returncode, ended(job.wrapper)) == (0, 76)
    away = ("--url", "redis://127.0.0.1:1/0", "--op-timeout", "100ms")
    assert shell.run(*away, "run", *option, "a", "true").returncode == 69
    found = values(path)
    runs = {
        outcome: value for (name, _, outcome), value in found.items() if name.endswith("run_total")
    }
    assert runs == {
        **{"succeeded": 1, "failed": 1, "max_hold": 1, "busy": 1, "lost": 1, "error": 1}
    }
    assert found["leaselock_run_held_seconds_total", "a", ""] > 0.04
    last = "leaselock_run_last_timestamp_seconds"
    assert found[last, "a", "succeeded"] < found[last, "a", "error"]
    assert {lock for _, lock, _ in found} == {"a"}
    assert not list(shell.folder.glob(".job.prom*"))


def test_runs_at_the_same_time_are_all_counted(shell: Shell) -> None:
    path = shell.folder / "shared.prom"
    words = ("run", "--metrics-file", str(path))
    threads = [
        threading.Thread(target=shell.run, args=(*words, f"job{number % 2}:x", "true"))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(path)
    for lock in ("job0", "job1"):
        assert found["leaselock_run_total", lock, "succeeded"] == 3


def test_a_file_that_cannot_be_written_is_no_failure_of_the_command(shell: Shell) -> None:
    other = shell.folder / "other.prom"
    other.write_text("up 1\n")
    for path in (other, shell.folder / "missing" / "x.prom"):
        done = shell.run("run", "--metrics-file", str(path), "a", "--", "sh", "-c", "exit 3")
        assert done.returncode == 3
        assert "warning: cannot write the metrics" in done.stderr
    assert other.read_text() == "up 1\n"
