"""Elections of client-go and locks of leaselock on one Lease, while both are killed and stopped:

    python -m verification.interop.client_go --seconds 600

Four processes contend, two of each. Every few seconds one of them is killed and started again, or
stopped for longer or shorter than its lease. Each writes down when it waits, and from when to when
it holds. The report counts the turns of each, the overlaps, and the longest wait.

A process that was stopped for longer than its lease wakes up after another one has taken over. A
lease of leaselock knows by its clock that it has ended. client-go has no such clock: a term goes on
until its next renewal fails. Overlaps that begin so are counted apart. If it releases the Lease
then, it clears that of the next holder; the program of the test ends instead.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from testkit.servers.kubernetes import Elector, KubeApiserver
from testkit.servers.process import Process

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
NAME = "shared"
# The lease of client-go's program, and of ours.
LEASE = 3.0
HOLD = 0.2
# client-go is served when no client of ours waits, so these pause between two turns.
PAUSES = 0.3, 1.5
# How often something happens to one of them, how often it is a kill, and how long a stop lasts.
EVERY, KILLED, STOPS = (1.0, 4.0), 0.4, (0.5, 6.0)
LOOK = 0.002
BOTH = ("leaselock", "client-go")


# --- a process of ours ----------------------------------------------------------------------------


def contend(url: str) -> None:
    """Wait, hold, pause, and so on; write each down with the Unix time, as the other program."""
    chance = random.Random()
    with leaselock.Client(url) as client:
        lock = client.lock(NAME, lease=LEASE)
        while True:
            report("wait", time.time())
            try:
                with lock as lease:
                    hold(lease)
            except leaselock.LeaselockError as error:
                print(f"# {type(error).__name__}: {error}", flush=True)
            time.sleep(chance.uniform(*PAUSES))


def hold(lease: leaselock.Lease) -> None:
    """Hold for a while. The last time is one at which the lease was still valid after that."""
    # The grant was valid when it was given; before the first look nothing is claimed.
    led = None
    until = time.monotonic() + HOLD
    try:
        while time.monotonic() < until:
            now = time.time()
            lease.ensure()
            if led is None:
                report("lead", now)
            led = now
            time.sleep(LOOK)
    finally:
        if led is not None:
            report("leave", led)


def report(what: str, when: float) -> None:
    """Write a line, as the elector does."""
    print(f"{what} {when:.6f}", flush=True)


# --- what is recorded -----------------------------------------------------------------------------


class Term(NamedTuple):
    """One hold, without the time for which its process was stopped."""

    began: float
    ended: float
    who: str
    woken: bool
    """Whether this is what came after a stop."""


class Contender:
    """One process after the other with the same part, and what was done to them."""

    def __init__(self, who: str, start: Callable[[int], Process]) -> None:
        self.who, self.start_one = who, start
        self.lives: list[Process] = []
        self.deaths: list[float] = []
        self.stops: list[tuple[float, float]] = []
        self.start()

    def start(self) -> None:
        """Start a process."""
        self.lives.append(self.start_one(len(self.lives)))

    def kill(self) -> None:
        """Kill the process."""
        self.lives[-1].kill()
        self.deaths.append(time.time())

    def stop_for(self, seconds: float) -> None:
        """Stop it for a while."""
        began = time.time()
        self.lives[-1].pause()
        time.sleep(seconds)
        # It runs from a moment after this on: not earlier.
        self.stops.append((began, time.time()))
        self.lives[-1].cont()

    def _lines(self) -> Iterator[tuple[str, float, float]]:
        """What, when, and the end of the life that it belongs to."""
        for life, death in zip(self.lives, self.deaths, strict=True):
            for line in life.output().splitlines():
                what, _, when = line.partition(" ")
                if what in ("wait", "lead", "leave"):
                    yield what, float(when), death

    def terms(self) -> Iterator[Term]:
        """Its holds."""
        led, end = None, 0.0
        for what, when, death in self._lines():
            if led is not None and (what == "leave" or death != end):
                yield from self._parts(led, when if what == "leave" and death == end else end)
                led = None
            if what == "lead":
                led, end = when, death
        if led is not None:
            yield from self._parts(led, end)

    def _parts(self, began: float, ended: float) -> Iterator[Term]:
        woken = False
        for stopped, continued in self.stops:
            if began < continued and stopped < ended:
                if began < stopped:
                    yield Term(began, stopped, self.who, woken)
                began, woken = continued, True
        if began < ended:
            yield Term(began, ended, self.who, woken)

    def turns(self) -> int:
        """How often it held."""
        return sum(what == "lead" for what, _, _ in self._lines())

    def waits(self) -> list[float]:
        """How long it waited each time, where it was neither stopped nor killed meanwhile."""
        lines = list(self._lines())
        return [
            led - begun
            for (what, begun, life), (then, led, same) in pairwise(lines)
            if (what, then) == ("wait", "lead") and life == same
            if not any(begun < continued and stopped < led for stopped, continued in self.stops)
        ]

    def complaints(self) -> list[str]:
        """What it says besides."""
        return [
            line
            for life in self.lives
            for line in life.output().splitlines()
            if line.startswith("# ")
        ]


class Outcome(NamedTuple):
    """What came of a run."""

    seconds: float
    turns: dict[str, int]
    longest_wait: dict[str, float]
    kills: dict[str, int]
    stops: dict[str, int]
    overlaps: list[tuple[Term, Term]]
    after_stop: list[tuple[Term, Term]]
    """Those of a term of client-go whose process was stopped in it."""
    complaints: list[str]


def overlaps(terms: Sequence[Term]) -> list[tuple[Term, Term]]:
    """Each pair of terms that overlap, the one that began earlier first."""
    found: list[tuple[Term, Term]] = []
    open_terms: list[Term] = []
    for term in sorted(terms):
        open_terms = [other for other in open_terms if other.ended > term.began]
        found += [(other, term) for other in open_terms]
        open_terms.append(term)
    return found


def judged(contenders: Sequence[Contender], seconds: float) -> Outcome:
    """Judge what was recorded."""
    pairs = overlaps([term for contender in contenders for term in contender.terms()])
    known = [pair for pair in pairs if any(t.woken and t.who == "client-go" for t in pair)]
    of = {kind: [c for c in contenders if c.who == kind] for kind in BOTH}
    return Outcome(
        seconds,
        {kind: sum(c.turns() for c in of[kind]) for kind in BOTH},
        {kind: max((w for c in of[kind] for w in c.waits()), default=0.0) for kind in BOTH},
        # Each is killed in the end.
        {kind: sum(len(c.deaths) - 1 for c in of[kind]) for kind in BOTH},
        {kind: sum(len(c.stops) for c in of[kind]) for kind in BOTH},
        [pair for pair in pairs if pair not in known],
        known,
        [text for c in contenders for text in c.complaints()],
    )


# --- the run --------------------------------------------------------------------------------------


def run(server: KubeApiserver, seconds: float, seed: int) -> Outcome:
    """Have four processes contend in a new namespace for that many seconds of faults."""
    namespace = server.namespace()
    url = server.url(namespace)

    def ours(number: int, life: int) -> Process:
        log = server.folder / f"{namespace}-ours-{number}-{life}"
        return Process([sys.executable, "-m", __spec__.name, "--contend", url], log)

    def theirs(number: int, life: int) -> Process:
        identity = f"{namespace}-theirs-{number}-{life}"
        return Elector(server, namespace, NAME, identity, HOLD).process

    def contender(kind: str, number: int) -> Contender:
        start = ours if kind == "leaselock" else theirs
        return Contender(kind, lambda life: start(number, life))

    chance = random.Random(seed)
    began = time.monotonic()
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for kind in BOTH * 2:
            one = contender(kind, len(contenders))
            contenders.append(one)
            stack.callback(one.kill)
        while time.monotonic() < began + seconds:
            time.sleep(chance.uniform(*EVERY))
            for one in contenders:
                if not one.lives[-1].alive:
                    one.kill()
                    one.start()
            one = chance.choice(contenders)
            if chance.random() < KILLED:
                one.kill()
                one.start()
            else:
                one.stop_for(chance.uniform(*STOPS))
    return judged(contenders, time.monotonic() - began)


def text(outcome: Outcome) -> str:
    """The report."""
    rows = [
        f"| {kind} | {outcome.turns[kind]:,} | {outcome.longest_wait[kind]:.1f} s "
        f"| {outcome.kills[kind]} | {outcome.stops[kind]} |"
        for kind in BOTH
    ]
    return "\n".join(
        [
            "| | turns | longest wait | kills | stops |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"{len(outcome.overlaps)} overlaps, and {len(outcome.after_stop)} of a term of "
            f"client-go that went on after its process was stopped, in {outcome.seconds:.0f} s.",
            *(f"overlap: {one} {other}" for one, other in outcome.overlaps),
            *(f"after a stop: {one} {other}" for one, other in outcome.after_stop),
            *outcome.complaints,
        ]
    )


def main() -> int:
    """Run, and print the report; return 1 if two held at once or one side never did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--contend", metavar="URL", help="be one of the processes")
    options = parser.parse_args()
    if options.contend:
        contend(options.contend)
    with KubeApiserver() as server:
        outcome = run(server, options.seconds, options.seed)
    print(text(outcome))
    return 1 if outcome.overlaps or not all(outcome.turns.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
