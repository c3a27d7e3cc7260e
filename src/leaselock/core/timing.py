"""How long to wait before the next try, and when to renew. Pure: time and chance are handed in."""

from __future__ import annotations

RENEWALS_PER_LEASE = 3
PATIENCE_OF_A_TRY = 1.0
UNDO_PATIENCE = 5.0
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 1.0
SHORTEST_TRY = 0.05
MOST_LATE = 3
# What a sum of floats may be short of, in seconds.
ROUNDING = 1e-6
# How much of a session one proof of life is good for. The store may have counted its silence
# from an earlier sign of life than the proof: in ZooKeeper up to a third of the session (the
# pings of an idle client) and half a tick (a server tells the leader of them) earlier.
PROVEN = 0.5


def pause(attempt: int, chance: float) -> float:
    """Full jitter, so that those who failed together do not come back together (hazard D10)."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)) * (0.1 + 0.9 * chance)


def answer_by(now: float, deadline: float, patience: float) -> float:
    """Until when to wait for the store's answer.

    A try that may not wait for the lock must still be answered, and a wait must end on time
    when the store is silent (hazard B13); so the deadline rules, but for a short grace.
    """
    latest = now + patience
    if deadline >= latest:
        return latest
    return max(deadline, now + min(patience, PATIENCE_OF_A_TRY))


def ask_again_by(now: float, give_up: float) -> float:
    """Until when one question may take of the time until *give_up*.

    Half of what is left: so that a question whose reply was lost can be asked again.
    """
    half = (give_up - now) / 2
    until = now + (half if half > SHORTEST_TRY else SHORTEST_TRY)
    return until if until < give_up else give_up


def renew_at(asked: float, lease: float) -> float:
    """A third of the lease after the last question that was answered."""
    return asked + lease / RENEWALS_PER_LEASE


def renew_early(lease: float) -> float:
    """Renewals due within this time of one another are sent as one."""
    return lease / (4 * RENEWALS_PER_LEASE)


def believed_until(asked: float, lease: float, drift: float, margin: float) -> float:
    """The end of what a holder may believe, counted from the question (hazard B2).

    *drift* is how much faster the store's clock may run than ours, *margin* what its
    granularity and ours may add; for a very short lease the margin shrinks with it.
    """
    most = lease / 10
    return asked + lease * (1.0 - drift) - (margin if margin < most else most)


def lease_until(asked: float, until: float, drift: float, margin: float) -> float:
    """The lease to ask for, so that its answer is good `until` then: `believed_until`, solved."""
    return (until - asked + margin) / (1.0 - drift) + ROUNDING


def proven_until(asked: float, session: float) -> float:
    """Until when an answer proves that the session lives which the hold ends with (hazard I1)."""
    return asked + session * PROVEN
