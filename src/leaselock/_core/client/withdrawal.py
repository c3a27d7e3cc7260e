"""The end of an acquisition that was not granted: its claim leaves the queue of the store.

Nothing here is needed for the claim to go: its row is not in hand any more, and the renewer ends
it. Here the release is sent sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client.hold import State
from leaselock._core.client.lease_reference import no_operation
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.attempts import Attempts
    from leaselock._core.client.lease_handle import LeaseHandle


async def withdraw(attempts: Attempts) -> None:
    """Leave the queue. A try that was refused has left nothing there. If the store does not answer,
    the row stays, and the renewer goes on.
    """
    hold, registry = attempts.hold, attempts.registry
    if attempts.wait or hold.uncertain:
        until = registry.withdraw_by()
        hold.transition("release")
        try:
            claim = hold.claim.unused()
            await registry.backend.release(claim, tombstone=hold.uncertain, until=until)
        except StoreError:
            return
    registry.forget(hold)


async def end_after(attempts: Attempts, error: BaseException, lease: LeaseHandle) -> BaseException:
    """The acquisition was cancelled, interrupted or refused: return the error to raise.

    The claim is not withdrawn where nothing can be awaited any more; nor from a store that did not
    answer until the deadline; nor by a client that is being closed, which releases it itself.
    """
    hold, registry = attempts.hold, attempts.registry
    try:
        left = hold.claim.id not in registry.table or hold.state is State.ENDING
        if not (left or registry.closed or isinstance(error, GeneratorExit | StoreError)):
            hold.uncertain = True  # the request that was interrupted may still arrive
            await withdraw(attempts)
    except BaseException as second:
        error = second
    lease.reference.ended_by = no_operation
    if hold.claim.id in registry.table:
        registry.wake_renewer(0.0)
    if isinstance(error, GeneratorExit):
        return error  # nothing can be awaited any more
    return await _reported(attempts, error)


async def _reported(attempts: Attempts, error: BaseException) -> BaseException:
    """Report the error; return the one to raise, which names the lock."""
    if isinstance(error, StoreError):
        await attempts.report("failed", reason=str(error))
        return error.concerning(attempts.claim.name)
    if left := attempts.registry.left([attempts.hold]):
        error.add_note(f"leaselock: {left}")
    await attempts.report("cancelled", reason="; ".join(filter(None, (str(error), left))))
    return error
