"""Hazards of a holder that dies: while it holds, and while it takes the lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, survived
from leaselock.testing.hazards.scene import counted

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene

# What was sent when the sender died is with the server by then.
ARRIVAL = 0.05


def crash(scene: Scene) -> Outcome:
    """A holder is killed. Its lock must be free soon after its lease or session ends."""
    holder, heir = scene.actor(), scene.actor()
    scene.hold(holder, scene.lease)
    holder.kill()
    began = time.monotonic()
    if scene.wait(heir, scene.bound).held:
        return survived(f"free {time.monotonic() - began:.1f} s after its holder was killed")
    return failed(f"still held {scene.bound:.1f} s after its holder was killed")


def fork(scene: Scene) -> Outcome:
    """A holder forks, and the child ends as the program does: it releases. The holder must keep
    its lock.
    """
    holder, third = scene.actor(), scene.actor()
    scene.hold(holder)
    holder.ask("fork", scene.name)
    if scene.take(third).held:
        return failed("the child's release freed its parent's lock")
    return survived("the parent kept its lock")


def crash_midway(scene: Scene) -> Outcome:
    """A program is killed after each thing that it does to take the lock (SETNX … EXPIRE)."""
    longest, deaths = 0.0, 0
    for number in scene.rounds():
        victim, heir = scene.slow(), scene.actor()
        victim.warm()
        struck = victim.take(victim.snag("lose_reply", number), scene.lease)
        # What it has sent is to arrive, and nobody tells when it has.
        time.sleep(ARRIVAL)
        victim.die()
        began = time.monotonic()
        # Some ways repair what they find, by their own lease.
        if not scene.wait(heir, scene.bound, scene.lease).held:
            step = f"in its step {number}" if struck else "when it had it"
            return failed(f"killed {step}: still held {scene.bound:.1f} s later")
        longest = max(longest, time.monotonic() - began)
        if not struck:
            break
        deaths = number
    return survived(
        f"killed in {counted(deaths, 'step')} of taking it: free after {longest:.1f} s at most"
    )
