"""doctor, setup and gc, and that they do not disturb locks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness

LEVELS = {"ok", "warn", "fail", "skip"}


@scenario()
async def doctor_reports_findings(harness: Harness) -> None:
    """Each finding has a level and a text, and advice where action is needed."""
    findings = await harness.first.doctor()
    assert findings
    for finding in findings:
        assert finding.level in LEVELS
        assert finding.what
        assert finding.advice or finding.level in ("ok", "skip")
    assert not [finding for finding in findings if finding.level == "fail"]


@scenario("has_queue")
async def setup_and_gc_do_not_disturb_locks(harness: Harness) -> None:
    """Neither affects a held lock or its waiter."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)
    other = harness.spawn(partial(harness.client().lock("a").acquire, timeout=20.0))
    await harness.wait_for_waiters(lock, 1)
    shown = await harness.first.setup(dry_run=True)
    assert all(isinstance(statement, str) for statement in shown)
    assert await harness.first.setup() is not None
    assert await harness.first.gc() >= 0
    lease.ensure()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await other.join() is not None
