"""What a conversation with servers consists of. A node carries these out, blocking or not.

A conversation is a generator: it yields steps and is sent their outcomes, so its text is one for
threads and for asyncio. Error replies come back as replies; where the line was lost, the node
throws Refused or Unknown into the conversation.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.core.backend import Claim

T = TypeVar("T")
Word = str | bytes | int | float
Command = tuple[Word, ...]


class Address(NamedTuple):
    """Where a server listens: a port, or a socket's path; a sentinel has terms of its own."""

    host: str
    port: int
    path: str = ""
    sentinel: bool = False

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Waiting(NamedTuple):
    """Whose messages must be listened for before the commands are carried out."""

    claim: Claim
    channels: tuple[str, ...]
    sharded: bool


class Send(NamedTuple):
    """Send commands together and read their replies. → list, one reply each

    Bytes are one command that is packed already.
    """

    address: Address
    commands: Sequence[Command] | bytes
    waiting: Waiting | None = None


class Guarded(NamedTuple):
    """Send *look*, which watches a key and gets it; and if it is *value*, the commands as one
    transaction, which does nothing if the key was written meanwhile. On one line, which nobody
    uses between the two. → list, the replies to *look* and that of the transaction, or None
    """

    address: Address
    inspect: Sequence[Command]
    value: bytes
    commands: Sequence[Command]

    def met(self, replies: Sequence[Any]) -> bool:
        """Whether the key is as it should be, and is watched."""
        return replies[-1] == self.value and not isinstance(replies[0], Exception)

    def transaction(self) -> Sequence[Command]:
        """What is sent if the key is as it should be."""
        return (("MULTI",), *self.commands, ("EXEC",))


class Pause(NamedTuple):
    """Let some time pass before the next try. → bool, whether there is time left for one"""

    attempt: int


class Unreachable(Exception):
    """A step did not reach its server at all; nothing was sent."""


class OtherKind(NotApplied):
    """The key is of another kind: a lock by another protocol, or no lock at all."""


class TooLate(NotApplied):
    """What may pass by itself has not passed in time."""


class Deaf(NotApplied):
    """The commands were carried out, but the server refuses the subscription that they need."""


# What reading a reply that makes no sense ends in: a word for a number, say, or too few parts.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def senseless(error: Exception) -> OutcomeUnknown:
    """A server, or what stands between, has answered in a way that cannot be understood: what was
    asked may have been done.
    """
    return OutcomeUnknown(f"an answer of the store makes no sense: {type(error).__name__}: {error}")


def unheard(address: Address, refusal: Exception, count: int) -> list[Exception]:
    """What a refused subscription means, in the place of so many replies: the wrong server was
    asked; or, raised, no permission.
    """
    if str(refusal).startswith("NOPERM"):
        raise Deaf(f"{address}: permission denied: {refusal}")
    return [refusal] * count


Steps = Generator[Send | Guarded | Pause, Any, T]


def absurd(data: bytes, reader: Any) -> bool:
    """Whether a reply begins by announcing a million parts or more; asked where it may: *data* has
    a digit in the eighth place. hiredis would make room for them, which takes it seconds.
    """
    return data[0] in b"*%~>|" and data[1:8].isdigit() and not reader.has_data()
