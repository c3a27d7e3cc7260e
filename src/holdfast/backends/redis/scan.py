"""Which locks have left a trace of ours, found by looking through the keys of every master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.backends.redis import keys as names
from holdfast.backends.redis.steps import Send
from holdfast.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.backends.redis.steps import Steps
    from holdfast.backends.redis.talk import Talk


def names_found(talk: Talk) -> Steps[set[str]]:
    """The names of locks that are held or waited for."""
    found: set[str] = set()
    for address in (yield from talk.route.masters()):
        cursor: Any = 0
        while True:
            scan = ("SCAN", cursor, "MATCH", f"{names.OURS}*", "COUNT", 1000)
            (reply,) = yield Send(address, (scan,))
            if isinstance(reply, Exception):
                raise Refused(f"{address}: {reply}")
            cursor, found_keys = reply
            found.update(_locks_of(found_keys))
            if not int(cursor):
                break
    return found


def _locks_of(found: Sequence[bytes]) -> set[str]:
    kinds = (f"{names.OURS}queue:", f"{names.OURS}holder:")
    texts = [key.decode("utf-8", "replace") for key in found]
    return {name for key in texts if key.startswith(kinds) and (name := names.name_in(key))}
