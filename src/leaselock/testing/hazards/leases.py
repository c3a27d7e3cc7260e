"""Hazards of work longer than the lease: does its holder know, and is its write let in?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import Outcome, failed, fenced, nothing, survived

if TYPE_CHECKING:
    from leaselock.testing.hazards.actor import Answer
    from leaselock.testing.hazards.scene import Scene


def outlived(scene: Scene) -> Outcome:
    """The work outlives a lease that nobody renews, and then writes."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease, renew=False)
    new = scene.wait(rival, scene.over)
    if not new.held:
        return nothing(f"it does not end by time: nobody else got in for {scene.over:.1f} s")
    if old.until <= new.ended and not holder.ask("look").until:
        early = (new.ended - old.until) * 1000
        return survived(f"told {early:.0f} ms before another had it; {late_write(scene, old, new)}")
    return judged(scene, old, new, "another had it, and its holder did not know")


def renewed(scene: Scene) -> Outcome:
    """The work takes three times as long as the lease; whatever renews it may do so."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease)
    length = 3 * scene.lease
    new = scene.wait(rival, length)
    if not new.held:
        return survived(f"nobody else got in during {length:.1f} s of work")
    if not holder.ask("look").until:
        return failed(f"it was lost after {new.ended - old.ended:.1f} s of {length:.1f} s of work")
    when = f"another had it after {new.ended - old.ended:.1f} s of {length:.1f} s of work"
    return judged(scene, old, new, when)


def frozen(scene: Scene) -> Outcome:
    """The holder stands still for longer than its lease, and writes when it goes on."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease)
    holder.freeze()
    new = scene.wait(rival, scene.over)
    holder.begin("look")
    holder.thaw()
    told = not holder.result().until
    if not new.held:
        return nothing(f"nobody else got in while it stood still for {scene.over:.1f} s")
    if told:
        return survived(f"it knew as soon as it went on; {late_write(scene, old, new)}")
    return judged(scene, old, new, "it went on and believed")


def late_write(scene: Scene, old: Answer, new: Answer) -> str:
    """What becomes of a write that the older holder had under way."""
    scene.register.write(new)
    return f"its late write was {'let in' if scene.register.write(old) else 'refused'}"


def judged(scene: Scene, old: Answer, new: Answer, seen: str) -> Outcome:
    """Two believe at once: only the token is left."""
    write = late_write(scene, old, new)
    refused = write.endswith("refused")
    return (fenced if refused else failed)(f"{seen}; {write}")
