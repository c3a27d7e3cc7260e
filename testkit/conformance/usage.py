"""The forms of use: context manager, decorator, and lease object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import AcquireTimeout
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness


@scenario()
async def body_holds_the_lock(harness: Harness) -> None:
    """From its first line to its last; the lock object can be used again."""
    lock = harness.lock("a")
    tokens = []
    for _ in range(3):
        async with lock as lease:
            assert lock.owned()
            assert (lease.name, lease.lost) == ("a", False)
            tokens.append(lease.token)
        assert not await lock.locked()
    assert tokens == sorted(set(tokens))


@scenario()
async def lease_is_true(harness: Harness) -> None:
    """`if lease := acquire()` distinguishes a grant from None."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    if lease := await lock.try_acquire():
        assert not await rival.try_acquire()
        await lease.release()
    assert lease
    await rival.acquire(timeout=0)


@scenario()
async def lock_decorates_a_function(harness: Harness) -> None:
    """The function runs under the lock, and keeps arguments, result, name and exceptions."""
    lock = harness.lock("a", timeout=0.05)
    rival = harness.client().lock("a")

    @lock
    async def divide(dividend: int, *, by: int) -> float:
        assert lock.owned()
        assert await rival.try_acquire() is None
        return dividend / by

    assert await divide(6, by=3) == 2.0
    with raising(ZeroDivisionError):
        await divide(6, by=0)
    assert not await lock.locked()
    async with rival:
        with raising(AcquireTimeout, "a"):
            await divide(6, by=3)


@scenario()
async def decorated_function_may_recurse(harness: Harness) -> None:
    """The lock is reentrant, so recursion nests."""
    lock = harness.lock("a")

    @lock
    async def factorial(number: int) -> int:
        return number * await factorial(number - 1) if number else 1

    assert await factorial(10) == 3628800
    assert not await lock.locked()


@scenario()
async def name_and_owned_send_no_request(harness: Harness) -> None:
    """Both work before any request was sent."""
    lock = harness.lock("a")
    assert (lock.name, lock.owned()) == ("a", False)
