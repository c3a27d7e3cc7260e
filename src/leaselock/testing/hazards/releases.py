"""Hazards of releases: too late, in two steps, and by a client that does not hold the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, nothing, survived
from leaselock.testing.hazards.scene import counted

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene


def after_the_end(scene: Scene) -> Outcome:
    """A holder releases after its lease has ended and another client holds the lock."""
    holder, rival, third = scene.actor(), scene.actor(), scene.actor()
    scene.hold(holder, scene.lease, renew=False)
    if not scene.wait(rival, scene.over).held:
        return nothing(f"no other client acquired it for {scene.over:.1f} s")
    told = scene.release(holder)
    if scene.take(third).held:
        return failed(f"released the next holder's lock, and a third client acquired it; it {told}")
    return survived(f"the next holder kept it; the late release {told}")


def in_two_steps(scene: Scene) -> Outcome:
    """Each step of a release is delayed until the lease has ended and another client holds it."""
    late = 0
    for number in scene.rounds():
        holder, rival, third = scene.slow(), scene.actor(), scene.actor()
        holder.warm()
        scene.hold(holder.actor, scene.lease, renew=False)
        snag = holder.snag("hold", number)
        if not holder.start(snag, "release", scene.name):
            break
        got = scene.wait(rival, scene.over).held
        snag.pass_on()
        holder.done()
        if got:
            late += 1
            if scene.take(third).held:
                return failed(f"late step {number} released the next holder's lock")
    if not late:
        return nothing("no other client acquired it while a release was in flight")
    return survived(f"{counted(late, 'late step')}: the next holder kept the lock")


def by_a_stranger(scene: Scene) -> Outcome:
    """A client releases a lock that it never acquired."""
    holder, stranger, third = scene.actor(), scene.actor(), scene.actor()
    scene.hold(holder)
    told = scene.release(stranger)
    if scene.take(third).held:
        return failed(f"released, and acquired by a third client; the caller {told}")
    return survived(f"still held; the caller {told}")
