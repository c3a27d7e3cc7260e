"""Hazards of a store that loses what it has answered: played on private servers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.hazards.leases import judged, late_write
from holdfast.testing.hazards.lines import until
from holdfast.testing.hazards.outcome import survived, unplayed
from holdfast.testing.hazards.places import Place
from holdfast.testing.hazards.scene import Scene

if TYPE_CHECKING:
    from holdfast.testing.hazards.outcome import Outcome
    from holdfast.testing.hazards.places import Disaster

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


def _struck(scene: Scene, store: Disaster) -> Outcome:
    holder, rival = scene.actor(), scene.actor()
    old = scene.hold(holder, LEASE)
    store.strike()
    new = scene.wait(rival, LEASE / 2)
    if not new.held:
        return survived("nobody else got in")
    if not holder.ask("look").until:
        return survived(f"its holder knew; {late_write(scene, old, new)}")
    told = until(lambda: not holder.ask("look").until, 2 * LEASE)
    when = "told at the next renewal" if told else "never told"
    return judged(scene, old, new, f"another had it; its holder was {when}")
