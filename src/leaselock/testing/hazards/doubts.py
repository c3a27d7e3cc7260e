"""Hazards of the network: an answer that never comes, and a question that comes too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, survived
from leaselock.testing.hazards.scene import GRACE, counted, said
from leaselock.testing.polling import poll_until as until

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene, Slow


def lost_reply(scene: Scene) -> Outcome:
    """The answer to each message of an acquire is lost. Whoever is told no must not hold."""
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
            return failed(f"{_ghost(number, held)}; the asker {told}")
    return survived(f"{counted(lost, 'answer')} lost: nobody held without knowing")


def _came_of(scene: Scene, asker: Slow) -> tuple[bool, str]:
    """Whether the asker was granted the lock, which it then releases, and what it was told."""
    if not until(asker.actor.ready, GRACE):
        return False, "waits for an answer"
    answer = asker.done()
    if answer.held:
        scene.release(asker.actor)
    return answer.held, said(answer)


def _ghost(number: int, held: bool) -> str:
    when = "after its release" if held else f"after answer {number} was lost"
    return f"held by nobody, still {GRACE:.0f} s {when}"


def late_question(scene: Scene) -> Outcome:
    """Each message of an acquire is held up, and delivered when its asker has long finished."""
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
        # Whoever still waits is ended by somebody who is tired of it.
        if asker.actor.owing:
            asker.actor.kill()
        else:
            asker.actor.ask("leave")
        snag.pass_on()
        if not scene.wait(heir, GRACE).held:
            return failed(
                f"message {number} came late and took it for nobody, still {GRACE:.0f} s later"
            )
    return survived(f"{counted(late, 'message')} came late: nobody held without knowing")
