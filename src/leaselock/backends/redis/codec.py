"""What travels between us and a Redis: commands, replies, and what it says unasked."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from leaselock.backends import library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.backends.redis.steps import Command

MESSAGES = (b"message", b"smessage")
# Said by a server of a cluster, unasked, when the channel's slot moves to another.
ENDED = b"sunsubscribe"
# The verb and the channel of a subscription, or of its end.
Confirmation = tuple[str, str]


def confirms(push: Sequence[Any], owed: Confirmation) -> bool:
    """Whether a message confirms a subscription or its end, which was asked for."""
    verb, channel = owed
    return len(push) == 3 and push[0] == verb.lower().encode() and push[1] == channel.encode()


def spoils(reply: Any) -> bool:
    """False. But an error right after the end of a subscription may be the answer to our own
    SUNSUBSCRIBE, where the server had ended it before: then all that follows has another's place,
    and ValueError says that the line is of no use any more.
    """
    if isinstance(reply, Exception):
        raise ValueError(f"the answer to a question, or to the end of a subscription: {reply}")
    return False


@cache
def codec() -> Any:
    """hiredis, which packs commands and reads replies."""
    return library("hiredis", "redis")


def packed(commands: Sequence[Command] | bytes) -> bytes:
    """Commands as they travel."""
    if isinstance(commands, bytes):
        return commands
    pack = codec().pack_command
    if len(commands) == 1:
        alone: bytes = pack(commands[0])
        return alone
    return b"".join([pack(command) for command in commands])


def counted(commands: Sequence[Command] | bytes) -> int:
    """How many they are."""
    return 1 if isinstance(commands, bytes) else len(commands)
