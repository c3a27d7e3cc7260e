"""The scenarios of the suite, and the capabilities that each one needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from testkit.conformance.store import missing

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness
    from testkit.conformance.store import Store

ScenarioFunction = Callable[["Harness"], Coroutine[Any, Any, None]]
E = TypeVar("E", bound=BaseException)

DRIVERS = ("threads", "asyncio")
SCENARIOS: list[Scenario] = []
# About what Windows lacks: fork, and signals to a thread.
UNIX = ("forks.", "waiting.signals_do_not_extend_a_wait")


class Scenario:
    """One guarantee of the contract, as a function that runs on a store."""

    def __init__(self, function: ScenarioFunction, needs: tuple[str, ...], alone: bool) -> None:
        self.function = function
        self.needs = needs
        self.alone = alone
        theme = function.__module__.rpartition(".")[2]
        self.name = f"{theme}.{function.__name__}"

    def skip_reason(self, store: Store, driver: str) -> str | None:
        """Return why it cannot run on *store* with *driver*; None if it can."""
        if sys.platform == "win32" and self.name.startswith(UNIX):
            return "Windows has neither fork nor signals to threads"
        for need in self.needs:
            if need in DRIVERS and need != driver:
                return f"{driver}: this scenario is about {need}"
            if need not in DRIVERS and (reason := missing(store, need)):
                return reason
        return None

    def __repr__(self) -> str:
        return self.name


def scenario(*needs: str, alone: bool = False) -> Callable[[ScenarioFunction], ScenarioFunction]:
    """Register a scenario. *needs* are drivers and capabilities of a store. With *alone* it runs in
    a process of its own, in the main thread.
    """

    def register(function: ScenarioFunction) -> ScenarioFunction:
        SCENARIOS.append(Scenario(function, needs, alone))
        return function

    return register


@contextmanager
def raising(kind: type[E], *words: str) -> Iterator[list[E]]:
    """Check that the block raises *kind*, with a message that contains these *words*."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"
    for word in words:
        assert word in str(caught[0]), f"{word!r} is not in: {caught[0]}"
