"""Hazards of work that outlasts the lease: the holder must notice, its write be rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import Outcome, failed, fenced, nothing, survived

if TYPE_CHECKING:
    from leaselock.testing.hazards.actor import Answer
    from leaselock.testing.hazards.scene import Scene


def outlived(scene: Scene) -> Outcome:
    """The work outlasts a lease without renewal, and then writes."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease, renew=False)
    new = scene.wait(rival, scene.over)
    if not new.held:
        return nothing(
            f"holds do not end by time: no other client acquired it for {scene.over:.1f} s"
        )
    if old.until <= new.ended and not holder.ask("look").until:
        early = (new.ended - old.until) * 1000
        seen = f"noticed {early:.0f} ms before another client acquired it"
        return survived(f"{seen}; {late_write(scene, old, new)}")
    return judged(scene, old, new, "another client acquired it, unnoticed by the holder")


def renewed(scene: Scene) -> Outcome:
    """The work takes three times as long as the lease, which is renewed if the method can."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease)
    length = 3 * scene.lease
    new = scene.wait(rival, length)
    if not new.held:
        return survived(f"no other client acquired it during {length:.1f} s of work")
    if not holder.ask("look").until:
        return failed(f"lost after {new.ended - old.ended:.1f} s of {length:.1f} s of work")
    when = f"another client acquired it after {new.ended - old.ended:.1f} of {length:.1f} s of work"
    return judged(scene, old, new, when)


def frozen(scene: Scene) -> Outcome:
    """The holder is suspended for longer than its lease, and writes when it resumes."""
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, scene.lease)
    holder.freeze()
    new = scene.wait(rival, scene.over)
    holder.begin("look")
    holder.thaw()
    told = not holder.result().until
    if not new.held:
        return nothing(f"no other client acquired it during {scene.over:.1f} s of suspension")
    if told:
        return survived(f"noticed as soon as it resumed; {late_write(scene, old, new)}")
    return judged(scene, old, new, "it resumed and did not notice")


def late_write(scene: Scene, old: Answer, new: Answer) -> str:
    """Return what happened to a write that the previous holder had in flight."""
    scene.register.write(new)
    return f"its late write was {'accepted' if scene.register.write(old) else 'rejected'}"


def judged(scene: Scene, old: Answer, new: Answer, seen: str) -> Outcome:
    """Return the verdict if both clients consider themselves the holder: the token decides."""
    write = late_write(scene, old, new)
    rejected = write.endswith("rejected")
    return (fenced if rejected else failed)(f"{seen}; {write}")
