"""Edge cases of the driver for asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.drivers.test_threads import Nowhere, strange, waits

import leaselock
from leaselock._core.contract.effects import (
    FOREVER,
    CallUser,
    Operation,
    Signal,
    Sleep,
    Spawn,
    Wait,
)
from leaselock._core.contract.lifecycle import Lifecycle
from leaselock._drivers.aio import Aio, TaskInterrupter, _at_exit, _current_task, _Waker
from leaselock._drivers.in_thread import InThread
from leaselock._drivers.system_env import now, was_closed

# Longer than any operation here; a test that reaches it has failed.
TIMEOUT = 60.0


def test_an_object_that_is_no_effect_is_named() -> None:
    with pytest.raises(TypeError, match="which is not an effect"):
        asyncio.run(Aio().run(strange()))


def test_outside_of_a_task_there_is_no_owner() -> None:
    async def main() -> None:
        driver = Aio()
        failed: list[Exception] = []

        def ask() -> None:
            try:
                driver.owner()
            except RuntimeError as error:
                failed.append(error)
            assert driver.body_interrupter() is None

        asyncio.get_running_loop().call_soon(ask)
        await asyncio.sleep(0)
        assert "from a task" in str(failed[0])

    asyncio.run(main())
    assert _current_task() is None


def test_another_open_loop_is_refused_and_the_process_closed() -> None:
    driver = Aio()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(driver.run(waits()))
    operation = waits()
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(driver.run(operation))
    assert was_closed(operation)
    loop.close()


def test_a_signal_that_is_set_is_not_waited_for() -> None:
    async def main() -> None:
        signal = Signal()
        driver = Aio()
        assert await driver.run(waits(Wait(signal, now() + 0.01))) == [False]
        signal.set()
        assert await driver.run(waits(Wait(signal, FOREVER))) == [True]
        assert signal.wakers == []

    asyncio.run(main())


def test_a_wait_that_the_timer_and_the_signal_end_is_ended_once() -> None:
    async def main() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wake = _Waker(ended)
        wake()
        wake()
        assert await ended is None  # type: ignore[func-returns-value]

    asyncio.run(main())


def test_a_task_cancelled_before_its_first_step_closes_its_process() -> None:
    async def main() -> None:
        driver = Aio()
        operation: Operation[Any] = waits()
        driver._spawn(operation, "x")
        (task,) = driver.background
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert was_closed(operation)
        assert driver.background == set()

    asyncio.run(main())


def test_the_end_of_a_loop_waits_for_tasks_that_a_cancelled_task_has_started() -> None:
    ended: list[str] = []
    driver = Aio()

    async def child() -> None:
        try:
            await Sleep(FOREVER)
        finally:
            ended.append("child")

    async def parent() -> None:
        try:
            await Sleep(FOREVER)
        finally:
            await Spawn(child(), "child")

    async def main() -> None:
        await driver.run(waits(Spawn(parent(), "parent"), Sleep(0.0)))

    asyncio.run(main())
    assert ended == ["child"]
    assert not driver.background


def test_the_end_of_a_loop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaselock._drivers.aio.CLOSE_TIMEOUT", 0.01)
    loop = asyncio.new_event_loop()
    driver = Aio()
    refused = asyncio.Event()

    async def refuse(argument: object) -> None:
        while not refused.is_set():
            try:
                await refused.wait()
            except asyncio.CancelledError:
                continue

    async def background() -> None:
        await CallUser(refuse, None)

    loop.run_until_complete(driver.run(waits(Spawn(background(), "callback"))))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    (task,) = driver.background
    refused.set()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


def test_a_process_that_the_collector_has_closed_gets_no_error() -> None:
    """In the order in which it ends the coroutines of a loop that was closed with its tasks."""

    async def main() -> None:
        operation = waits(Wait(Signal(), FOREVER))
        task = asyncio.ensure_future(Aio().run(operation))
        await asyncio.sleep(0)
        operation.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_an_abandoned_process_is_not_started() -> None:
    async def main() -> None:
        operation: Operation[Any] = waits()
        operation.close()
        await Aio()._in_background(operation)

    asyncio.run(main())


@pytest.mark.parametrize("in_callback", [True, False], ids=["callback", "process"])
def test_an_error_outside_of_the_caller_is_reported(in_callback: bool) -> None:
    async def main() -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        driver = Aio()
        if in_callback:
            await driver.run(waits(CallUser(lambda argument: 1 / argument, 0)))
        else:
            driver._spawn(strange(), "x")
            await asyncio.wait(set(driver.background))
            await asyncio.sleep(0)
        return reported

    (context,) = asyncio.run(main())
    assert isinstance(context["exception"], ZeroDivisionError if in_callback else TypeError)


def test_a_body_is_cancelled_once_and_not_by_itself() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        own = TaskInterrupter(task)
        own.interrupt()
        assert not own.finish(None)
        other = asyncio.create_task(asyncio.sleep(60))
        interrupter = TaskInterrupter(other)
        interrupter.interrupt()
        interrupter.interrupt()
        assert other.cancelling() == 1
        with pytest.raises(asyncio.CancelledError):
            await other

    asyncio.run(main())


def test_a_body_of_a_closed_loop_is_not_cancelled() -> None:
    """The body will never continue, and another loop may use the client."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # of a task that never ends
    task = loop.create_task(asyncio.sleep(60))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    interrupter = TaskInterrupter(task)
    interrupter.interrupt()
    assert not interrupter.interrupted


