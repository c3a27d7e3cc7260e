"""What a Redlock needs of one master: its locks, in the format for votes."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from leaselock._core.contract.backend import Backend, Claim, Released
from leaselock._core.contract.effects import Request


class ReleaseGrant(
    NamedTuple("ReleaseGrant", [("claim", Claim), ("token", int)]), Request[Released]
):
    """Release the claim's hold if it is the grant with this token, and no other."""

    __slots__ = ()
    method = "release_grant"


class RaiseToken(NamedTuple("RaiseToken", [("claim", Claim), ("token", int)]), Request[bool]):
    """Make the token of the claim's hold, and so of every later one, at least *token*; reply
    whether the claim holds.
    """

    __slots__ = ()
    method = "raise_token"


@runtime_checkable
class VotingStore(Protocol):
    """A store that can be a master."""

    def voting_locks(self) -> Backend:
        """Its locks, in the format for votes. `Backend.request` carries out the requests of this
        module, too, and those for which the core has a method.
        """
        ...

    def server_addresses(self) -> frozenset[str]:
        """Where its servers listen, as far as that is known before a connection."""
        ...


class Master(NamedTuple):
    """One master: its URL without secrets, and its locks."""

    shown: str
    locks: Backend
