"""Finding the locks of a store, on every master: by their keys under the prefix, and by the keys of
ours that belong to a lock.

A key that is not a lock, or one of another protocol, does not hide the others.
"""

from __future__ import annotations

import fnmatch
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis import keys as names
from leaselock._backends.redis.messages import NotALock
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.messages import Address, Word
    from leaselock._core.backend import LockState


# How many keys a server looks at for one reply.
PAGE = 1000


async def matching(
    executor: Executor,
    prefix: str,
    kind: str,
    pattern: str,
    state_of: Callable[[str, float], Awaitable[LockState]],
    until: float,
) -> tuple[LockState, ...]:
    """The locks whose names match that are held or waited for, each as *state_of* reads it. *kind*
    is the type of their keys: hash or string.
    """
    name = literal(pattern)
    if name is not None:
        state = await state_of(name, until)
        return (state,) if state.held or state.waiting else ()
    found: set[str] = set()
    for address in await executor.topology.masters(executor.send, until):
        found |= await _locks_on(executor, address, prefix, kind, until)
    named = {names.name_of(key, prefix) for key in found}
    states: list[LockState] = []
    for name in sorted(n for n in named if n and fnmatch.fnmatchcase(n, pattern)):
        with suppress(NotALock):
            states.append(await state_of(name, until))
    return tuple(state for state in states if state.held or state.waiting)


async def _locks_on(
    executor: Executor, address: Address, prefix: str, kind: str, until: float
) -> set[str]:
    """The keys on one server that may be those of locks with this prefix."""
    ours = await keys_on(executor, address, f"{names.OURS}*", until)
    found = {lock for key in ours if (lock := _lock_of(key)) is not None}
    if prefix:
        return found | set(await keys_on(executor, address, f"{escaped(prefix)}*", until, kind))
    # Any key of the application could be a lock: only one that has a counter is looked at.
    counters = await keys_on(executor, address, f"{names.COUNTER}:*", until)
    locks = [lock for key in counters if (lock := names.lock_in(key, names.COUNTER)) is not None]
    exists = await executor.send(address, [("EXISTS", lock) for lock in locks], until)
    return found | {lock for lock, there in zip(locks, exists, strict=True) if there == 1}


async def keys_on(
    executor: Executor, address: Address, pattern: str, until: float, kind: str = "", pages: int = 0
) -> list[str]:
    """The keys on one server that match, of that type if one is given; of so many pages at most, if
    that is not 0.
    """
    found: list[str] = []
    cursor: Any = 0
    of_kind: Sequence[Word] = ("TYPE", kind) if kind else ()
    while True:
        scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE, *of_kind)
        (reply,) = await executor.send(address, (scan,), until)
        if isinstance(reply, Exception):
            raise NotApplied(f"{address}: {reply}")
        cursor, keys = reply
        found += [key.decode("utf-8", "replace") for key in keys]
        pages -= 1
        if not int(cursor) or not pages:
            return found


def literal(pattern: str) -> str | None:
    """The only name that a pattern matches; None if it matches several."""
    if re.search(r"[*?[]", re.sub(r"\[[*?[]\]", "", pattern)):
        return None
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def escaped(prefix: str) -> str:
    """A prefix as a pattern of Redis."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", prefix)


def _lock_of(key: str) -> str | None:
    """The key of the lock that holds or is waited for by this key of ours."""
    if key.startswith(names.ESCAPED):
        return key
    return names.lock_in(key, names.QUEUE) or names.lock_in(key, names.RECORD)
