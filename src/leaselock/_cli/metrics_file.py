"""The metrics of `run --metrics-file`: a file for the textfile collector of node exporter.

A command that ends cannot be scraped. Each run adds to the counters in the file, and replaces the
file, so that the collector never reads half of one. Several jobs may share a file.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.exit_codes import Negative
from leaselock._cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._cli.supervisor import Outcome

RUNS = "leaselock_run_total"
WAITED = "leaselock_run_waited_seconds_total"
HELD = "leaselock_run_held_seconds_total"
LAST = "leaselock_run_last_timestamp_seconds"
# The help and the type of each.
METRICS = {
    RUNS: ("Runs of leaselock run, by their outcome.", "counter"),
    WAITED: ("Seconds for which runs waited for the lock.", "counter"),
    HELD: ("Seconds for which runs held the lock.", "counter"),
    LAST: ("When the last run with that outcome ended, in Unix time.", "gauge"),
}
OUTCOMES = ("succeeded", "failed", "busy", "lost", "max_hold", "error")
BY_CODE = {0: "succeeded", exit_codes.LOST: "lost", exit_codes.MAX_HOLD: "max_hold"}
SERIES = r"(\w+)(\{.*\}) (\S+)"


class Run:
    """What is known of one run."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.granted: float | None = None
        self.outcome = "error"

    def ended(self, outcome: Outcome) -> None:
        """The command has ended, and the lock is released. A failure says that leaselock ended it,
        so that a command which exits 76 or 124 by itself has failed.
        """
        by_itself = outcome.code and not outcome.failure
        self.outcome = "failed" if by_itself else BY_CODE.get(outcome.code, "failed")


@contextmanager
def recorded(path: str | None, name: str) -> Iterator[Run]:
    """Add a run under the lock *name* to the file *path*, if there is one, however it ends."""
    run = Run()
    try:
        yield run
    except Negative:
        run.outcome = "busy"
        raise
    finally:
        if path is not None:
            try:
                _add(path, name, run)
            except (OSError, ValueError) as error:
                # The exit code belongs to the command.
                say(f"warning: cannot write the metrics to {path}: {error}")


def _add(path: str, name: str, run: Run) -> None:
    from leaselock.contrib.labels import family, printable

    lock = printable(family(name))
    folder = os.path.dirname(path) or "."
    with _alone(f"{path}.lock"):
        series = _read(path)
        now = time.monotonic()
        granted = now if run.granted is None else run.granted
        for outcome in OUTCOMES:
            # `increase` does not see the first value of a series.
            series.setdefault(_key(RUNS, lock=lock, outcome=outcome), 0.0)
        series[_key(RUNS, lock=lock, outcome=run.outcome)] += 1
        series[_key(LAST, lock=lock, outcome=run.outcome)] = time.time()
        for metric, seconds in ((WAITED, granted - run.began), (HELD, now - granted)):
            key = _key(metric, lock=lock)
            series[key] = series.get(key, 0.0) + seconds
        # Not "*.prom": the collector would read it.
        temporary = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(_text(series))
        # The collector runs as another user.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Let no other run change the file meanwhile."""
    with open(path, "w") as file:
        if sys.platform == "win32":
            import errno
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError as error:  # it tries for ten seconds
                    if error.errno != errno.EDEADLOCK:
                        raise
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(metric: str, **labels: str) -> str:
    quoted = (
        value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for value in labels.values()
    )
    pairs = (f'{name}="{value}"' for name, value in zip(labels, quoted, strict=True))
    return f"{metric}{{{','.join(pairs)}}}"


def _read(path: str) -> dict[str, float]:
    """The series in the file, by name and labels; ValueError if it is the file of another program,
    which must not be replaced.
    """
    import re

    try:
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line and not line.startswith("#")]
    except FileNotFoundError:
        return {}
    series = {}
    for line in lines:
        found = re.fullmatch(SERIES, line)
        if found is None or found[1] not in METRICS:
            raise ValueError("it has metrics of another program")
        series[f"{found[1]}{found[2]}"] = float(found[3])
    return series


def _text(series: dict[str, float]) -> str:
    lines = []
    for metric, (text, kind) in METRICS.items():
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        mine = sorted(key for key in series if key.startswith(f"{metric}{{"))
        lines += [f"{key} {series[key]:.3f}".removesuffix(".000") for key in mine]
    return "\n".join([*lines, ""])
