"""Hazards of a holder that dies: while it holds the lock, and while it acquires it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from verification.hazards.outcome import failed, survived
from verification.hazards.trial import plural

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial

# Seconds after which everything that a dead process had sent has reached the server.
ARRIVAL = 0.05


def crash(trial: Trial) -> Outcome:
    """A holder is killed. Its lock must be free soon after its lease or session ends."""
    holder, successor = trial.worker(), trial.worker()
    trial.must_acquire(holder, trial.lease)
    holder.kill()
    began = time.monotonic()
    if trial.acquire_within(successor, trial.bound).held:
        return survived(f"free {time.monotonic() - began:.1f} s after its holder was killed")
    return failed(f"still held {trial.bound:.1f} s after its holder was killed")


def fork(trial: Trial) -> Outcome:
    """A holder forks, and the child ends as the program does: it releases. The holder must keep
    its lock.
    """
    holder, third = trial.worker(), trial.worker()
    trial.must_acquire(holder)
    holder.run("fork", trial.name)
    if trial.try_acquire(third).held:
        return failed("the child's release freed its parent's lock")
    return survived("the parent kept its lock")


def crash_midway(trial: Trial) -> Outcome:
    """A program is killed after each step of an acquire (SETNX … EXPIRE)."""
    longest, deaths = 0.0, 0
    for number in trial.numbered_locks():
        victim, successor = trial.observed_worker(), trial.worker()
        victim.warm_up()
        triggered = victim.begin_acquire(victim.plan_fault("lose_reply", number), trial.lease)
        # Its last message must reach the server; no event reports when it has.
        time.sleep(ARRIVAL)
        victim.kill()
        began = time.monotonic()
        # Some methods repair what they find, after their own lease.
        if not trial.acquire_within(successor, trial.bound, trial.lease).held:
            step = f"in step {number}" if triggered else "after the last step"
            return failed(f"killed {step}: still held {trial.bound:.1f} s later")
        longest = max(longest, time.monotonic() - began)
        if not triggered:
            break
        deaths = number
    return survived(f"killed in {plural(deaths, 'step')}: free after {longest:.1f} s at most")
