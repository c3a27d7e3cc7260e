"""The replies of `acquire.lua`, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Granted(NamedTuple):
    """The claim holds the lock."""

    token: bytes
    numbers: bytes = b""
    """Those of its permits, if they are numbered: ``0, 2``."""

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of its permits."""
        return tuple(map(int, self.numbers.split(b", "))) if self.numbers else ()


class Refused(NamedTuple):
    """Others hold the lock, or wait for it."""

    remaining_ms: int
    """Of the lease of a holder; the time until to ask again, if there are several."""
    rank: int
    """The position in the queue; -1 outside of it."""
    ticket: bytes
    owner: bytes
    record: bytes
    """Of the holder with the least token."""
    holds: int


class GivenUp(NamedTuple):
    """The claim was given up for good."""


class OtherUse(NamedTuple):
    """The name is in use as another kind of lock, or with another number of permits."""

    permits: int
    """-1 for a lock."""


KINDS: dict[int, type[Granted | Refused | GivenUp | OtherUse]] = {
    1: Granted,
    0: Refused,
    -1: GivenUp,
    -2: OtherUse,
}


def acquired(reply: Sequence[Any]) -> Granted | Refused | GivenUp | OtherUse:
    """The reply of that script; one of `messages.NONSENSE` if it is malformed."""
    return KINDS[reply[0]](*reply[1:])
