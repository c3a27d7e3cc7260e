"""Hazards of waiting: what it costs, whom it wakes, who comes first, and waiting for oneself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, nothing, survived
from leaselock.testing.hazards.scene import LONG, SOON, said

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene

BRIEF, WATCHED = 0.4, 1.5
# Somebody who waits may ask this often in that time: some reassure themselves.
OFTEN = 8
FEW, CROWD = 3, 9
SETTLED = 0.8
# Messages of one waiter in that time: more than signs of life, and no fewer than asking again.
RESTLESS = 12
STAGGER = 0.3


def polling(scene: Scene) -> Outcome:
    """What does one waiter ask of the store while nothing happens?"""
    holder, waiter = scene.actor(), scene.slow()
    waiter.warm()
    scene.hold(holder)
    # Both waits begin and end alike.
    asked = -waiter.touches(BRIEF) + waiter.touches(BRIEF + WATCHED)
    seen = f"one waiter touched the store {max(0, asked)} times in {WATCHED} s"
    return failed(seen) if asked > OFTEN else survived(seen)


def herd(scene: Scene) -> Outcome:
    """Several wait. What a release and the next grant cost must not grow with their number."""
    scene.networked()
    few, many = hand_over(scene, FEW), hand_over(scene, CROWD)
    if many < 0:
        return nothing("its waiters ask all the time, release or not")
    seen = f"{few:.1f} messages for each hand-over to {FEW} waiters, {many:.1f} to {CROWD}"
    return failed(seen) if many > 1.5 * few else survived(seen)


def hand_over(scene: Scene, count: int) -> float:
    """How many messages of waiters one hand-over takes; -1 where they never rest."""
    scene.name += f".{count}"
    holder, crowd = scene.actor(), scene.slow()
    scene.hold(holder)
    crowd.actor.ask("swarm", count, scene.name, LONG, SOON)
    # No recipe says when all of its waiters are at rest.
    time.sleep(SETTLED)
    if crowd.cost(SETTLED) > RESTLESS * count:
        return -1.0
    before = crowd.line.requests()
    crowd.actor.begin("join")
    released = holder.ask("release", scene.name)
    served = crowd.actor.result()
    if served.said:
        raise RuntimeError(f"{served.why}; the release {said(released)}")
    return (crowd.line.requests() - before) / count


def barging(scene: Scene) -> Outcome:
    """Three wait, one after another; the holder releases and wants it again. Who is next?"""
    holder = scene.actor()
    waiters = [scene.actor() for _ in range(3)]
    scene.hold(holder)
    for waiter in waiters:
        waiter.begin("turn", scene.name, 30.0, SOON)
        # Nor when one has taken its place, before the next comes.
        time.sleep(STAGGER)
    scene.release(holder)
    holder.begin("turn", scene.name, 30.0, SOON)
    grants = [(actor.result(), who) for actor, who in zip([*waiters, holder], "123H", strict=True)]
    if not all(answer.held for answer, _ in grants):
        starved = "".join(who for answer, who in grants if not answer.held)
        return failed(f"never granted to {starved} in {SOON:.0f} s")
    order = "".join(who for _, who in sorted((answer.ended, who) for answer, who in grants))
    seen = f"asked in the order 123H, granted in the order {order}"
    return survived(seen) if order == "123H" else failed(seen)


def nesting(scene: Scene) -> Outcome:
    """A holder takes its lock again, and gives it back twice."""
    holder, rival = scene.actor(), scene.actor()
    scene.hold(holder)
    again = scene.wait(holder, 0.5)
    if not again.held:
        return failed("its holder waits for itself")
    scene.release(holder)
    if scene.take(rival).held:
        return failed("free after the first of two releases")
    scene.release(holder)
    if not scene.wait(rival, SOON).held:
        return failed("still held after both releases")
    return survived("taken twice, free after the second release")
