"""What befalls the way between clients and a store: lines cut, words lost, and silence."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leaselock.testing.proxy import ACTIONS

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from leaselock.testing.chaos.stage import Fault, Stage
    from leaselock.testing.proxy import Proxy

AWAY = 0.6


def proxied(stage: Stage, proxies: Sequence[Proxy]) -> Stage:
    """A stage behind proxies, which are calm when the storm is over."""

    def calm() -> None:
        for proxy in proxies:
            proxy.calm()

    return stage._replace(calm=calm)


def network(proxies: Sequence[Proxy], fewer: int | None = None) -> dict[str, Fault]:
    """What a network does, to *fewer* of the proxies at once, or to all."""

    def some(lots: random.Random) -> list[Proxy]:
        return lots.sample(proxies, fewer or len(proxies))

    def cut(lots: random.Random) -> None:
        for proxy in some(lots):
            proxy.cut_all()

    def lose(lots: random.Random) -> None:
        for proxy in some(lots):
            # What is held back arrives when the storm is over, if not before.
            proxy.plan(lots.choice(ACTIONS), nth=lots.randint(1, 8))

    def part(lots: random.Random) -> None:
        chosen = some(lots)
        for proxy in chosen:
            proxy.silence()
        pause(lots)
        for proxy in chosen:
            proxy.heal()

    return {"cut": cut, "lose": lose, "partition": part}


def pause(lots: random.Random) -> None:
    """A while."""
    threading.Event().wait(lots.uniform(0.1, AWAY))
