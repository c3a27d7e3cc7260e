"""What a lock is for: several processes update one file, and some of them meet with accidents.

Run it: python examples/demo.py. It takes about a quarter of a minute, needs no server and leaves
nothing behind. demo_worker.py is the program that is shown here; this file starts it, does the
harm, and reports. Exit code: 0 if every promise was kept, 1 if one was broken.
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
AFTER_THE_LEASE = 0.5
PATIENCE = 10.0
WIDE = 46


class Screen:
    """Where the demo is seen: one line that changes on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.colours = self.live and not os.environ.get("NO_COLOR")
        self.began = time.monotonic()
        self.shown = self.began

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self.shown = time.monotonic()
        print(f"\r\033[K{text}" if self.live else text, flush=True)

    def event(self, text: str) -> None:
        """A line that stays, with its time."""
        self.say(f"  {self.elapsed():4.1f} s   {text}")

    def progress(self, text: str) -> None:
        """A line that the next one replaces; where nothing can be replaced, one in two seconds."""
        if self.live:
            print(f"\r\033[K  {self.elapsed():4.1f} s   {text}", end="", flush=True)
        elif time.monotonic() - self.shown > 2.0:
            self.event(text)

    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.began

    def paint(self, text: str, good: bool) -> str:
        """Green or red, where there are colours."""
        return f"\033[{32 if good else 31}m{text}\033[0m" if self.colours else text


