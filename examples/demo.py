"""Several processes update one file; one of them is killed and one is suspended.

Run it: python examples/demo.py. It takes about fifteen seconds, needs no server and removes its
files. demo_worker.py is the program that uses the lock; this file starts it, injects the faults
and reports. Exit code: 0 if every guarantee was kept, 1 otherwise.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.recorder import Recorder
from leaselock.testing.verdict import Kind, Verdict

WORKER = Path(__file__).with_name("demo_worker.py")
PROCESSES = 6
UNLOCKED_SECONDS = 2.0
LOCKED_SECONDS = 10.0
KILL_AT, STOP_AT = 2.0, 4.0
SHORT_LEASE = 1.5
RESUME_DELAY = 0.5
# These only tell a fault from a machine that is busy with other work.
REPLY_TIMEOUT = 120.0
FREE_AT_ONCE = 10.0  # where the lease would have lasted 30 s
TITLE_WIDTH = 46


class Display:
    """Prints progress: one line that is overwritten on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.colours = self.live and not os.environ.get("NO_COLOR")
        self.began = time.monotonic()
        self.shown = self.began

    def line(self, text: str = "") -> None:
        """Print a permanent line."""
        self.shown = time.monotonic()
        print(f"\r\033[K{text}" if self.live else text, flush=True)

    def event(self, text: str) -> None:
        """Print a permanent line with the elapsed time."""
        self.line(f"  {self.elapsed():4.1f} s   {text}")

    def progress(self, text: str) -> None:
        """Print a line that the next one overwrites; without a terminal, one every two seconds."""
        if self.live:
            print(f"\r\033[K  {self.elapsed():4.1f} s   {text}", end="", flush=True)
        elif time.monotonic() - self.shown > 2.0:
            self.event(text)

    def elapsed(self) -> float:
        """Return the seconds since the demo started."""
        return time.monotonic() - self.began

    def coloured(self, text: str, good: bool) -> str:
        """Return *text* in green or red, if colours are enabled."""
        return f"\033[{32 if good else 31}m{text}\033[0m" if self.colours else text


