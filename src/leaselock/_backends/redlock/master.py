"""What a Redlock needs of one master: its locks, in the format for votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from leaselock._core.backend import Capabilities, Claim, Finding


class VotingLocks(Protocol):
    """The locks on one master."""

    capabilities: Capabilities

    async def handle(self, request: Any, until: float) -> Any:
        """Answer a request object of `core.backend`."""
        ...

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the master is set up."""
        ...

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message."""
        ...

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        ...

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again."""
        ...

    def close(self) -> None:
        """End all waits."""
        ...


@runtime_checkable
class VotingStore(Protocol):
    """A store that can be a master."""

    def voting_locks(self) -> VotingLocks:
        """Its locks, in the format for votes."""
        ...


class Master(NamedTuple):
    """One master: its URL without secrets, and its locks."""

    shown: str
    locks: VotingLocks
