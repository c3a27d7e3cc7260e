"""Hazards of work that outlives the lease: does the holder learn of it, is its write accepted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.hazards.outcome import Outcome, does_not_apply, failed, fenced, survived

if TYPE_CHECKING:
    from verification.hazards.trial import Trial
    from verification.hazards.worker import Result


def outlived(trial: Trial) -> Outcome:
    """The work outlives a lease that is not renewed, and then writes."""
    holder, rival = trial.worker(), trial.worker()
    old = trial.must_acquire(holder, trial.lease, renew=False)
    new = trial.acquire_within(rival, trial.over)
    if not new.held:
        return does_not_apply(
            f"it does not end by time: no other client acquired it for {trial.over:.1f} s"
        )
    if old.until <= new.ended and not holder.run("report").until:
        early = (new.ended - old.until) * 1000
        write = late_write(trial, old, new)
        return survived(f"the loss was known {early:.0f} ms before the next grant; {write}")
    return by_late_write(trial, old, new, "another acquired it, and its holder did not know")


def renewed(trial: Trial) -> Outcome:
    """The work takes three times as long as the lease; whatever renews it may do so."""
    holder, rival = trial.worker(), trial.worker()
    old = trial.must_acquire(holder, trial.lease)
    length = 3 * trial.lease
    new = trial.acquire_within(rival, length)
    if not new.held:
        return survived(f"no other client acquired it during {length:.1f} s of work")
    passed = new.ended - old.ended
    if not holder.run("report").until:
        return failed(f"it was lost after {passed:.1f} s of {length:.1f} s of work")
    seen = f"another acquired it after {passed:.1f} s of {length:.1f} s of work"
    return by_late_write(trial, old, new, seen)


def frozen(trial: Trial) -> Outcome:
    """The holder is stopped for longer than its lease, and writes when it resumes."""
    holder, rival = trial.worker(), trial.worker()
    old = trial.must_acquire(holder, trial.lease)
    holder.freeze()
    new = trial.acquire_within(rival, trial.over)
    holder.begin("report")
    holder.resume()
    knows = not holder.result().until
    if not new.held:
        return does_not_apply(
            f"no other client acquired it while it was stopped for {trial.over:.1f} s"
        )
    if knows:
        return survived(f"it knew of the loss on resuming; {late_write(trial, old, new)}")
    return by_late_write(trial, old, new, "it resumed, and took its lease for valid")


def late_write(trial: Trial, old: Result, new: Result) -> str:
    """Write as the new holder, then as the old one; return whether the late write was accepted."""
    trial.register.write(new)
    return f"its late write was {'accepted' if trial.register.write(old) else 'refused'}"


def by_late_write(trial: Trial, old: Result, new: Result, seen: str) -> Outcome:
    """Return the outcome when two holds overlap: only the token can protect the resource."""
    write = late_write(trial, old, new)
    refused = write.endswith("refused")
    return (fenced if refused else failed)(f"{seen}; {write}")
