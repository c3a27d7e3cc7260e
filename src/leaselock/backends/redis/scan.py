"""Which locks have left a trace of ours, found by looking through the keys of every master.

One whose key is of another kind is another protocol's, and does not hide the others.
"""

from __future__ import annotations

import fnmatch
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis import keys as names
from leaselock.backends.redis.steps import OtherKind, Send
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.steps import Steps
    from leaselock.backends.redis.talk import Talk
    from leaselock.core.backend import LockState


def sights(
    talk: Talk, pattern: str, sight: Callable[[str], Steps[LockState]]
) -> Steps[tuple[LockState, ...]]:
    """The locks that are held or waited for, whose names match; each as *sight* sees it."""
    found = yield from _names_found(talk)
    seen: list[LockState] = []
    for name in sorted(name for name in found if fnmatch.fnmatchcase(name, pattern)):
        with suppress(OtherKind):
            seen += ((yield from sight(name)),)
    return tuple(one for one in seen if one.held or one.waiting)


def _names_found(talk: Talk) -> Steps[set[str]]:
    found: set[str] = set()
    for address in (yield from talk.route.masters()):
        cursor: Any = 0
        while True:
            scan = ("SCAN", cursor, "MATCH", f"{names.OURS}*", "COUNT", 1000)
            (reply,) = yield Send(address, (scan,))
            if isinstance(reply, Exception):
                raise NotApplied(f"{address}: {reply}")
            cursor, found_keys = reply
            found.update(_locks_of(found_keys))
            if not int(cursor):
                break
    return found


def _locks_of(found: Sequence[bytes]) -> set[str]:
    kinds = (f"{names.OURS}queue:", f"{names.OURS}holder:")
    texts = [key.decode("utf-8", "replace") for key in found]
    return {name for key in texts if key.startswith(kinds) and (name := names.name_in(key))}
