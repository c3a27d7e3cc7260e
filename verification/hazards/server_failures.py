"""Hazards of a store that loses acknowledged writes: on private servers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.polling import poll_until
from verification.hazards.leases import by_late_write, late_write
from verification.hazards.outcome import failed, not_played, survived
from verification.hazards.stores import HazardStore
from verification.hazards.trial import RETRIES, Trial

if TYPE_CHECKING:
    from verification.hazards.outcome import Outcome
    from verification.hazards.process_pool import WorkerProcess
    from verification.hazards.stores import FailingStore
    from verification.hazards.worker import Result

LEASE = 2.0


def failover(trial: Trial) -> Outcome:
    """The master dies before its replica has the lock, and the replica replaces it."""
    return on_private_server(trial, "failover")


def restart(trial: Trial) -> Outcome:
    """The server is killed, and starts again with what it has on disk."""
    return on_private_server(trial, "restart")


def on_private_server(trial: Trial, failure: str) -> Outcome:
    """Start a private store and run the trial on it."""
    trial.require_network()
    start = trial.store.failures.get(failure)
    if start is None:
        return not_played(f"needs a private server for a {failure}: python -m verification.hazards")
    with (
        start() as failing,
        HazardStore(failing.url) as store,
        Trial(trial.pool, trial.method, store, 0) as private,
    ):
        return _fail_while_held(private, failing)


def _acquire_after_failure(trial: Trial, rival: WorkerProcess) -> Result:
    """Acquire the lock from a store that may just have started; retry on errors."""
    for _ in range(RETRIES):
        result = trial.acquire_within(rival, LEASE / 2)
        if result.held or not result.error:
            return result
    raise RuntimeError(f"the store does not serve: {result.message}")


def _fail_while_held(trial: Trial, failing: FailingStore) -> Outcome:
    holder = trial.worker()
    failing.stop_replication()
    old = trial.must_acquire(holder, LEASE)
    failing.fail()
    # A new worker: the connections of existing ones are broken.
    new = _acquire_after_failure(trial, trial.worker())
    if not new.held:
        return survived("no other client acquired it")
    if not holder.run("report").until:
        write = late_write(trial, old, new)
        refused = write.endswith("refused")
        return (survived if refused else failed)(f"another acquired it; its holder knew; {write}")
    learnt = poll_until(lambda: not holder.run("report").until, 2 * LEASE)
    when = "learnt of it at the next renewal" if learnt else "never learnt of it"
    return by_late_write(trial, old, new, f"another acquired it; its holder {when}")
