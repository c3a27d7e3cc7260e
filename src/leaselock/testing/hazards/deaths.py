"""Hazards of clients that die: while they hold the lock, and while they acquire it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, survived
from leaselock.testing.hazards.scene import counted

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene

# Time for the requests of a dead client to reach the server.
ARRIVAL = 0.05


def crash(scene: Scene) -> Outcome:
    """The holder is killed. Its lock must be free soon after its lease or session ends."""
    holder, heir = scene.actor(), scene.actor()
    scene.hold(holder, scene.lease)
    holder.kill()
    began = time.monotonic()
    if scene.wait(heir, scene.bound).held:
        return survived(f"free {time.monotonic() - began:.1f} s after its holder was killed")
    return failed(f"still held {scene.bound:.1f} s after its holder was killed")


def fork(scene: Scene) -> Outcome:
    """The holder forks, and the child releases at its end, like the program. The parent must keep
    its lock.
    """
    holder, third = scene.actor(), scene.actor()
    scene.hold(holder)
    holder.ask("fork", scene.name)
    if scene.take(third).held:
        return failed("the child's release freed the parent's lock")
    return survived("the parent kept its lock")


def crash_midway(scene: Scene) -> Outcome:
    """A client is killed after each step of its acquire (SETNX … EXPIRE)."""
    longest, deaths = 0.0, 0
    for number in scene.rounds():
        victim, heir = scene.slow(), scene.actor()
        victim.warm()
        struck = victim.take(victim.snag("lose_reply", number), scene.lease)
        # The request must arrive first; no event shows that it has.
        time.sleep(ARRIVAL)
        victim.die()
        began = time.monotonic()
        # Some methods set an expiry when they find a key without one.
        if not scene.wait(heir, scene.bound, scene.lease).held:
            step = f"in step {number}" if struck else "after the grant"
            return failed(f"killed {step}: still held {scene.bound:.1f} s later")
        longest = max(longest, time.monotonic() - began)
        if not struck:
            break
        deaths = number
    return survived(
        f"killed in {counted(deaths, 'step')} of the acquire: free after {longest:.1f} s at most"
    )
