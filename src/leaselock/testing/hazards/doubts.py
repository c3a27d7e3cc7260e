"""Hazards of the network: lost replies and late requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, survived
from leaselock.testing.hazards.scene import GRACE, counted, said
from leaselock.testing.polling import poll_until as until

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene, Slow


def lost_reply(scene: Scene) -> Outcome:
    """The reply to each request of an acquire is lost. A client without a grant must not hold."""
    scene.networked()
    lost = 0
    for number in scene.rounds():
        asker, heir = scene.slow(), scene.actor()
        asker.warm()
        if not asker.take(asker.snag("lose_reply", number)):
            break
        lost = number
        held, told = _came_of(scene, asker)
        if not scene.wait(heir, GRACE).held:
            return failed(f"{_ghost(number, held)}; the client {told}")
    return survived(f"{counted(lost, 'reply', 'replies')} lost: no hold without an owner")


def _came_of(scene: Scene, asker: Slow) -> tuple[bool, str]:
    """Whether the asker was granted the lock, which it then releases, and what it was told."""
    if not until(asker.actor.ready, GRACE):
        return False, "waits for a reply"
    answer = asker.done()
    if answer.held:
        scene.release(asker.actor)
    return answer.held, said(answer)


def _ghost(number: int, held: bool) -> str:
    when = "after its release" if held else f"after reply {number} was lost"
    return f"held without an owner, still {GRACE:.0f} s {when}"


def late_request(scene: Scene) -> Outcome:
    """Each request of an acquire is delayed and delivered long after its client gave up."""
    scene.networked()
    late = 0
    for number in scene.rounds():
        asker, heir = scene.slow(), scene.actor()
        asker.warm()
        snag = asker.snag("hold", number)
        if not asker.take(snag):
            break
        late = number
        _came_of(scene, asker)
        # A client that still waits is killed, as an impatient user would.
        if asker.actor.owing:
            asker.actor.kill()
        else:
            asker.actor.ask("leave")
        snag.pass_on()
        if not scene.wait(heir, GRACE).held:
            seen = f"late request {number} acquired the lock without an owner"
            return failed(f"{seen}, still {GRACE:.0f} s later")
    return survived(f"{counted(late, 'late request')}: no hold without an owner")
