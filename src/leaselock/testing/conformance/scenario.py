"""The register of the suite: each scenario, what it needs, and on what it therefore runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.testing.conformance.store import missing

if TYPE_CHECKING:
    from leaselock.testing.conformance.store import Store
    from leaselock.testing.conformance.world import World

Story = Callable[["World"], Coroutine[Any, Any, None]]
E = TypeVar("E", bound=BaseException)

DRIVERS = ("threads", "asyncio")
SCENARIOS: list[Scenario] = []


class Scenario:
    """One promise of the contract, as a story that is played on a store."""

    def __init__(self, story: Story, needs: tuple[str, ...], alone: bool) -> None:
        self.story = story
        self.needs = needs
        self.alone = alone
        theme = story.__module__.rpartition(".")[2]
        self.name = f"{theme}.{story.__name__}"

    def unfit(self, store: Store, driver: str) -> str | None:
        """Why it cannot be played on *store* with *driver*; None when it can."""
        for need in self.needs:
            if need in DRIVERS and need != driver:
                return f"{driver}: this is about {need}"
            if need not in DRIVERS and (reason := missing(store, need)):
                return reason
        return None

    def __repr__(self) -> str:
        return self.name


def scenario(*needs: str, alone: bool = False) -> Callable[[Story], Story]:
    """Register a story. *needs* are drivers and promises of a store; with *alone* it is played
    in a process of its own, in whose main thread nothing else runs.
    """

    def register(story: Story) -> Story:
        SCENARIOS.append(Scenario(story, needs, alone))
        return story

    return register


@contextmanager
def raising(kind: type[E], *words: str) -> Iterator[list[E]]:
    """What the block must do: raise *kind*, with a message that has these *words*."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"
    for word in words:
        assert word in str(caught[0]), f"{word!r} is not in: {caught[0]}"
