"""Several processes want one lock all the time: as many as asked, each holding it for a while.

Law: all contestants take turns in random order, round by round, and are compared within each round.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import CLASSES, REFERENCE, TITLES, contestant, present
from benchmarks.crowd import Crowd, Round
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scale import Scale

HOLDS = (0.001, 0.0)
HEAD = [
    *("p99 / ideal", "longest / ideal", "Jain", "hand-over, µs"),
    *("holds/s", "passed on/s", "wait p50, ms", "p99, ms", "longest, ms", "of all, ms"),
    "client CPU, µs",
]
P99_MOST, LONGEST_MOST = 2.0, 4.0
Rounds = dict[str, list[Round]]


class Bill(NamedTuple):
    """Who is measured, against whom, where; what counts the server's commands; and what times a
    bare round trip.
    """

    names: Sequence[str]
    reference: str
    prepare: Callable[[Path], object] = Path.exists
    counter: Callable[[], int] | None = None
    trip: Callable[[], float] = float


def run(scale: Scale) -> list[Table]:
    """Measure those who can wait, with each length of hold."""
    names = [name for name in present(CLASSES) if contestant(name).waits]
    by_hold = contend(Bill(names, REFERENCE), scale, scale.crowd, HOLDS)
    tables = []
    for hold, rounds in by_hold.items():
        table = table_of(rounds, scale.crowd, hold, REFERENCE)
        ours = table.data["contestants"]["leaselock"]
        tables.append(table._replace(goals=waits(ours, P99_MOST, LONGEST_MOST) if hold else []))
    return tables


def contend(bill: Bill, scale: Scale, size: int, holds: Sequence[float]) -> dict[float, Rounds]:
    """The rounds of all contestants, for each hold; all crowds are there, and idle meanwhile."""
    found: dict[float, Rounds] = {hold: {name: [] for name in bill.names} for hold in holds}
    turns = [(hold, name) for hold in holds for name in bill.names]
    with ExitStack() as stack:
        crowds = {n: stack.enter_context(Crowd(n, size, bill.prepare)) for n in bill.names}
        for _ in range(scale.crowd_rounds):
            for hold, name in random.sample(turns, len(turns)):
                trip = bill.trip()
                turn = crowds[name].turn(hold, scale.crowd_turn, bill.counter)
                found[hold][name].append(turn._replace(trip=trip))
    return found


def table_of(rounds: Rounds, size: int, hold: float, reference: str) -> Table:
    """Medians over the rounds, of the longest waits too; the worst of all stands beside them."""
    reference = reference if reference in rounds else next(iter(rounds))
    base = [one.rate for one in rounds[reference]]
    counted = any(one.commands for mine in rounds.values() for one in mine)
    rows, data = [], {}
    for name, mine in rounds.items():
        middle = Round(*(spread(values).median for values in zip(*mine, strict=True)))
        worst = max(one.longest for one in mine)
        against = ratio([one.rate for one in mine], base).median
        commands = [f"{middle.commands:.1f}"] if counted else []
        rows.append([TITLES[name], f"{against:.2f}", *_cells(middle, worst, hold), *commands])
        data[name] = middle._asdict() | {"ratio": against, "ideal": middle.ideal, "worst": worst}
    title = f"contention: {size} processes, {hold * 1e3:g} ms hold"
    notes = ["in every round no two holds overlapped and the counter came out right"]
    if hold:
        notes.append(f"ideal: {size} x the hold as measured")
    head = ["contestant", f"throughput x {reference}", *HEAD, *["commands"][: int(counted)]]
    extent = {"processes": size, "hold": hold}
    return Table(title, head, rows, {"contestants": data, **extent}, [], notes)


def _cells(middle: Round, worst: float, hold: float) -> list[str]:
    over = [f"{wait / middle.ideal:.2f}" for wait in (middle.p99, middle.longest)]
    waits = [f"{wait * 1e3:,.2f}" for wait in (middle.p50, middle.p99, middle.longest, worst)]
    rest = [f"{middle.rate:,.0f}", f"{middle.passed:,.0f}", *waits, f"{middle.cpu * 1e6:,.0f}"]
    fair = [f"{middle.jain:.3f}", f"{middle.hand_over * 1e6:,.0f}"]
    return [*(over if hold else ["", ""]), *fair, *rest]


def waits(figures: dict[str, float], p99_most: float, longest_most: float) -> list[Goal]:
    """How long one waits, as a multiple of the ideal."""
    ideal = figures["ideal"]
    return [
        Goal("p99 of the waits / ideal", figures["p99"] / ideal, p99_most),
        Goal("longest wait / ideal", figures["longest"] / ideal, longest_most),
    ]
