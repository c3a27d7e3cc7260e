"""Finding the names of locks: by the keys of ours on every master.

A lock whose key has another type belongs to another protocol, and does not hide the others.
"""

from __future__ import annotations

import fnmatch
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis import keys as names
from leaselock.backends.redis.messages import WrongTopology
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock.backends.redis.executor import Executor
    from leaselock.core.backend import LockState


async def matching(
    executor: Executor,
    pattern: str,
    state_of: Callable[[str, float], Awaitable[LockState]],
    until: float,
) -> tuple[LockState, ...]:
    """The locks whose names match that are held or waited for, each as *state_of* reads it."""
    found = await _names(executor, until)
    states: list[LockState] = []
    for name in sorted(name for name in found if fnmatch.fnmatchcase(name, pattern)):
        with suppress(WrongTopology):
            states.append(await state_of(name, until))
    return tuple(state for state in states if state.held or state.waiting)


async def _names(executor: Executor, until: float) -> set[str]:
    found: set[str] = set()
    for address in await executor.topology.masters(executor.send, until):
        cursor: Any = 0
        while True:
            scan = ("SCAN", cursor, "MATCH", f"{names.OURS}*", "COUNT", 1000)
            (reply,) = await executor.send(address, (scan,), until)
            if isinstance(reply, Exception):
                raise NotApplied(f"{address}: {reply}")
            cursor, keys = reply
            found.update(_locks_of(keys))
            if not int(cursor):
                break
    return found


def _locks_of(keys: Sequence[bytes]) -> set[str]:
    kinds = (f"{names.OURS}queue:", f"{names.OURS}holder:")
    texts = [key.decode("utf-8", "replace") for key in keys]
    return {name for key in texts if key.startswith(kinds) and (name := names.name_in(key))}
