"""Hazards of two clients that acquire at the same time, and of wrong clocks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from verification.hazards.outcome import does_not_apply, failed, survived
from verification.hazards.trial import plural

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial

MINUTE = 60.0
BRIEF = 0.3


def two_at_once(trial: Trial) -> Outcome:
    """Each step of an acquire is held up until another client has tried to acquire the free
    lock.
    """
    steps = 0
    for number in trial.numbered_locks():
        slow, fast = trial.observed_worker(), trial.worker()
        slow.warm_up()
        fault = slow.plan_fault("hold", number)
        if not slow.begin_acquire(fault):
            break
        steps = number
        other = trial.try_acquire(fast)
        fault.release()
        if slow.result().held and other.held:
            return failed(f"both acquired it, one during step {number} of the other")
    return survived(f"{plural(steps, 'step')} held up: never did both acquire it")


def overwritten_end(trial: Trial) -> Outcome:
    """Two clients compete for a lock whose dead holder's lease is over; the loser's step comes
    after the winner's (GETSET). The winner's hold must stay as it was granted.
    """
    late = 0
    for number in trial.numbered_locks():
        dead, loser = trial.worker(), trial.observed_worker()
        winner, third = trial.worker(), trial.worker()
        loser.warm_up()
        trial.must_acquire(dead, trial.lease)
        dead.kill()
        # The lease of the dead holder has to end.
        time.sleep(trial.lease + BRIEF)
        fault = loser.plan_fault("hold", number)
        if not loser.begin_acquire(fault, BRIEF):
            break
        won = trial.try_acquire(winner)
        fault.release()
        if not won.held:
            continue
        late += 1
        if loser.result().held:
            return failed(f"both acquired it, one during step {number} of the other")
        # The loser asked for a lease of BRIEF: if it wrote that, it is over by now.
        time.sleep(2 * BRIEF)
        if trial.try_acquire(third).held:
            return failed("the loser overwrote the winner's end, and a third acquired it")
        error = trial.release(winner)
        if not trial.acquire_within(third, 1.0).held:
            return failed(f"the loser overwrote the winner's end; the winner's release {error}")
    if not late:
        return does_not_apply("no client won while another's step was held up")
    return survived(
        f"{plural(late, 'step')} of a loser came late: the winner's hold stayed as granted"
    )


def wrong_clock(trial: Trial) -> Outcome:
    """A client whose clock is a minute ahead wants a lock that is held; another wants the lock of a
    holder whose clock is a minute behind.
    """
    holder, ahead = trial.worker(), trial.worker(skew=MINUTE)
    trial.must_acquire(holder)
    if trial.try_acquire(ahead).held:
        return failed("a client whose clock is a minute ahead acquired a lock that is held")
    trial.name += ".behind"
    behind, rival = trial.worker(skew=-MINUTE), trial.worker()
    trial.must_acquire(behind)
    if trial.try_acquire(rival).held:
        return failed("a holder whose clock is a minute behind lost its lock to another client")
    return survived("clocks a minute ahead and behind changed nothing")
