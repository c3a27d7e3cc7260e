"""Hazards of a store that loses what it has answered: played on private servers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.hazards.leases import judged, late_write
from leaselock.testing.hazards.outcome import failed, survived, unplayed
from leaselock.testing.hazards.places import Place
from leaselock.testing.hazards.scene import TRIES, Scene
from leaselock.testing.polling import poll_until as until

if TYPE_CHECKING:
    from leaselock.testing.hazards.actor import Answer
    from leaselock.testing.hazards.crew import Actor
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.places import Disaster

LEASE = 2.0


def failover(scene: Scene) -> Outcome:
    """The master dies before its replica has the lock, and the replica takes its place."""
    return befallen(scene, "failover")


def restart(scene: Scene) -> Outcome:
    """The server is killed, and starts again with what it has on disk."""
    return befallen(scene, "restart")


def befallen(scene: Scene, disaster: str) -> Outcome:
    """Hold, let it happen, and let another want the lock."""
    scene.networked()
    stage = scene.place.stages.get(disaster)
    if stage is None:
        return unplayed("needs a private server: make hazards")
    with (
        stage() as store,
        Place(store.url) as place,
        Scene(scene.crew, scene.way, place, 0) as private,
    ):
        return _struck(private, store)


def _wanted(scene: Scene, rival: Actor) -> Answer:
    """What comes of somebody else's wish; a store that has just started may need some patience."""
    for _ in range(TRIES):
        answer = scene.wait(rival, LEASE / 2)
        if answer.held or not answer.said:
            return answer
    raise RuntimeError(f"the store does not serve: {answer.why}")


def _struck(scene: Scene, store: Disaster) -> Outcome:
    holder = scene.actor()
    store.lag()
    old = scene.hold(holder, LEASE)
    store.strike()
    # One that comes now: the connections of all others are broken.
    new = _wanted(scene, scene.actor())
    if not new.held:
        return survived("nobody else got in")
    if not holder.ask("look").until:
        write = late_write(scene, old, new)
        refused = write.endswith("refused")
        return (survived if refused else failed)(f"another had it; its holder knew; {write}")
    told = until(lambda: not holder.ask("look").until, 2 * LEASE)
    when = "told at the next renewal" if told else "never told"
    return judged(scene, old, new, f"another had it; its holder was {when}")
