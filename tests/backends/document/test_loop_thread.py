"""The bridge to client libraries that are asyncio only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from leaselock.stores import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 60.0


@pytest.fixture
def bridge() -> Iterator[LoopThread]:
    made = LoopThread(time.monotonic)
    yield made
    made.close()


def later(seconds: float) -> float:
    return time.monotonic() + seconds


async def thread() -> threading.Thread:
    return threading.current_thread()


async def wait_for_ever(ended: threading.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


def test_all_calls_run_in_one_other_thread(bridge: LoopThread) -> None:
    first = bridge.run(thread(), later(LONG))
    assert first is not threading.current_thread()
    assert bridge.run(thread(), later(LONG)) is first


def test_errors_are_those_of_the_coroutine(bridge: LoopThread) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bridge.run(fail(), later(LONG))


def test_a_call_that_takes_too_long_is_cancelled(bridge: LoopThread) -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError):
        bridge.run(wait_for_ever(ended), later(0.01))
    assert ended.wait(LONG)
    bridge.run(thread(), later(LONG))


def test_what_was_started_ends_when_it_is_cancelled_or_the_bridge_is_closed(
    bridge: LoopThread,
) -> None:
    one, other = threading.Event(), threading.Event()
    cancel = bridge.start(wait_for_ever(one))
    bridge.start(wait_for_ever(other))
    bridge.run(thread(), later(LONG))
    cancel()
    assert one.wait(LONG)
    assert not other.is_set()
    served = bridge.run(thread(), later(LONG))
    bridge.close()
    assert other.is_set()
    assert not served.is_alive()
    assert bridge.run(thread(), later(LONG)) is not served


def test_a_task_that_loses_a_cancellation_is_cancelled_again(bridge: LoopThread) -> None:
    ended = threading.Event()

    async def lose_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await wait_for_ever(ended)

    bridge.start(lose_one())
    bridge.run(thread(), later(LONG))
    bridge.close()
    assert ended.is_set()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own(bridge: LoopThread) -> None:
    bridge.run(thread(), later(LONG))
    pid = os.fork()
    if pid == 0:
        bridge.after_fork()
        os._exit(0 if bridge.run(thread(), later(LONG)).is_alive() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    bridge.run(thread(), later(LONG))
