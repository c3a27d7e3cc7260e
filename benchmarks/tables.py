"""The result of a workload: a table for people, numbers for programs, goals with a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Goal(NamedTuple):
    """An upper limit, and the measured value."""

    text: str
    measured: float
    most: float

    @property
    def met(self) -> bool:
        """Whether this run met the goal."""
        return self.measured <= self.most

    def __str__(self) -> str:
        verdict = "met" if self.met else "NOT met"
        return f"goal: {self.text}, at most {self.most:g}: measured {self.measured:.3g}, {verdict}"


class Table(NamedTuple):
    """The result of one workload."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    data: dict[str, Any]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> Iterator[str]:
        """Return the lines of a Markdown section."""
        yield f"## {self.title}"
        yield ""
        widths = [max(3, *map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        rule = ["-" * width for width in widths]
        rule[1:] = [f"{dashes[:-1]}:" for dashes in rule[1:]]
        for row in (self.head, rule, *self.rows):
            yield f"| {' | '.join(_padded(row, widths))} |"
        yield ""
        yield from (f"* {line}" for line in (*self.goals, *self.notes))
        if self.goals or self.notes:
            yield ""

    def plain(self) -> dict[str, Any]:
        """Return the content for the JSON file."""
        goals = [goal._asdict() | {"met": goal.met} for goal in self.goals]
        return {"title": self.title, "goals": goals, "notes": list(self.notes), **self.data}


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