def test_a_callback_may_close_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback does not wait for itself."""
    monkeypatch.setattr("leaselock._drivers.aio.CLOSE_TIMEOUT", 60.0)

    async def main() -> None:
        client = leaselock.AsyncClient("memory://closed by a callback")
        closed = asyncio.Event()

        async def close(lease: leaselock.AsyncLease) -> None:
            await client.close()
            closed.set()

        lease = await client.lock("a", lease=0.1, renew=False).acquire()
        assert lease is not None
        lease.on_lost(close)
        await asyncio.wait_for(closed.wait(), TIMEOUT)

    asyncio.run(main())


def test_no_callback_prevents_the_others() -> None:
    """A callback that cancels a task and waits for it gets that task's CancelledError."""

    async def main() -> None:
        work, called = asyncio.create_task(asyncio.sleep(60)), asyncio.Event()

        async def stop(lease: leaselock.AsyncLease) -> None:
            work.cancel()
            await work

        async with leaselock.AsyncClient("memory://callbacks") as client:
            lease = await client.lock("a", lease=0.1, renew=False).acquire()
            assert lease is not None
            lease.on_lost(stop)
            lease.on_lost(lambda lease: called.set())
            await asyncio.wait_for(called.wait(), TIMEOUT)

    asyncio.run(main())


def test_late_answers_are_ignored() -> None:
    async def main() -> None:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        future.cancel()
        lent = InThread(Nowhere())
        lent._answer(future, 1)
        lent._fail(future, ValueError())
        assert future.cancelled()

    asyncio.run(main())


