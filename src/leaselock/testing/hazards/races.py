"""Hazards of two clients that acquire at the same moment, and of their clocks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, nothing, survived
from leaselock.testing.hazards.scene import counted

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene

MINUTE = 60.0
BRIEF = 0.3


def two_at_once(scene: Scene) -> Outcome:
    """Each step of an acquire is delayed until another client has requested the free lock."""
    steps = 0
    for number in scene.rounds():
        slow, quick = scene.slow(), scene.actor()
        slow.warm()
        snag = slow.snag("hold", number)
        if not slow.take(snag):
            break
        steps = number
        other = scene.take(quick)
        snag.pass_on()
        if slow.done().held and other.held:
            return failed(f"both acquired it, one during step {number} of the other")
    return survived(f"{counted(steps, 'step')} delayed: never acquired by both")


def overwritten_end(scene: Scene) -> Outcome:
    """Two clients request a lock whose lease has ended; the loser's step comes after the winner's
    (GETSET). The winner's hold must stay as it was granted.
    """
    late = 0
    for number in scene.rounds():
        dead, loser, winner, third = scene.actor(), scene.slow(), scene.actor(), scene.actor()
        loser.warm()
        scene.hold(dead, scene.lease)
        dead.kill()
        # The lease of the dead holder must end by time.
        time.sleep(scene.lease + BRIEF)
        snag = loser.snag("hold", number)
        if not loser.take(snag, BRIEF):
            break
        won = scene.take(winner)
        snag.pass_on()
        if not won.held:
            continue
        late += 1
        if loser.done().held:
            return failed(f"both acquired it, one during step {number} of the other")
        # The loser asked for BRIEF: an expiry written by it would have passed by now.
        time.sleep(2 * BRIEF)
        if scene.take(third).held:
            return failed("the loser overwrote the winner's expiry, and a third client acquired it")
        told = scene.release(winner)
        if not scene.wait(third, 1.0).held:
            return failed(f"the loser overwrote the winner's expiry; the winner's release {told}")
    if not late:
        return nothing("no client won while a step of the other was delayed")
    return survived(f"{counted(late, 'late step')} of a loser: the winner's hold was unchanged")


def wrong_clock(scene: Scene) -> Outcome:
    """A client whose clock is a minute ahead requests a held lock; a client requests the lock of
    a holder whose clock is a minute behind.
    """
    holder, ahead = scene.actor(), scene.actor(skew=MINUTE)
    scene.hold(holder)
    if scene.take(ahead).held:
        return failed("a client whose clock is a minute ahead acquired a held lock")
    scene.name += ".behind"
    behind, rival = scene.actor(skew=-MINUTE), scene.actor()
    scene.hold(behind)
    if scene.take(rival).held:
        return failed("a client acquired the lock of a holder whose clock is a minute behind")
    return survived("clocks a minute ahead and behind changed nothing")
