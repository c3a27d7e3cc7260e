"""What holds for every input: each property is a test, and a task for `make fuzz`.

Law: an input is whatever somebody else may have written. What reads it answers, or raises an error
of its own kind; it never fails in a way that nobody expects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

EXAMPLES = 200


class Property(NamedTuple):
    """One of them."""

    check: Callable[..., None]
    inputs: dict[str, SearchStrategy[Any]]
    examples: int = EXAMPLES
    """As many as a test tries: fewer where one takes long."""

    def searched(self, count: int) -> Callable[[], None]:
        """What tries so many inputs, and raises for the smallest that breaks it."""
        # How long one takes depends on what else this machine does.
        patient = settings(
            max_examples=count,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        searching: Callable[[], None] = patient(given(**self.inputs)(self.check))
        return searching


PROPERTIES: list[Property] = []


def holds(
    examples: int = EXAMPLES, /, **inputs: SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a test of a check, for so many inputs of these kinds."""

    def tested(check: Callable[..., None]) -> Callable[[], None]:
        PROPERTIES.append(Property(check, inputs, examples))
        return PROPERTIES[-1].searched(examples)

    return tested
