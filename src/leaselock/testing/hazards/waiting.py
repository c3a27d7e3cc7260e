"""Hazards of waiting: cost, wake-ups, order and self-deadlock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import failed, nothing, survived
from leaselock.testing.hazards.scene import LONG, SOON, said

if TYPE_CHECKING:
    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene

BRIEF, WATCHED = 0.4, 1.5
# How often a waiter may check in that time.
OFTEN = 8
FEW, CROWD = 3, 9
SETTLED = 0.8
# Requests of one waiter in that time: above keep-alive traffic, below that of polling.
RESTLESS = 12
STAGGER = 0.3


def polling(scene: Scene) -> Outcome:
    """One client waits while nothing happens. It must send few requests."""
    holder, waiter = scene.actor(), scene.slow()
    waiter.warm()
    scene.hold(holder)
    # Both waits have the same costs at their beginning and end.
    asked = -waiter.touches(BRIEF) + waiter.touches(BRIEF + WATCHED)
    seen = f"one waiter accessed the store {max(0, asked)} times in {WATCHED} s"
    return failed(seen) if asked > OFTEN else survived(seen)


def herd(scene: Scene) -> Outcome:
    """Several clients wait. The cost of a release and the next grant must not grow with them."""
    scene.networked()
    few, many = hand_over(scene, FEW), hand_over(scene, CROWD)
    if many < 0:
        return nothing("its waiters poll permanently")
    seen = f"{few:.1f} requests per hand-off with {FEW} waiters, {many:.1f} with {CROWD}"
    return failed(seen) if many > 1.5 * few else survived(seen)


def hand_over(scene: Scene, count: int) -> float:
    """Return how many requests of waiters one hand-off takes; -1 if they poll permanently."""
    scene.name += f".{count}"
    holder, crowd = scene.actor(), scene.slow()
    scene.hold(holder)
    crowd.actor.ask("swarm", count, scene.name, LONG, SOON)
    # No recipe reports when all of its waiters are idle.
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
    """Three clients wait in order; the holder releases and requests the lock again at once."""
    holder = scene.actor()
    waiters = [scene.actor() for _ in range(3)]
    scene.hold(holder)
    for waiter in waiters:
        waiter.begin("turn", scene.name, 30.0, SOON)
        # No recipe reports when a waiter is queued.
        time.sleep(STAGGER)
    scene.release(holder)
    holder.begin("turn", scene.name, 30.0, SOON)
    grants = [(actor.result(), who) for actor, who in zip([*waiters, holder], "123H", strict=True)]
    if not all(answer.held for answer, _ in grants):
        starved = "".join(who for answer, who in grants if not answer.held)
        return failed(f"never granted to {starved} in {SOON:.0f} s")
    order = "".join(who for _, who in sorted((answer.ended, who) for answer, who in grants))
    seen = f"requested in the order 123H, granted in the order {order}"
    return survived(seen) if order == "123H" else failed(seen)


def nesting(scene: Scene) -> Outcome:
    """The holder acquires its lock again, and releases it twice."""
    holder, rival = scene.actor(), scene.actor()
    scene.hold(holder)
    again = scene.wait(holder, 0.5)
    if not again.held:
        return failed("self-deadlock: the holder waits for itself")
    scene.release(holder)
    if scene.take(rival).held:
        return failed("free after the first of two releases")
    scene.release(holder)
    if not scene.wait(rival, SOON).held:
        return failed("still held after both releases")
    return survived("acquired twice, free after the second release")
