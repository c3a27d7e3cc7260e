"""Faults of the network between clients and a store: cut connections, lost messages, silence."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from testkit.proxy import ACTIONS

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from testkit.chaos.target import Fault, Target
    from testkit.proxy import Proxy

AWAY = 0.6


def behind_proxies(target: Target, proxies: Sequence[Proxy]) -> Target:
    """Return a target behind proxies, whose faults end when the run restores it."""

    def restore() -> None:
        for proxy in proxies:
            proxy.calm()

    return target._replace(restore=restore)


def network_faults(proxies: Sequence[Proxy], count: int | None = None) -> dict[str, Fault]:
    """Return faults that affect *count* of the proxies at once, or all."""

    def some(rng: random.Random) -> list[Proxy]:
        return rng.sample(proxies, count or len(proxies))

    def cut(rng: random.Random) -> None:
        for proxy in some(rng):
            proxy.cut_all()

    def lose(rng: random.Random) -> None:
        for proxy in some(rng):
            # A message that is held back arrives when the target is restored, if not before.
            proxy.plan(rng.choice(ACTIONS), nth=rng.randint(1, 8))

    def part(rng: random.Random) -> None:
        chosen = some(rng)
        for proxy in chosen:
            proxy.silence()
        pause(rng)
        for proxy in chosen:
            proxy.heal()

    return {"cut": cut, "lose": lose, "partition": part}


def pause(rng: random.Random) -> None:
    """Wait for a random time."""
    threading.Event().wait(rng.uniform(0.1, AWAY))
