"""Hazards of releasing: too late, in two steps, and without holding the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.hazards.outcome import does_not_apply, failed, survived
from verification.hazards.trial import plural

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial


def after_the_end(trial: Trial) -> Outcome:
    """A holder releases after its lease has ended and another client has the lock."""
    holder, rival, third = trial.worker(), trial.worker(), trial.worker()
    trial.must_acquire(holder, trial.lease, renew=False)
    if not trial.acquire_within(rival, trial.over).held:
        return does_not_apply(f"no other client acquired it for {trial.over:.1f} s")
    error = trial.release(holder)
    if trial.try_acquire(third).held:
        return failed(f"it freed the next holder's lock, and a third acquired it; it {error}")
    return survived(f"the next holder kept it; the late one {error}")


def in_two_steps(trial: Trial) -> Outcome:
    """Each message of a release is held up until the lease has ended and another client has the
    lock.
    """
    late = 0
    for number in trial.numbered_locks():
        holder, rival, third = trial.observed_worker(), trial.worker(), trial.worker()
        holder.warm_up()
        trial.must_acquire(holder.worker, trial.lease, renew=False)
        fault = holder.plan_fault("hold", number)
        if not holder.begin(fault, "release", trial.name):
            break
        held = trial.acquire_within(rival, trial.over).held
        fault.release()
        holder.result()
        if held:
            late += 1
            if trial.try_acquire(third).held:
                return failed(f"step {number} of it came late and freed the next holder's lock")
    if not late:
        return does_not_apply("no other client acquired it during a release")
    return survived(f"{plural(late, 'step')} of it came late: the next holder kept the lock")


def by_a_stranger(trial: Trial) -> Outcome:
    """A client releases a lock that it never acquired."""
    holder, stranger, third = trial.worker(), trial.worker(), trial.worker()
    trial.must_acquire(holder)
    error = trial.release(stranger)
    if trial.try_acquire(third).held:
        return failed(f"it was free for a third client; the stranger {error}")
    return survived(f"still held; the stranger {error}")
