"""Hazards of a store that loses acknowledged data: played on private servers only."""

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
    """The master dies before its replica has the lock, and the replica is promoted."""
    return befallen(scene, "failover")


def restart(scene: Scene) -> Outcome:
    """The server is killed, and restarted with the data on its disk."""
    return befallen(scene, "restart")


def befallen(scene: Scene, disaster: str) -> Outcome:
    """Acquire, let the disaster happen, and let another client acquire."""
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
    """Let another client acquire; retry while the store is starting."""
    for _ in range(TRIES):
        answer = scene.wait(rival, LEASE / 2)
        if answer.held or not answer.said:
            return answer
    raise RuntimeError(f"the store does not reply: {answer.why}")


def _struck(scene: Scene, store: Disaster) -> Outcome:
    holder = scene.actor()
    store.lag()
    old = scene.hold(holder, LEASE)
    store.strike()
    # A new client: the connections of all others are broken.
    new = _wanted(scene, scene.actor())
    if not new.held:
        return survived("no other client acquired it")
    if not holder.ask("look").until:
        write = late_write(scene, old, new)
        rejected = write.endswith("rejected")
        return (survived if rejected else failed)(
            f"acquired by another client; the holder knew; {write}"
        )
    told = until(lambda: not holder.ask("look").until, 2 * LEASE)
    when = "learned of it at the next renewal" if told else "never learned of it"
    return judged(scene, old, new, f"acquired by another client; the holder {when}")