class Crew:
    """The worker processes of one run, on one ledger."""

    def __init__(self, screen: Screen, folder: Path, roles: list[str], seconds: float) -> None:
        self.screen = screen
        self.folder = folder
        self.start = time.monotonic()
        self.until = self.start + seconds
        self.workers = {f"{role} {n}": self._start(role) for n, role in enumerate(roles)}

    def _start(self, role: str) -> subprocess.Popen[str]:
        fate = self.start + {"killed": KILL_AT, "stopped": STOP_AT}.get(role, 0.0)
        command = [sys.executable, str(WORKER), role, str(self.folder)]
        environment = os.environ | {"XDG_STATE_HOME": str(self.folder / "state")}
        environment.pop("LEASELOCK_URL", None)
        return subprocess.Popen(
            [*command, repr(self.until), repr(fate), repr(SHORT_LEASE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            process_group=0,  # Ctrl-C is for us; we end them
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.communicate()

    def number(self) -> int:
        """What the ledger says, as of now."""
        ledger = self.folder / "ledger"
        return int((ledger.read_text().split() or ["0"])[0]) if ledger.exists() else 0

    def of(self, role: str) -> subprocess.Popen[str]:
        """The one worker with this role."""
        (found,) = (worker for name, worker in self.workers.items() if name.split()[0] == role)
        return found

    def hear(self, worker: subprocess.Popen[str]) -> dict[str, Any]:
        """What a worker says next; meanwhile progress is shown."""
        assert worker.stdout is not None
        deadline = max(time.monotonic(), self.until) + PATIENCE
        while time.monotonic() < deadline:
            if select.select([worker.stdout], [], [], 0.1)[0]:
                if line := worker.stdout.readline():
                    words: dict[str, Any] = json.loads(line)
                    return words
                raise SystemExit(f"a worker process ended before its time: {worker.wait()}")
            self.screen.progress(f"{self.number():,} updates so far")
        raise SystemExit("a worker process is stuck")

    def wait_for_an_update(self) -> float:
        """Seconds until somebody updates the ledger."""
        number, began = self.number(), time.monotonic()
        while self.number() == number and time.monotonic() < self.until + PATIENCE:
            time.sleep(0.001)
        return time.monotonic() - began

    def updates(self) -> int:
        """How many updates the workers believe to have made, when all have ended."""
        return sum(int(self.hear(worker)["updates"]) for worker in self.workers.values())


class Outcome(NamedTuple):
    """What came of the run with the lock."""

    verdict: Verdict
    number: int
    free_after: float
    late: dict[str, Any]


def without_lock(screen: Screen, folder: Path) -> tuple[int, int]:
    """The updates made, and those found in the file."""
    screen.say("1. without a lock")
    with Crew(screen, folder, ["unlocked"] * PROCESSES, UNLOCKED_SECONDS) as crew:
        made = crew.updates()
        return made, crew.number()


def with_lock(screen: Screen, folder: Path) -> Outcome:
    """The same with leaselock, one process being killed and one stopped."""
    screen.say("2. with leaselock, and with accidents")
    roles = ["killed", "stopped", *["steady"] * (PROCESSES - 2)]
    with Crew(screen, folder, roles, LOCKED_SECONDS) as crew:
        free_after = kill_one(crew, folder)
        late = stop_one(crew)
        crew.updates()
        verdict = check(History.read(folder / "history"), rules())
        return Outcome(verdict, crew.number(), free_after, late)


def rules() -> Rules:
    """What must at least have happened, and how long a dead holder may keep the others waiting."""
    return Rules(min_grants=100, min_contention=0.3, min_died_holding=1, ghost_bound=5_000_000_000)


def kill_one(crew: Crew, folder: Path) -> float:
    """Kill the worker that holds the lock; how long does it stay locked?"""
    victim = crew.of("killed")
    crew.hear(victim)
    with Recorder(folder / "history") as recorder:
        recorder.killed(victim.pid)
    victim.send_signal(signal.SIGKILL)
    crew.workers.pop("killed 0").communicate()
    crew.screen.event(f"process {victim.pid} was killed (SIGKILL) while it held the lock")
    seconds = crew.wait_for_an_update()
    crew.screen.event(f"   the next process had made its update {seconds * 1000:.0f} ms later")
    return seconds


def stop_one(crew: Crew) -> dict[str, Any]:
    """Stop the worker that holds the lock until its lease is over; what does it do then?"""
    victim, screen = crew.of("stopped"), crew.screen
    token = crew.hear(victim)["holding"]
    victim.send_signal(signal.SIGSTOP)
    screen.event(f"process {victim.pid} was stopped (SIGSTOP) while it held the lock")
    seconds = crew.wait_for_an_update()
    screen.event(
        f"   its lease of {SHORT_LEASE} s ran out; the next update came {seconds:.1f} s later"
    )
    time.sleep(AFTER_THE_LEASE)
    victim.send_signal(signal.SIGCONT)
    assert victim.stdin is not None
    print("go on", file=victim.stdin, flush=True)
    late = crew.hear(victim)
    found = f"its lease lost: {late['loss']}" if late["loss"] else "NOTHING AMISS"
    screen.event(f"   it was continued (SIGCONT), and found {found}")
    what = "refused" if late["refused"] else "ACCEPTED"
    screen.event(f"   its late update was {what}: its token {token} is an old one by now")
    return late


def promises(outcome: Outcome) -> list[tuple[str, bool]]:
    """What was promised, and whether it was kept."""
    verdict, wrong = outcome.verdict, outcome.verdict.kinds()
    counted = verdict.counts.writes == outcome.number
    exclusive = {Kind.OVERLAP, Kind.MALFORMED, Kind.VACUOUS}
    tokens = {Kind.TOKEN_ORDER, Kind.TOKEN_REUSED, Kind.NESTED_TOKEN}
    return [
        ("no update was lost", counted and Kind.LOST_UPDATE not in wrong),
        ("never two holders at once", not wrong & exclusive),
        ("no token was repeated, each is greater than the last", not wrong & tokens),
        ("a killed holder's lock is free at once", outcome.free_after < 1.0),
        ("a holder that was stopped too long finds out", bool(outcome.late["loss"])),
        ("its late update is refused", outcome.late["refused"] and Kind.STALE_WRITE not in wrong),
        ("nobody waits for a lock that nobody holds", not wrong & {Kind.GHOST, Kind.STALL}),
    ]


def report(screen: Screen, made: int, found: int, outcome: Outcome) -> bool:
    """Print both runs side by side, and what was kept of what was promised."""
    counts = outcome.verdict.counts
    waits = (counts.wait_p50, counts.wait_p99, counts.wait_max)
    rows = [
        ("", "without a lock", "with leaselock"),
        ("updates made", f"{made:,}", f"{counts.writes:,}"),
        ("updates found in the file", f"{found:,}", f"{outcome.number:,}"),
        ("updates lost", f"{made - found:,}", f"{counts.writes - outcome.number:,}"),
        ("hand-overs from one process to another", "", f"{counts.hand_overs:,}"),
        ("wait for the lock: half of them below", "", f"{waits[0] / 1e6:,.1f} ms"),
        ("                   99 of 100 below", "", f"{waits[1] / 1e6:,.1f} ms"),
        ("                   longest (a holder was stopped)", "", f"{waits[2] / 1e6:,.0f} ms"),
    ]
    screen.say()
    for title, without, with_it in rows:
        screen.say(f"  {title:{WIDE}}{without:>16}{with_it:>16}")
    screen.say()
    kept = promises(outcome)
    for promise, good in kept:
        screen.say(f"  {promise:{WIDE + 28}}{screen.paint('kept' if good else 'BROKEN', good)}")
    return all(good for _, good in kept)


def main() -> int:
    """Run the program twice and compare."""
    screen = Screen()
    screen.say(
        f"{PROCESSES} processes add 1 to a number in one file, again and again: they read it,"
    )
    screen.say("work for a millisecond, and write the next number.\n")
    with tempfile.TemporaryDirectory(prefix="leaselock-demo-") as folder:
        (bare := Path(folder, "bare")).mkdir()
        (held := Path(folder, "held")).mkdir()
        made, found = without_lock(screen, bare)
        screen.event(f"{made - found:,} of {made:,} updates were lost\n")
        outcome = with_lock(screen, held)
    kept = report(screen, made, found, outcome)
    if not kept:
        screen.say(f"\n{outcome.verdict}")
    elif made == found:
        screen.say("\nWithout the lock nothing was lost either, so this run has shown nothing.")
    else:
        screen.say(f"\n{screen.paint('Every promise was kept.', True)}")
    return 0 if kept and made > found else 1


if __name__ == "__main__":
    sys.exit(main())
