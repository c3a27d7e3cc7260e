"""The token counters of locks that are not used any more.

A counter of ours expires some time after the last grant (`token_ttl`): because of the clock in it,
tokens rise without it as well. Those that do not were written with `token_ttl=0`, by an earlier
version or by Redisson, or by a legacy format: it counts from 1, so it is never deleted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.redis.keys import COUNTER, lock_in, name_of
from leaselock._backends.redis.scan import escaped, keys_on, page_of_keys
from leaselock._backends.redis.scripts import COLLECT
from leaselock._core.contract.backend import Collected
from leaselock._core.rows.maintenance import half_way

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings


# Where the collection of counters begins.
COUNTERS = "counters"


class Position(NamedTuple):
    """Where the next step of a garbage collection begins."""

    masters: Sequence[Address]
    """The masters whose keys are not all listed, the current one first."""
    cursor: int = 0
    """The next page of keys on the current master."""
    counters: Sequence[tuple[str, str]] = ()
    """The counters of earlier pages that are not examined, each with the key of its lock."""
    kept: int = 0
    """How many counters of the current master stay, because they expire by themselves."""
    last: int = 0
    """In how many milliseconds the last of them does."""


def local_time(at: float) -> str:
    """A Unix time for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def kept_counters(address: Address, count: int, last: int) -> str:
    """What a server has of names that are not in use: *count* counters, the last of which expires
    in so many milliseconds, if any does.
    """
    until = f", the last until {local_time(time.time() + last / 1000)}" if last > 0 else ""
    return f"{address}: {count} token counters{until}"


async def counters_on(
    executor: Executor, address: Address, prefix: str, until: float, pages: int = 0
) -> dict[str, str]:
    """The counters on one server of locks with this prefix, each with the key of its lock; of so
    many pages of keys at most, if that is not 0.
    """
    keys = await keys_on(executor, address, _pattern(prefix), until, pages=pages)
    return dict(_counters_of(prefix, keys))


def _pattern(prefix: str) -> str:
    return f"{COUNTER}:*{escaped(prefix)}*"


def _counters_of(prefix: str, keys: Iterable[str]) -> list[tuple[str, str]]:
    """The counters among *keys* of locks with this prefix, each with the key of its lock."""
    locks = [(key, lock_in(key, COUNTER)) for key in keys]
    return [(key, lock) for key, lock in locks if lock and name_of(lock, prefix) is not None]


async def collect_counters(
    executor: Executor, settings: Settings, position: object, until: float
) -> Collected:
    """Delete those that do not expire and were last used longer ago than they are kept, and count
    those that expire by themselves. One step is about one page of keys.
    """
    if not settings.token_ttl:
        return Collected(0)
    if not isinstance(position, Position):
        return Collected(0, Position(await executor.topology.masters(executor.send, until)))
    enough = half_way(executor.now(), until)
    masters, cursor, counters, kept, last = position
    address = masters[0]
    if not counters:
        pattern = _pattern(settings.prefix)
        cursor, keys = await page_of_keys(executor, address, pattern, cursor, until)
        counters = _counters_of(settings.prefix, keys)
        ends = await executor.send(address, [("PTTL", key) for key, _ in counters], until)
        expiring = [end for end in ends if isinstance(end, int) and end > 0]
        kept, last = kept + len(expiring), max([last, *expiring])
    deleted = 0
    while counters:
        first, *counters = counters
        command = COLLECT.command(first, (round(settings.token_ttl * 1000),))
        deleted += await executor.evaluate(COLLECT, command, until)
        if executor.now() >= enough:
            break
    if cursor or counters:
        return Collected(deleted, Position(masters, cursor, counters, kept, last))
    texts = (kept_counters(address, kept, last),) if kept else ()
    following = Position(masters[1:]) if masters[1:] else None
    return Collected(deleted, following, kept=texts)
