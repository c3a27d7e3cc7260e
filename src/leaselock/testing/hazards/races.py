"""Hazards of two that want the lock at the same moment, and of their clocks."""

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
    """Each step of an acquire is held up until another has asked for the free lock."""
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
            return failed(f"both took it, one while step {number} of the other's was under way")
    return survived(f"{counted(steps, 'step')} held up: never did both take it")


def overwritten_end(scene: Scene) -> Outcome:
    """Two want a lock whose dead holder's time is over; the loser's step comes after the winner's
    (GETSET). The winner's hold must be what the winner was granted.
    """
    late = 0
    for number in scene.rounds():
        dead, loser, winner, third = scene.actor(), scene.slow(), scene.actor(), scene.actor()
        loser.warm()
        scene.hold(dead, scene.lease)
        dead.kill()
        # Time itself has to pass: the dead one's lease is to be over.
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
            return failed(f"both took it, one while step {number} of the other's was under way")
        # The loser asked for BRIEF: had it written its end, that would be over now.
        time.sleep(2 * BRIEF)
        if scene.take(third).held:
            return failed("the loser wrote its own end over the winner's, and a third got in")
        told = scene.release(winner)
        if not scene.wait(third, 1.0).held:
            return failed(f"the loser wrote over the winner's end; the winner's release {told}")
    if not late:
        return nothing("nobody won while another's step was held up")
    return survived(
        f"{counted(late, 'step')} of a loser came late: the winner's hold was as granted"
    )


def wrong_clock(scene: Scene) -> Outcome:
    """A client's clock is a minute ahead and it wants a lock that is held; a holder's is a minute
    behind, and another wants its lock.
    """
    holder, ahead = scene.actor(), scene.actor(skew=MINUTE)
    scene.hold(holder)
    if scene.take(ahead).held:
        return failed("a client whose clock is a minute ahead took a lock that is held")
    scene.name += ".behind"
    behind, rival = scene.actor(skew=-MINUTE), scene.actor()
    scene.hold(behind)
    if scene.take(rival).held:
        return failed("the lock of a holder whose clock is a minute behind was taken from it")
    return survived("clocks a minute ahead and behind changed nothing")
