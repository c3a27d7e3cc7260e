"""Walking the keys of a server: the locks are found by their keys under the prefix, and by the keys
of ours that belong to a lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leaselock._backends.redis import keys as names
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._backends.redis.codec import Word
    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.messages import Address


# How many keys a server looks at for one reply.
PAGE = 1000


async def locks_on(
    executor: Executor, address: Address, prefix: str, kind: str, until: float
) -> set[str]:
    """The keys on one server that may be those of locks with this prefix."""
    ours = await keys_on(executor, address, f"{names.OURS}*", until)
    keys = {lock for key in ours if (lock := _lock_of(key)) is not None}
    if prefix:
        return keys | set(await keys_on(executor, address, f"{escaped(prefix)}*", until, kind))
    # Any key of the application could be a lock: only one that has a counter is looked at.
    counters = await keys_on(executor, address, f"{names.COUNTER}:*", until)
    return keys | await _counted(executor, address, counters, until)


async def page_on(
    executor: Executor, address: Address, prefix: str, kind: str, cursor: int, until: float
) -> tuple[int, set[str]]:
    """The same for one page of keys, without those of ours beside a lock; and the next cursor."""
    if prefix:
        pattern = f"{escaped(prefix)}*"
        cursor, keys = await page_of_keys(executor, address, pattern, cursor, until, kind)
        return cursor, set(keys)
    cursor, counters = await page_of_keys(executor, address, f"{names.COUNTER}:*", cursor, until)
    return cursor, await _counted(executor, address, counters, until)


async def _counted(
    executor: Executor, address: Address, counters: Sequence[str], until: float
) -> set[str]:
    """The keys of locks that exist, of those that have these counters."""
    locks = [lock for key in counters if (lock := names.lock_in(key, names.COUNTER)) is not None]
    counts = await executor.send(address, [("EXISTS", lock) for lock in locks], until)
    return {lock for lock, count in zip(locks, counts, strict=True) if count == 1}


async def keys_on(
    executor: Executor, address: Address, pattern: str, until: float, kind: str = "", pages: int = 0
) -> list[str]:
    """The keys on one server that match, of that type if one is given. *pages* limits how many
    pages are read, if it is not 0.
    """
    keys: list[str] = []
    cursor = 0
    while True:
        cursor, page = await page_of_keys(executor, address, pattern, cursor, until, kind)
        keys += page
        pages -= 1
        if not cursor or not pages:
            return keys


async def page_of_keys(
    executor: Executor, address: Address, pattern: str, cursor: int, until: float, kind: str = ""
) -> tuple[int, list[str]]:
    """The keys on one page that match; and the next page, 0 after the last one."""
    of_kind: Sequence[Word] = ("TYPE", kind) if kind else ()
    scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE, *of_kind)
    (reply,) = await executor.send(address, (scan,), until)
    if isinstance(reply, Exception):
        raise NotApplied(f"{address}: {reply}")
    following, keys = reply
    return int(following), [key.decode("utf-8", "replace") for key in keys]


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
