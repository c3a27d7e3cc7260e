"""What answers in a simulation: the model of a store, or of a node with the network behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.effects import Call
    from leaselock.drivers.simulated_machine import Machine


class Model(Protocol):
    """What a store does with requests."""

    def ask(self, client: str, request: Any, reply: Callable[[object], None]) -> None:
        """Carry out one request of the machine *client*, and answer when there is an answer."""
        ...

    def die(self, client: str) -> None:
        """The machine *client* is gone."""
        ...


class LocalModel(Protocol):
    """A node in the client's own process, which plays the network behind it by itself."""

    def handle(
        self,
        machine: Machine,
        call: Call,
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """Answer the call, at its deadline at the latest, with an error as the case may be; after
        each step ask whether the answer is still wanted.
        """
        ...

    def die(self, client: str) -> None:
        """The machine *client* is gone."""
        ...
