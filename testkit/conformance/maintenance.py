"""doctor, setup and gc, and that they do not disturb locks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.world import World

LEVELS = {"ok", "warn", "fail", "skip"}


@scenario()
async def doctor_reports_findings(world: World) -> None:
    """Each finding has a level and a text, and advice where action is needed."""
    findings = await world.first.doctor()
    assert findings
    for finding in findings:
        assert finding.level in LEVELS
        assert finding.what
        assert finding.advice or finding.level in ("ok", "skip")
    assert not [finding for finding in findings if finding.level == "fail"]


@scenario("has_queue")
async def setup_and_gc_do_not_disturb_locks(world: World) -> None:
    """Neither affects a held lock or its waiter."""
    lock = world.lock("a")
    lease = await world.must_acquire(lock)
    other = world.spawn(partial(world.client().lock("a").acquire, timeout=20.0))
    await world.wait_for_waiters(lock, 1)
    shown = await world.first.setup(dry_run=True)
    assert all(isinstance(statement, str) for statement in shown)
    assert await world.first.setup() is not None
    assert await world.first.gc() >= 0
    lease.ensure()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await other.join() is not None
