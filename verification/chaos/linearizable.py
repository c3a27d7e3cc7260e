"""The verdicts of a linearizability checker on the histories of chaos runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from verification.chaos.operations import MODELS, SHARED, operations_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testkit.chaos.run import Report
    from testkit.chaos.target import Target
    from verification.chaos.operations import Checker


class Judged(NamedTuple):
    """What the checker says about one run."""

    target: str
    operations: int
    models: tuple[str, ...]
    """Those that the operations were compared with."""
    complaints: tuple[str, ...]
    """The models that do not fit, each with its locks."""


def judge(checker: Checker, target: Target, report: Report) -> Judged | None:
    """Compare a history with the models that its target must fit; None if it need fit none."""
    if not target.exclusive:
        return None
    operations = list(operations_of(report.history))
    models = SHARED if target.shares else MODELS
    found = {model: checker.complaints(model, operations) for model in models}
    complaints = tuple(f"{model}: {', '.join(locks)}" for model, locks in found.items() if locks)
    return Judged(target.name, len(operations), models, complaints)


def markdown(verdicts: Sequence[Judged]) -> str:
    """Return the verdicts as a Markdown table."""
    lines = ["| store | operations | models | verdict |", "|---|---|---|---|"]
    for each in verdicts:
        verdict = "; ".join(each.complaints) or "linearizable"
        lines.append(
            f"| {each.target} | {each.operations:,} | {', '.join(each.models)} | {verdict} |"
        )
    return "\n".join(lines)
