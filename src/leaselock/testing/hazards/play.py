"""Plays hazards on ways of locking, several cells at a time, and collects the outcomes.

Law: a cell that cannot be played to its end is an error, which is shown and counts as a failure of
the run; it is never taken for an outcome.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.hazards.crew import Crew
from leaselock.testing.hazards.outcome import Ended, Outcome, Verdict
from leaselock.testing.hazards.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock.testing.hazards.catalogue import Hazard
    from leaselock.testing.hazards.places import Place
    from leaselock.testing.hazards.ways import Way

    Told = Callable[[Way, Hazard, Outcome], None]

# Cells mostly wait.
AT_ONCE = 10


class Cell(NamedTuple):
    """One of them."""

    way: Way
    hazard: Hazard


class Table(NamedTuple):
    """What came of a run."""

    hazards: Sequence[Hazard]
    ways: Sequence[Way]
    outcomes: dict[tuple[str, str], Outcome]
    """By the way's name and the hazard's key."""

    def of(self, way: Way, hazard: Hazard) -> Outcome:
        """One cell."""
        return self.outcomes[way.name, hazard.key]

    def complaints(self) -> list[str]:
        """The cells of defaults that failed, and the cells of any that could not be played."""
        return [
            f"{way.name}, {hazard.key}: {outcome}"
            for way in self.ways
            for hazard in self.hazards
            if (outcome := self.of(way, hazard)).verdict is Verdict.ERROR
            or (way.default and outcome.verdict is Verdict.FAILED)
        ]


def play(
    hazards: Sequence[Hazard],
    ways: Iterable[Way],
    places: Sequence[Place],
    told: Told | None = None,
    at_once: int = AT_ONCE,
) -> Table:
    """Play every hazard on every way for which there is a place; *told* hears of each outcome."""
    kinds = {place.kind for place in places}
    playable = [way for way in ways if way.store in kinds]
    cells = [Cell(way, hazard) for hazard in hazards for way in playable]
    return play_cells(cells, places, told, at_once)


def play_cells(
    cells: Sequence[Cell],
    places: Sequence[Place],
    told: Told | None = None,
    at_once: int = AT_ONCE,
) -> Table:
    """Play these cells; what befalls whole servers comes last."""
    with ExitStack() as stack:
        made = {place.kind: stack.enter_context(place) for place in places}
        crew = stack.enter_context(Crew())
        pool = stack.enter_context(ThreadPoolExecutor(at_once))

        def cell(number: int) -> Outcome:
            way, hazard = cells[number]
            outcome = played(Scene(crew, way, made[way.store], number), hazard)
            if told is not None:
                told(way, hazard, outcome)
            return outcome

        outcomes: dict[int, Outcome] = {}
        for last in (False, True):
            numbers = [n for n, (_, hazard) in enumerate(cells) if hazard.last is last]
            outcomes |= dict(zip(numbers, pool.map(cell, numbers), strict=True))
    named = {(cells[n].way.name, cells[n].hazard.key): o for n, o in outcomes.items()}
    hazards = list(dict.fromkeys(hazard for _, hazard in cells))
    return Table(hazards, list(dict.fromkeys(way for way, _ in cells)), named)


def played(scene: Scene, hazard: Hazard) -> Outcome:
    """The outcome of one cell."""
    try:
        with scene:
            return hazard.play(scene)
    except Ended as ended:
        return ended.outcome
    except Exception as error:
        return Outcome(Verdict.ERROR, f"{type(error).__name__}: {error}")
