"""Runs hazards on locking methods, several cells at a time, and collects the outcomes.

A cell whose trial fails is an error, which is shown and fails the run; it is never an outcome.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from verification.hazards.catalogue import HAZARDS
from verification.hazards.chart import draw, require_matplotlib
from verification.hazards.methods import METHODS
from verification.hazards.outcome import Outcome, TrialEnded, Verdict
from verification.hazards.process_pool import ProcessPool
from verification.hazards.report import every_observation, markdown
from verification.hazards.table import Cell, Table
from verification.hazards.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from verification.hazards.catalogue import Hazard
    from verification.hazards.methods import Method
    from verification.hazards.stores import HazardStore

    OnOutcome = Callable[[Method, Hazard, Outcome], None]

# Cells mostly wait.
PARALLEL = 10


class Selection(NamedTuple):
    """What to run, and which files to write."""

    hazards: Sequence[str] = ()
    """Keys of hazards; all if empty."""
    methods: Sequence[str] = ()
    """Parts of names of methods; all if empty."""
    parallel: int = PARALLEL
    markdown: str | None = None
    picture: str | None = None


def select_hazards(keys: Sequence[str]) -> list[Hazard]:
    """Return the hazards of these keys; ValueError for an unknown one."""
    unknown = [key for key in keys if key not in HAZARDS]
    if unknown:
        raise ValueError(f"no such hazard: {', '.join(unknown)}; known are {', '.join(HAZARDS)}")
    return [hazard for hazard in HAZARDS.values() if not keys or hazard.key in keys]


def select_methods(parts: Sequence[str]) -> list[Method]:
    """Return the methods with one of these parts in their names; ValueError if there is none."""
    found = [m for m in METHODS.values() if not parts or any(part in m.name for part in parts)]
    if not found:
        raise ValueError(f"no such method: {', '.join(parts)}; known are {'; '.join(METHODS)}")
    return found


def run(
    selection: Selection,
    stores: Sequence[HazardStore],
    on_outcome: OnOutcome | None = None,
    head: str = "",
) -> Table:
    """Run the selection and write the files that it names; *head* begins the Markdown page.

    Raises ValueError for an unknown hazard or method, or if no method has a store.
    """
    if selection.picture:
        require_matplotlib()
    methods, kinds = select_methods(selection.methods), {store.kind for store in stores}
    if not any(method.store in kinds for method in methods):
        wanted = ", ".join(sorted({method.store for method in methods}))
        raise ValueError(f"none of these methods has a store: name a store of {wanted}")
    hazards = select_hazards(selection.hazards)
    table = run_all(hazards, methods, stores, on_outcome, selection.parallel)
    if selection.markdown:
        page = Path(selection.markdown)
        every = page.with_suffix(".tsv")
        every.write_text(every_observation(table), "utf-8")
        page.write_text(head + markdown(table, every.name), "utf-8")
    if selection.picture:
        draw(table, Path(selection.picture))
    return table


def run_all(
    hazards: Sequence[Hazard],
    methods: Iterable[Method],
    stores: Sequence[HazardStore],
    on_outcome: OnOutcome | None = None,
    parallel: int = PARALLEL,
) -> Table:
    """Run every hazard on every method that has a store."""
    kinds = {store.kind for store in stores}
    playable = [method for method in methods if method.store in kinds]
    cells = [Cell(method, hazard) for hazard in hazards for method in playable]
    return run_cells(cells, stores, on_outcome, parallel)


def run_cells(
    cells: Sequence[Cell],
    stores: Sequence[HazardStore],
    on_outcome: OnOutcome | None = None,
    parallel: int = PARALLEL,
) -> Table:
    """Run these cells; hazards of a whole server come last."""
    with ExitStack() as stack:
        entered = {store.kind: stack.enter_context(store) for store in stores}
        processes = stack.enter_context(ProcessPool())
        threads = stack.enter_context(ThreadPoolExecutor(parallel))

        def run_cell(number: int) -> Outcome:
            method, hazard = cells[number]
            outcome = run_trial(Trial(processes, method, entered[method.store], number), hazard)
            if on_outcome is not None:
                on_outcome(method, hazard, outcome)
            return outcome

        outcomes: dict[int, Outcome] = {}
        for last in (False, True):
            numbers = [n for n, (_, hazard) in enumerate(cells) if hazard.last is last]
            outcomes |= dict(zip(numbers, threads.map(run_cell, numbers), strict=True))
    named = {(cells[n].method.name, cells[n].hazard.key): o for n, o in outcomes.items()}
    hazards = list(dict.fromkeys(hazard for _, hazard in cells))
    return Table(hazards, list(dict.fromkeys(method for method, _ in cells)), named)


def run_trial(trial: Trial, hazard: Hazard) -> Outcome:
    """Return the outcome of one cell."""
    try:
        with trial:
            return hazard.run(trial)
    except TrialEnded as ended:
        return ended.outcome
    except Exception as error:
        return Outcome(Verdict.ERROR, f"{type(error).__name__}: {error}")
