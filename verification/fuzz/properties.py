"""Properties that hold for every input: each is a test; `verification.fuzz` searches longer.

An input is untrusted data. The code that reads it must return a result or raise a documented error,
and never fail in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

EXAMPLES = 200


class Property(NamedTuple):
    """One property."""

    check: Callable[..., None]
    inputs: dict[str, SearchStrategy[Any]]
    examples: int = EXAMPLES
    """The number of examples in a test; fewer if one takes long."""

    def searched(self, count: int) -> Callable[[], None]:
        """Return a function that tests *count* inputs, and raises for the smallest failing one."""
        # The time for one example depends on the load of the machine.
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
    """Turn a check into a test with that many inputs of these kinds."""

    def tested(check: Callable[..., None]) -> Callable[[], None]:
        PROPERTIES.append(Property(check, inputs, examples))
        return PROPERTIES[-1].searched(examples)

    return tested
