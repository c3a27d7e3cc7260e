"""Hazards of waiting: its cost, thundering herds, order of grants, and a holder that waits for
itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from verification.hazards.outcome import does_not_apply, failed, survived
from verification.hazards.trial import LONG, SOON, describe_error

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial

# Seconds: the wait that is subtracted as a baseline, and the measured part.
BRIEF, MEASURED = 0.4, 1.5
# A waiter without polling may still access the store this often in that time, to recheck: with
# SQLite, one look is nine calls.
OFTEN = 10
FEW, MANY = 3, 9
SETTLE_TIME = 0.8
# Messages of one waiter in that time: more than heartbeats, fewer than polling.
POLLING = 12
STAGGER = 0.3


def polling(trial: Trial) -> Outcome:
    """How often does one waiter access the store while nothing changes?"""
    holder, waiter = trial.worker(), trial.observed_worker()
    waiter.warm_up()
    trial.must_acquire(holder)
    # The difference of two waits: both begin and end alike.
    accesses = -waiter.accesses(BRIEF) + waiter.accesses(BRIEF + MEASURED)
    seen = f"one waiter accessed the store {max(0, accesses)} times in {MEASURED} s"
    return failed(seen) if accesses > OFTEN else survived(seen)


def herd(trial: Trial) -> Outcome:
    """Several clients wait. The cost of a release and the next grant must not grow with their
    number.
    """
    trial.require_network()
    few, many = hand_over(trial, FEW), hand_over(trial, MANY)
    if many < 0:
        return does_not_apply("its waiters poll all the time, release or not")
    seen = f"{few:.1f} messages for each hand-over with {FEW} waiters, {many:.1f} with {MANY}"
    return failed(seen) if many > 1.5 * few else survived(seen)


def hand_over(trial: Trial, count: int) -> float:
    """Return the number of waiters' messages for one hand-over; -1 if the waiters poll."""
    trial.name += f".{count}"
    holder, waiters = trial.worker(), trial.observed_worker()
    trial.must_acquire(holder)
    waiters.worker.run("start_waiters", count, trial.name, LONG, SOON)
    # No recipe reports when all of its waiters are queued.
    time.sleep(SETTLE_TIME)
    if waiters.messages(SETTLE_TIME) > POLLING * count:
        return -1.0
    before = waiters.connection.requests()
    waiters.worker.begin("join_waiters")
    released = holder.run("release", trial.name)
    joined = waiters.worker.result()
    if joined.error:
        raise RuntimeError(f"{joined.message}; the release {describe_error(released)}")
    return (waiters.connection.requests() - before) / count


def barging(trial: Trial) -> Outcome:
    """Three clients queue one after another; the holder releases and acquires again. Who is
    next?
    """
    holder = trial.worker()
    waiters = [trial.worker() for _ in range(3)]
    trial.must_acquire(holder)
    for waiter in waiters:
        waiter.begin("acquire_release", trial.name, 30.0, SOON)
        # No recipe reports when its waiter is queued, before the next one comes.
        time.sleep(STAGGER)
    trial.release(holder)
    holder.begin("acquire_release", trial.name, 30.0, SOON)
    queue = zip([*waiters, holder], "123H", strict=True)
    grants = [(worker.result(), label) for worker, label in queue]
    if not all(result.held for result, _ in grants):
        starved = "".join(label for result, label in grants if not result.held)
        return failed(f"never granted to {starved} in {SOON:.0f} s")
    order = "".join(label for _, label in sorted((result.ended, label) for result, label in grants))
    seen = f"requested in the order 123H, granted in the order {order}"
    return survived(seen) if order == "123H" else failed(seen)


def nesting(trial: Trial) -> Outcome:
    """A holder acquires its lock again, and releases it twice."""
    holder, rival = trial.worker(), trial.worker()
    trial.must_acquire(holder)
    again = trial.acquire_within(holder, 0.5)
    if not again.held:
        return failed("its holder waits for itself")
    trial.release(holder)
    if trial.try_acquire(rival).held:
        return failed("free after the first of two releases")
    trial.release(holder)
    if not trial.acquire_within(rival, SOON).held:
        return failed("still held after both releases")
    return survived("acquired twice, free after the second release")
