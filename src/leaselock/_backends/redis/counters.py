"""The token counters of locks that are not used any more.

A counter of ours expires some time after the last grant (`token_ttl`): because of the clock in it,
tokens rise without it as well. Those that do not were written with `token_ttl=0`, by an earlier
version or by Redisson.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.keys import COUNTER, lock_in, name_of
from leaselock._backends.redis.scan import escaped, keys_on
from leaselock._backends.redis.scripts import COLLECT

if TYPE_CHECKING:
    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings


async def counters_on(
    executor: Executor, address: Address, prefix: str, until: float, pages: int = 0
) -> dict[str, str]:
    """The counters on one server of locks with this prefix, each with the key of its lock; of so
    many pages of keys at most, if that is not 0.
    """
    keys = await keys_on(executor, address, f"{COUNTER}:*{escaped(prefix)}*", until, pages=pages)
    locks = {key: lock_in(key, COUNTER) for key in keys}
    return {k: lock for k, lock in locks.items() if lock and name_of(lock, prefix) is not None}


async def collect_counters(executor: Executor, settings: Settings, until: float) -> int:
    """Delete those that do not expire and were last used longer ago than they are kept."""
    if not settings.token_ttl:
        return 0
    deleted = 0
    for address in await executor.topology.masters(executor.send, until):
        found = await counters_on(executor, address, settings.prefix, until)
        for counter, lock in found.items():
            command = COLLECT.command((counter, lock), (round(settings.token_ttl * 1000),))
            deleted += await executor.evaluate(COLLECT, command, until)
    return deleted
