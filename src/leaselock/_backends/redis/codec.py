"""RESP3: packing commands, and telling push messages from replies."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from leaselock._backends import library

if TYPE_CHECKING:
    from collections.abc import Sequence

Word = str | bytes | int | float
Command = tuple[Word, ...]
TEXTS = (str, bytes)
# The verb and the channel of a SUBSCRIBE or UNSUBSCRIBE command: the server confirms it with a
# push message, not with a reply.
Subscription = tuple[str, str]

MESSAGES = (b"message", b"smessage")
# The server pushes this when a tracked key has changed (`key_tracking`). It is also what stands for
# the channel of that message; no channel of ours has this name.
CHANGED = "invalidate"
# A server of a cluster sends this unasked when the channel's slot moves to another server.
ENDED = b"sunsubscribe"


def confirms(push: Sequence[Any], subscription: Subscription) -> bool:
    """Whether a push message confirms this command."""
    verb, channel = subscription
    return len(push) == 3 and push[0] == verb.lower().encode() and push[1] == channel.encode()


def changed_keys(push: Sequence[Any]) -> list[tuple[str, str]]:
    """The messages, one for each key, of a push that reports changes of keys; an empty key stands
    for all.
    """
    keys = [b""] if push[1] is None else push[1]
    return [(CHANGED, key.decode("utf-8", "replace")) for key in keys]


def shifts_replies(reply: Any) -> bool:
    """False; ValueError if the replies that follow may belong to other commands.

    That is so for an error right after a subscription ended: it may answer our own SUNSUBSCRIBE,
    sent after the server had ended the subscription by itself. Then each later reply would be
    taken for that of the next command, so the connection must be closed.
    """
    if isinstance(reply, Exception):
        raise ValueError(f"the error answers either a command or an SUNSUBSCRIBE: {reply}")
    return False


def is_too_large(data: bytes, reader: Any) -> bool:
    """Whether a reply begins by announcing a million elements or more.

    hiredis would allocate room for all of them, which takes seconds. Called where it is possible:
    the eighth byte of *data* is a digit.
    """
    return data[0] in b"*%~>|" and data[1:8].isdigit() and not reader.has_data()


@cache
def codec() -> Any:
    """hiredis, which packs commands and parses replies."""
    return library("hiredis", "redis")


def packed(commands: Sequence[Command]) -> bytes:
    """The commands as they are sent."""
    pack = codec().pack_command
    # Texts only: hiredis converts numbers itself, and crashes if a signal handler raises meanwhile.
    return b"".join(
        [
            pack(tuple([word if word.__class__ in TEXTS else str(word) for word in command]))
            for command in commands
        ]
    )
