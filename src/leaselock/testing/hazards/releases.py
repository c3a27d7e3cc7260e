"""Hazards of giving back: too late, in two steps, and by somebody who has nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, nothing, survived
from leaselock.testing.hazards.scene import counted

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene


def after_the_end(scene: Scene) -> Outcome:
    """A holder releases after its lease has ended and another has the lock."""
    holder, rival, third = scene.actor(), scene.actor(), scene.actor()
    scene.hold(holder, scene.lease, renew=False)
    if not scene.wait(rival, scene.over).held:
        return nothing(f"nobody else got in for {scene.over:.1f} s")
    told = scene.release(holder)
    if scene.take(third).held:
        return failed(f"it freed the next holder's lock, and a third got in; it {told}")
    return survived(f"the next holder kept it; the late one {told}")


def in_two_steps(scene: Scene) -> Outcome:
    """Each message of a release is held up until the lease has ended and another has the lock."""
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
                return failed(f"step {number} of it came late and freed the next holder's lock")
    if not late:
        return nothing("nobody else got in while a release was under way")
    return survived(f"{counted(late, 'step')} of it came late: the next holder kept the lock")


def by_a_stranger(scene: Scene) -> Outcome:
    """Somebody releases who never acquired."""
    holder, stranger, third = scene.actor(), scene.actor(), scene.actor()
    scene.hold(holder)
    told = scene.release(stranger)
    if scene.take(third).held:
        return failed(f"it was free for a third; the stranger {told}")
    return survived(f"still held; the stranger {told}")