class Workers:
    """The worker processes of one run; all update one ledger."""

    def __init__(self, display: Display, folder: Path, roles: list[str], seconds: float) -> None:
        self.display = display
        self.folder = folder
        self.seconds = seconds
        self.until = 0.0
        self.processes = {f"{role} {n}": self._start(role) for n, role in enumerate(roles)}

    def _start(self, role: str) -> subprocess.Popen[str]:
        environment = os.environ | {"XDG_STATE_HOME": str(self.folder / "state")}
        environment.pop("LEASELOCK_URL", None)
        return subprocess.Popen(
            [sys.executable, str(WORKER), role, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            process_group=0,  # Ctrl-C must reach this process only, which ends the workers
        )

    def __enter__(self) -> Self:
        """Let all begin, when the last one is ready: a busy machine takes long to start them."""
        for worker in self.processes.values():
            self.receive(worker)
        start = time.monotonic()
        self.until = start + self.seconds
        for name, worker in self.processes.items():
            fault_at = start + {"killed": KILL_AT, "stopped": STOP_AT}.get(name.split()[0], 0.0)
            tell(worker, f"{self.until!r} {fault_at!r} {SHORT_LEASE!r}")
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.processes.values():
            worker.kill()
            worker.communicate()

    def number(self) -> int:
        """Return the number in the ledger."""
        ledger = self.folder / "ledger"
        return int((ledger.read_text().split() or ["0"])[0]) if ledger.exists() else 0

    def of(self, role: str) -> subprocess.Popen[str]:
        """Return the only worker with this role."""
        (found,) = (worker for name, worker in self.processes.items() if name.split()[0] == role)
        return found

    def receive(self, worker: subprocess.Popen[str]) -> dict[str, Any]:
        """Return the next message of a worker; show progress while waiting for it."""
        assert worker.stdout is not None
        deadline = max(time.monotonic(), self.until) + REPLY_TIMEOUT
        while time.monotonic() < deadline:
            if select.select([worker.stdout], [], [], 0.1)[0]:
                if line := worker.stdout.readline():
                    message: dict[str, Any] = json.loads(line)
                    return message
                raise SystemExit(f"a worker process ended unexpectedly: {worker.wait()}")
            began = f"{self.number():,} updates so far" if self.until else "the processes start"
            self.display.progress(began)
        raise SystemExit("a worker process does not respond")

    def wait_for_an_update(self) -> float:
        """Return the seconds until the next update of the ledger."""
        number, began = self.number(), time.monotonic()
        while self.number() == number and time.monotonic() < self.until + REPLY_TIMEOUT:
            time.sleep(0.001)
        return time.monotonic() - began

    def updates(self) -> int:
        """Return how many updates the workers made in total, when all have ended."""
        return sum(int(self.receive(worker)["updates"]) for worker in self.processes.values())


def tell(worker: subprocess.Popen[str], line: str) -> None:
    """Send a line to a worker."""
    assert worker.stdin is not None
    print(line, file=worker.stdin, flush=True)


class Outcome(NamedTuple):
    """The result of the run with the lock."""

    verdict: Verdict
    number: int
    free_after: float
    late: dict[str, Any]


def without_lock(display: Display, folder: Path) -> tuple[int, int]:
    """Return the number of updates made, and of those found in the file."""
    display.line("1. without a lock")
    with Workers(display, folder, ["unlocked"] * PROCESSES, UNLOCKED_SECONDS) as workers:
        made = workers.updates()
        return made, workers.number()


def with_lock(display: Display, folder: Path) -> Outcome:
    """Do the same with leaselock; kill one process and stop another."""
    display.line("2. with leaselock, and with faults")
    roles = ["killed", "stopped", *["steady"] * (PROCESSES - 2)]
    with Workers(display, folder, roles, LOCKED_SECONDS) as workers:
        free_after = kill_one(workers, folder)
        late = stop_one(workers)
        workers.updates()
        verdict = check(History.read(folder / "history"), rules())
        return Outcome(verdict, workers.number(), free_after, late)


def rules() -> Rules:
    """Return what must have happened at least, and how long a dead holder may block the others."""
    bound = round(FREE_AT_ONCE * 1e9)
    return Rules(min_grants=20, min_contention=0.3, min_died_holding=1, ghost_bound=bound)


def kill_one(workers: Workers, folder: Path) -> float:
    """Kill the worker that holds the lock; return the seconds until the next update."""
    victim = workers.of("killed")
    workers.receive(victim)
    with Recorder(folder / "history") as recorder:
        recorder.killed(victim.pid)
    victim.send_signal(signal.SIGKILL)
    workers.processes.pop("killed 0").communicate()
    workers.display.event(f"process {victim.pid} was killed (SIGKILL) while it held the lock")
    seconds = workers.wait_for_an_update()
    workers.display.event(f"   the next process updated the file {seconds * 1000:.0f} ms later")
    return seconds


def stop_one(workers: Workers) -> dict[str, Any]:
    """Stop the lock holder until its lease has ended; return what it reports then."""
    victim, display = workers.of("stopped"), workers.display
    token = workers.receive(victim)["holding"]
    victim.send_signal(signal.SIGSTOP)
    display.event(f"process {victim.pid} was stopped (SIGSTOP) while it held the lock")
    seconds = workers.wait_for_an_update()
    display.event(
        f"   its lease of {SHORT_LEASE} s ended; the next update came {seconds:.1f} s later"
    )
    time.sleep(RESUME_DELAY)
    victim.send_signal(signal.SIGCONT)
    tell(victim, "go on")
    late = workers.receive(victim)
    found = f"lost: {late['loss']}" if late["loss"] else "STILL VALID"
    display.event(f"   it was continued (SIGCONT), and its lease was {found}")
    outcome = "rejected" if late["rejected"] else "ACCEPTED"
    display.event(f"   its late update was {outcome}: a newer token than its {token} was used")
    return late


def guarantees(outcome: Outcome) -> list[tuple[str, bool]]:
    """Return each guarantee, and whether it was kept."""
    verdict, wrong = outcome.verdict, outcome.verdict.kinds()
    counted = verdict.counts.writes == outcome.number
    exclusive = {Kind.OVERLAP, Kind.MALFORMED, Kind.VACUOUS}
    tokens = {Kind.TOKEN_ORDER, Kind.TOKEN_REUSED, Kind.NESTED_TOKEN}
    return [
        ("no update was lost", counted and Kind.LOST_UPDATE not in wrong),
        ("never two holders at once", not wrong & exclusive),
        ("each token is greater than the one before", not wrong & tokens),
        ("the lock of a killed holder is free at once", outcome.free_after < FREE_AT_ONCE),
        ("a holder that was stopped for too long learns of the loss", bool(outcome.late["loss"])),
        ("its late update is rejected", outcome.late["rejected"] and Kind.STALE_WRITE not in wrong),
        ("no waiter is blocked while the lock is free", not wrong & {Kind.GHOST, Kind.STALL}),
    ]


def report(display: Display, made: int, found: int, outcome: Outcome) -> bool:
    """Print both runs side by side, and the guarantees; return whether all were kept."""
    counts = outcome.verdict.counts
    waits = (counts.wait_p50, counts.wait_p99, counts.wait_max)
    rows = [
        ("", "without a lock", "with leaselock"),
        ("updates made", f"{made:,}", f"{counts.writes:,}"),
        ("updates found in the file", f"{found:,}", f"{outcome.number:,}"),
        ("updates lost", f"{made - found:,}", f"{counts.writes - outcome.number:,}"),
        ("hand-offs from one process to another", "", f"{counts.hand_overs:,}"),
        ("wait for the lock: median", "", f"{waits[0] / 1e6:,.1f} ms"),
        ("                   99th percentile", "", f"{waits[1] / 1e6:,.1f} ms"),
        ("                   longest (a holder was stopped)", "", f"{waits[2] / 1e6:,.0f} ms"),
    ]
    display.line()
    for title, without, with_it in rows:
        display.line(f"  {title:{TITLE_WIDTH}}{without:>16}{with_it:>16}")
    display.line()
    kept = guarantees(outcome)
    for guarantee, good in kept:
        verdict = display.coloured("kept" if good else "BROKEN", good)
        display.line(f"  {guarantee:{TITLE_WIDTH + 28}}{verdict}")
    return all(good for _, good in kept)


def main() -> int:
    """Run the program without and with the lock, and compare."""
    display = Display()
    display.line(
        f"{PROCESSES} processes add 1 to a number in one file, again and again: they read it,"
    )
    display.line("work for a millisecond, and write the next number.\n")
    with tempfile.TemporaryDirectory(prefix="leaselock-demo-") as folder:
        (bare := Path(folder, "bare")).mkdir()
        (held := Path(folder, "held")).mkdir()
        made, found = without_lock(display, bare)
        display.event(f"{made - found:,} of {made:,} updates were lost\n")
        outcome = with_lock(display, held)
    kept = report(display, made, found, outcome)
    if not kept:
        display.line(f"\n{outcome.verdict}")
    elif made == found:
        display.line("\nNo update was lost without the lock either, so this run has shown nothing.")
    else:
        display.line(f"\n{display.coloured('Every guarantee was kept.', True)}")
    return 0 if kept and made > found else 1


if __name__ == "__main__":
    sys.exit(main())
