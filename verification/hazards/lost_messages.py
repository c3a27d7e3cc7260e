"""Hazards of the network: a reply that is lost, and a request that arrives too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.polling import poll_until
from verification.hazards.outcome import failed, survived
from verification.hazards.trial import GRACE, describe_error, plural

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import ObservedWorker, Trial


def lost_reply(trial: Trial) -> Outcome:
    """The reply to each message of an acquire is lost. A client whose acquire fails must not hold
    the lock.
    """
    trial.require_network()
    lost = 0
    for number in trial.numbered_locks():
        client, successor = trial.observed_worker(), trial.worker()
        client.warm_up()
        if not client.begin_acquire(client.plan_fault("lose_reply", number)):
            break
        lost = number
        held, error = _finish(trial, client)
        if not trial.acquire_within(successor, GRACE).held:
            return failed(f"{_ghost(number, held)}; the client {error}")
    return survived(f"{plural(lost, 'reply')} lost: no hold without an owner")


def _finish(trial: Trial, client: ObservedWorker) -> tuple[bool, str]:
    """Release the lock if the client was granted it; return whether it was, and its error."""
    if not poll_until(client.worker.ready, GRACE):
        return False, "waits for a reply"
    result = client.result()
    if result.held:
        trial.release(client.worker)
    return result.held, describe_error(result)


def _ghost(number: int, held: bool) -> str:
    when = "after its release" if held else f"after reply {number} was lost"
    return f"held without an owner, still {GRACE:.0f} s {when}"


def late_request(trial: Trial) -> Outcome:
    """Each message of an acquire is held up, and delivered when its client has long finished."""
    trial.require_network()
    late = 0
    for number in trial.numbered_locks():
        client, successor = trial.observed_worker(), trial.worker()
        client.warm_up()
        fault = client.plan_fault("hold", number)
        if not client.begin_acquire(fault):
            break
        late = number
        _finish(trial, client)
        # A client that still waits is killed, as a user would do.
        if client.worker.pending:
            client.worker.kill()
        else:
            client.worker.run("close")
        fault.release()
        if not trial.acquire_within(successor, GRACE).held:
            return failed(
                f"message {number} came late and left a hold without an owner, "
                f"still {GRACE:.0f} s later"
            )
    return survived(f"{plural(late, 'message')} came late: no hold without an owner")
