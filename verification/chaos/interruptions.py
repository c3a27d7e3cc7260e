"""python -m verification.chaos.interruptions [--seconds S] [STORE ...]

Interrupt every operation at every suspension, again and again, on private servers without faults:
half of the time by cancelled tasks, half of it by Ctrl-C in threads. Each suspension is interrupted
when it begins, when it ends, and together with the following one. After each interruption another
client must get all locks, long before their leases end.

On a busy machine everything takes longer. Another process measures all the time by how much its
timer is late. What a timer was late in the same interval does not count against the bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from testkit.conformance import SCENARIOS
from testkit.conformance.runner import HARNESSES
from verification.chaos.stores import STORES
from verification.chaos.timer import Delay, Timer, late

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness, Interruption

# No lock may be held for longer after an interruption, in seconds, on an idle machine.
BOUND = 0.5


class Figures(NamedTuple):
    """What one store and driver has shown."""

    store: str
    driver: str
    interruptions: list[Interruption]
    delays: list[Delay]

    def late(self, each: Interruption) -> float:
        """By how many seconds the timer was late, in all, until the locks were free."""
        return late(self.delays, each.began, each.began + each.seconds)

    def long(self) -> list[Interruption]:
        """The interruptions after which a lock was held for longer than the bound."""
        return [each for each in self.interruptions if each.seconds > BOUND]

    def slow(self) -> list[Interruption]:
        """Those of them that the load of the machine does not explain."""
        return [each for each in self.long() if each.seconds - self.late(each) > BOUND]

    def __str__(self) -> str:
        seconds = [each.seconds for each in self.interruptions]
        operations = {each.name.partition(" ")[0] for each in self.interruptions}
        worst = max((delay.late for delay in self.delays), default=0.0)
        return (
            f"| {self.store} | {self.driver} | {len(operations)} | {len(seconds)} "
            f"| {statistics.median(seconds) * 1e3:.1f} ms | {max(seconds) * 1e3:.1f} ms "
            f"| {worst * 1e3:.1f} ms | {len(self.long())} | {len(self.slow())} |"
        )


def measure(name: str, driver: str, seconds: float) -> Figures:
    """Interrupt operations on one store for some seconds."""
    with tempfile.TemporaryDirectory(prefix="interruptions-") as folder, ExitStack() as stack:
        store = STORES[name](stack)
        harness = HARNESSES[driver](store, store.fresh(Path(folder)), Path(folder))
        harness.moments = ("before", "after", "twice")
        with Timer() as timer:
            harness.run(harness.run_and_close(repeat(harness, seconds)))
        return Figures(name, driver, harness.interruptions, timer.delays)


async def repeat(harness: Harness, seconds: float) -> None:
    """Play the scenarios about interruptions that the store can play, until the time is up."""
    ours = [each for each in SCENARIOS if each.name.startswith("interruption.")]
    playable = [each for each in ours if not each.skip_reason(harness.store, harness.driver)]
    deadline = harness.now() + seconds
    while harness.now() < deadline:
        for scenario in playable:
            await scenario.function(harness)


def main(arguments: list[str] | None = None) -> int:
    """Run, and print a table; return 1 if a lock was held for too long."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.chaos.interruptions", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each store")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    words: Any = parser.parse_args(arguments)
    print(
        "| store | driver | operations | interruptions | free after: median | longest "
        f"| timer late: longest | over {BOUND:g} s | without the timer's delay |"
    )
    print("| - | - | - | - | - | - | - | - | - |")
    slow = False
    for name in words.stores or STORES:
        for driver in HARNESSES:
            figures = measure(name, driver, words.seconds / len(HARNESSES))
            print(figures, flush=True)
            for each in figures.long():
                print(
                    f"{each.name}: free after {each.seconds:.3f} s, in which a timer was late by "
                    f"{figures.late(each):.3f} s",
                    file=sys.stderr,
                    flush=True,
                )
            slow = slow or bool(figures.slow())
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
