"""What a store needs, whether it is set up well, and the clearing away: none of it stops a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.conformance.scenario import scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.world import World

LEVELS = {"ok", "warn", "fail", "skip"}


@scenario()
async def a_store_is_examined(world: World) -> None:
    """Each finding has a level and words, and an advice where something is to be done."""
    findings = await world.first.doctor()
    assert findings
    for finding in findings:
        assert finding.level in LEVELS
        assert finding.what
        assert finding.advice or finding.level in ("ok", "skip")
    assert not [finding for finding in findings if finding.level == "fail"]


@scenario("queue")
async def a_store_can_be_prepared_again_and_swept(world: World) -> None:
    """While a lock is held and waited for: neither notices."""
    lock = world.lock("a")
    lease = await world.take(lock)
    other = world.spawn(world.client().lock("a").acquire, 20.0)
    await world.until_waiting(lock, 1)
    shown = await world.first.setup(dry=True)
    assert all(isinstance(statement, str) for statement in shown)
    assert await world.first.setup() is not None
    assert await world.first.gc() >= 0
    lease.ensure()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await other.join() is not None