class LoggedStore(Lifecycle):
    """A store that records its lifecycle calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self) -> None:
        self.calls.append("wake")

    def close(self) -> None:
        self.calls.append("close")
        asyncio.get_running_loop().call_soon(self.calls.append, "the loop has run")

    def after_fork(self) -> None:
        self.calls.append("after_fork")


def test_close_wakes_and_closes_the_parts() -> None:
    store = LoggedStore()

    async def main() -> None:
        await Aio((store,)).close()
        assert store.calls == ["wake", "close", "the loop has run"]

    asyncio.run(main())


def test_connections_are_dropped_after_a_fork_and_after_the_end_of_their_loop() -> None:
    store = LoggedStore()
    driver = Aio((store,))
    for _ in range(2):
        asyncio.run(driver.run(waits(Sleep(0.0))))
    assert store.calls == ["after_fork"]
    driver.after_fork()
    assert store.calls == ["after_fork", "after_fork"]


def test_a_node_that_blocks_is_closed_after_the_end_of_the_loop() -> None:
    """It belongs to no loop, so it can be closed in order."""
    nowhere = Nowhere()
    driver = Aio((nowhere,))
    for _ in range(2):
        asyncio.run(driver.run(waits(Sleep(0.0))))
    assert nowhere.calls == ["wake", "close"]


def test_a_forked_child_resets_its_state() -> None:
    nowhere = Nowhere()
    driver = Aio((nowhere,))
    driver.after_fork()
    reasons: list[tuple[str, bool]] = []
    driver.forgotten = lambda reason, ours: reasons.append((reason, ours))
    driver.after_fork()
    assert nowhere.calls == ["after_fork", "after_fork"]
    assert "forked" in reasons[0][0]
    assert not reasons[0][1]


def test_an_answer_of_a_thread_for_a_closed_loop_is_ignored() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Nowhere):
        def call(self, request: object, until: float) -> object:
            begun.set()
            go_on.wait(TIMEOUT)
            return request

    lent = InThread(Slow())

    async def ask() -> None:
        asking = asyncio.create_task(lent.call("x", FOREVER))
        await asyncio.to_thread(begun.wait, TIMEOUT)
        asking.cancel()

    asyncio.run(ask())
    go_on.set()
    lent.retire()
    lent.retire()
    assert not lent.threads


def test_a_node_that_may_be_called_by_several_threads_is() -> None:
    class Three(Nowhere):
        concurrency = 3

        def call(self, request: object, until: float) -> object:
            together.wait(TIMEOUT)
            return request

    together = threading.Barrier(3)
    lent = InThread(Three())

    async def ask() -> None:
        assert await asyncio.gather(*(lent.call(n, FOREVER) for n in range(6))) == [*range(6)]
        assert len(lent.threads) == 3
        threads = list(lent.threads)
        await lent.finish()
        assert not any(thread.is_alive() for thread in threads)

    asyncio.run(ask())


def test_urgent_requests_of_a_thread_come_first() -> None:
    go_on = threading.Event()
    done: list[object] = []

    class Slow(Nowhere):
        def call(self, request: object, until: float) -> object:
            go_on.wait(TIMEOUT)
            done.append(request)
            return request

        @property
        def urgency(self) -> int:
            return go_on.is_set()

        def is_urgent(self, request: object) -> bool:
            return str(request).isupper() or (request == "f" and go_on.is_set())

    lent = InThread(Slow())

    async def ask() -> None:
        asking = [asyncio.create_task(lent.call(each, FOREVER)) for each in "abCdEfg"]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*asking)
        await lent.finish()

    asyncio.run(ask())
    # The thread may have begun with the first one before the urgent ones came.
    assert [each for each in done if each != "a"] == ["C", "E", "f", "b", "d", "g"]


def test_a_dropped_body_leaves_no_hold() -> None:
    """After GeneratorExit nothing can be awaited, so the renewer releases the lock."""

    async def main() -> None:
        async with leaselock.AsyncClient("memory://drop") as client:

            async def body() -> None:
                async with client.lock("a"):
                    await asyncio.sleep(60)

            coroutine = body()
            step: Any = coroutine.send(None)
            while not client.lock("a").owned():
                await asyncio.wait_for(
                    asyncio.shield(step), TIMEOUT
                ) if step else await asyncio.sleep(0)
                step = coroutine.send(None)
            coroutine.close()
            async with client.lock("a", timeout=TIMEOUT, reentrant=False):
                pass

    asyncio.run(main())


def test_a_lost_lease_cancels_the_body() -> None:
    async def main() -> None:
        async with leaselock.AsyncClient("memory://lost") as client:
            with pytest.raises(leaselock.LeaseLost):
                async with client.lock("a", lease=0.1, renew=False):
                    await asyncio.sleep(60)

    asyncio.run(main())


def test_a_sleep_lasts_as_long_as_it_should() -> None:
    began = now()
    assert asyncio.run(Aio().run(waits(Sleep(began + 0.02)))) == [None]
    assert now() >= began + 0.02


def test_the_end_of_the_interpreter_passes_over_clients_that_never_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`test_exit` shows in whole processes what it does to the others."""
    idle = Aio()
    ended: list[Aio] = []
    monkeypatch.setattr(Aio, "close", ended.append)
    monkeypatch.setattr("leaselock._drivers.aio.DRIVERS", [object(), idle])
    _at_exit()
    assert idle.loop is None
    assert not ended
