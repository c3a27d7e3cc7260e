"""Several processes contend for one lock, each holding it for a given time.

All contestants are measured alternately, in random order, and compared within each round.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from benchmarks.contender_group import EXCLUSIVE, ContenderGroup, ContentionSample
from benchmarks.contestants import CLASSES, REFERENCE, TITLES, contestant, present
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scale import Scale

HOLDS = (0.001, 0.0)
HEAD = [
    *("p99 / ideal", "longest / ideal", "Jain", "hand-off, µs"),
    *("holds/s", "transfers/s", "wait p50, ms", "p99, ms", "longest, ms", "of all, ms"),
    "client CPU, µs",
]
MAX_P99, MAX_WAIT = 2.0, 4.0
Samples = dict[str, list[ContentionSample]]
Figures = TypeVar("Figures")


class ContentionSetup(NamedTuple):
    """The contestants, their reference and folder; how to count commands and time a round trip."""

    names: Sequence[str]
    reference: str
    prepare: Callable[[Path], object] = Path.exists
    counter: Callable[[], int] | None = None
    round_trip: Callable[[], float] = float


def run(scale: Scale) -> list[Table]:
    """Measure all contestants that can wait, with each hold time."""
    names = [name for name in present(CLASSES) if contestant(name).waits]
    by_hold = contend(ContentionSetup(names, REFERENCE), scale, scale.contenders, HOLDS)
    tables = []
    for hold, rounds in by_hold.items():
        table = table_of(rounds, scale.contenders, hold, REFERENCE)
        ours = table.data["contestants"]["leaselock"]
        tables.append(table._replace(goals=waits(ours, MAX_P99, MAX_WAIT) if hold else []))
    return tables


def contend(
    setup: ContentionSetup, scale: Scale, size: int, holds: Sequence[float]
) -> dict[float, Samples]:
    """Measure all contestants, for each hold time; the other groups are idle meanwhile."""

    def sample(group: ContenderGroup, hold: float) -> ContentionSample:
        trip = setup.round_trip()
        figures = group.sample(hold, scale.contention_seconds, setup.counter)
        return figures._replace(round_trip=trip)

    groups = [ContenderGroup(name, [EXCLUSIVE] * size, setup.prepare) for name in setup.names]
    return alternate(groups, holds, scale.contention_rounds, sample)


def alternate(
    groups: Sequence[ContenderGroup],
    holds: Sequence[float],
    rounds: int,
    sample: Callable[[ContenderGroup, float], Figures],
) -> dict[float, dict[str, list[Figures]]]:
    """Sample all groups with all hold times, in a different order in each round."""
    found: dict[float, dict[str, list[Figures]]]
    found = {hold: {group.name: [] for group in groups} for hold in holds}
    pending = [(hold, group) for hold in holds for group in groups]
    with ExitStack() as stack:
        for group in groups:
            stack.enter_context(group)
        for _ in range(rounds):
            for hold, group in random.sample(pending, len(pending)):
                found[hold][group.name].append(sample(group, hold))
    return found


def table_of(rounds: Samples, size: int, hold: float, reference: str) -> Table:
    """Return the medians of all figures over the rounds, and the longest wait of all rounds."""
    reference = reference if reference in rounds else next(iter(rounds))
    base = [one.rate for one in rounds[reference]]
    counted = any(one.commands for mine in rounds.values() for one in mine)
    rows, data = [], {}
    for name, mine in rounds.items():
        middle = ContentionSample(*(spread(values).median for values in zip(*mine, strict=True)))
        worst = max(one.longest for one in mine)
        against = ratio([one.rate for one in mine], base).median
        commands = [f"{middle.commands:.1f}"] if counted else []
        rows.append([TITLES[name], f"{against:.2f}", *_cells(middle, worst, hold), *commands])
        data[name] = middle._asdict() | {"ratio": against, "ideal": middle.ideal, "worst": worst}
    title = f"contention: {size} processes, {hold * 1e3:g} ms hold"
    notes = ["in every round no two holds overlapped and the counter had the right value"]
    if hold:
        notes.append(f"ideal: {size} x the measured hold time")
    head = ["contestant", f"throughput x {reference}", *HEAD, *["commands"][: int(counted)]]
    extent = {"processes": size, "hold": hold}
    return Table(title, head, rows, {"contestants": data, **extent}, [], notes)


def _cells(middle: ContentionSample, worst: float, hold: float) -> list[str]:
    over = [f"{wait / middle.ideal:.2f}" for wait in (middle.p99, middle.longest)]
    waits = [f"{wait * 1e3:,.2f}" for wait in (middle.p50, middle.p99, middle.longest, worst)]
    rest = [f"{middle.rate:,.0f}", f"{middle.transfers:,.0f}", *waits, f"{middle.cpu * 1e6:,.0f}"]
    fair = [f"{middle.jain:.3f}", f"{middle.handoff * 1e6:,.0f}"]
    return [*(over if hold else ["", ""]), *fair, *rest]


def waits(figures: dict[str, float], p99_most: float, longest_most: float) -> list[Goal]:
    """Return the goals for the waits, as multiples of the ideal."""
    ideal = figures["ideal"]
    return [
        Goal("p99 of the waits / ideal", figures["p99"] / ideal, p99_most),
        Goal("longest wait / ideal", figures["longest"] / ideal, longest_most),
    ]
