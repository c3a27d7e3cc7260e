"""Edge cases of the driver for threads."""

from __future__ import annotations

import _thread
import asyncio
import functools
import os
import socket
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import greenlet  # type: ignore[import-untyped]
import pytest

import leaselock
from leaselock._core.contract.effects import (
    FOREVER,
    CallUser,
    Operation,
    Owner,
    Signal,
    Sleep,
    Spawn,
    Wait,
)
from leaselock._core.contract.lifecycle import BlockingNode, Lifecycle
from leaselock._drivers import fork, threads
from leaselock._drivers.aio import Aio
from leaselock._drivers.owners import OWNERS, thread_name
from leaselock._drivers.system_env import LONGEST_WAIT, SystemEnv, now, time_left, was_closed
from leaselock._drivers.threads import Threads, _at_exit
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# Longer than any operation here; a test that reaches it has failed.
TIMEOUT = 60.0


class Nowhere(BlockingNode):
    """A connection that must not be used."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, request: object, until: float) -> object:
        raise AssertionError("no request is expected")

    def wake(self) -> None:
        self.calls.append("wake")

    def close(self) -> None:
        self.calls.append("close")

    def after_fork(self) -> None:
        self.calls.append("after_fork")


async def waits(*effects: Any) -> list[object]:
    return [await effect for effect in effects]


def test_an_object_that_is_no_effect_is_named() -> None:
    with pytest.raises(TypeError, match="which is not an effect"):
        Threads().run(strange())


async def strange() -> None:
    class Strange:
        def __await__(self) -> Any:
            yield "nonsense"

    await Strange()


def test_a_signal_that_is_set_is_not_waited_for() -> None:
    signal = Signal()
    signal.set()
    assert Threads().run(waits(Wait(signal, FOREVER))) == [True]
    assert repr(signal) == "Signal()"


def test_a_wait_ends_at_its_deadline_and_leaves_nothing_behind() -> None:
    signal = Signal()
    assert Threads().run(waits(Wait(signal, now() + 0.01), Sleep(now() + 0.01))) == [False, None]
    assert signal.wakers == []


def test_a_set_that_takes_long_does_not_end_the_next_wait() -> None:
    """A listener waits by the same function each time, in a thread of its own."""
    signal, waits = Signal(), list[Any]()

    def wake() -> None:
        if len(waits) == 1:
            signal.remove(waits[0])
            waits.append(signal.add(wake))

    waits.append(signal.add(wake))
    signal.set()
    assert signal.wakers == waits[1:]


def test_a_long_wait_is_made_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaselock._drivers.system_env.LONGEST_WAIT", 0.01)
    signal = Signal()
    driver = Threads()
    timer = threading.Timer(0.1, lambda: driver.run_step(signal.set))
    timer.start()
    assert driver.run(waits(Wait(signal, FOREVER))) == [True]
    timer.join()


def test_a_timeout_is_bounded() -> None:
    assert time_left(FOREVER) == LONGEST_WAIT
    assert time_left(now() - 1) == 0.0


def test_a_thread_is_another_owner_even_with_a_reused_identifier() -> None:
    driver = Threads()
    seen: list[Owner] = [driver.owner(), driver.owner()]
    assert seen[0] is seen[1]
    numbers = set()
    for _ in range(20):
        thread = threading.Thread(target=lambda: seen.append(driver.owner()))
        thread.start()
        thread.join()
        numbers.add(thread.ident)
    assert len({id(owner) for owner in seen}) == 21
    assert len({owner.identity for owner in seen}) == 21
    assert len(numbers) < 20, "no number was given out again; the test shows nothing"


def test_a_thread_that_cannot_be_started_leaves_its_process_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    operation = waits()
    with pytest.raises(RuntimeError, match="start new thread"):
        Threads().run(waits(Spawn(operation, "x")))  # type: ignore[arg-type]
    assert was_closed(operation)


def test_an_ending_interpreter_that_starts_no_thread_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.12 on: at the first acquire of a function of atexit."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ended = threading.Thread()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threading, "main_thread", lambda: ended)
    with (
        leaselock.Client("memory://ending") as client,
        pytest.raises(NotApplied, match="the interpreter is ending"),
    ):
        client.lock("a").acquire()
    assert threading.Thread.start is refuse


def test_an_abandoned_process_is_not_started() -> None:
    operation: Operation[Any] = waits()
    operation.close()
    driver = Threads()
    driver._in_background(operation)
    assert was_closed(operation)


def test_an_error_of_a_callback_is_reported_and_goes_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    def fail(argument: object) -> None:
        raise ValueError(argument)

    assert Threads().run(waits(CallUser(fail, "why"))) == [None]
    assert str(reported[0].exc_value) == "why"


def test_no_callback_prevents_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a callback that ends its thread, which is reported, nor a slow one."""
    called = threading.Event()
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    with leaselock.Client("memory://callbacks") as client:
        lease = client.lock("a", lease=0.1, renew=False).acquire()
        assert lease is not None
        lease.on_lost(lambda lease: sys.exit("lost"))
        lease.on_lost(lambda lease: called.wait(2 * TIMEOUT))
        lease.on_lost(lambda lease: called.set())
        assert called.wait(TIMEOUT)
    (failure,) = [arguments.exc_value for arguments in reported]
    assert "raised SystemExit in a background thread" in str(failure)
    assert isinstance(failure, RuntimeError)
    assert isinstance(failure.__cause__, SystemExit)


def test_functions_that_run_after_their_call_are_not_decorated() -> None:
    """A generator or coroutine function would run without the lock."""

    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    lock = leaselock.Client("memory://decorated").lock("a")
    for function in (coroutine, generator, both, functools.partial(coroutine)):
        with pytest.raises(TypeError, match="would not be under the lock"):
            lock(function)
    task_s = leaselock.AsyncClient("memory://decorated").lock("a")
    assert task_s(coroutine).__name__ == "coroutine"
    for function in (generator, both):
        with pytest.raises(TypeError, match="would not be under the lock"):
            task_s(function)  # type: ignore[arg-type]


def test_close_joins_the_other_threads_only() -> None:
    nowhere = Nowhere()
    driver = Threads((nowhere,))
    signal = Signal()

    async def ends_with(signal: Signal) -> None:
        await Wait(signal, FOREVER)

    async def spawns() -> None:
        await Spawn(ends_with(signal), "x")

    driver.run(spawns())
    driver.pool.threads.add(threading.current_thread())
    driver.run_step(signal.set)
    driver.close()
    assert nowhere.calls == ["wake", "close"]
    driver.pool.threads.discard(threading.current_thread())
    assert driver.pool.threads == set()


class LoggedStore(Lifecycle):
    """A store that records its lifecycle calls, and whether the monitor was held."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.monitor = threading.RLock()

    def wake(self) -> None:
        assert self.monitor._is_owned()  # type: ignore[attr-defined]
        self.calls.append("wake")

    def close(self) -> None:
        assert self.monitor._is_owned()  # type: ignore[attr-defined]
        self.calls.append("close")

    def after_fork(self) -> None:
        self.calls.append("after_fork")


def test_close_wakes_and_closes_the_parts_under_the_monitor() -> None:
    store = LoggedStore()
    driver = Threads((store,))
    store.monitor = driver.monitor
    driver.close()
    assert store.calls == ["wake", "close"]


def test_a_node_that_blocks_is_closed_without_the_monitor() -> None:
    """Closing it may take as long as a call that another thread is in."""

    class Unmonitored(Nowhere):
        def wake(self) -> None:
            assert not driver.monitor._is_owned()  # type: ignore[attr-defined]
            super().wake()

        def close(self) -> None:
            assert not driver.monitor._is_owned()  # type: ignore[attr-defined]
            super().close()

    node = Unmonitored()
    driver = Threads((node,))
    driver.close()
    assert node.calls == ["wake", "close"]


def test_a_forked_child_drops_the_connections() -> None:
    store = LoggedStore()
    Threads((store,)).after_fork()
    assert store.calls == ["after_fork"]


def test_a_forked_child_resets_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Nowhere()
    driver = Threads((nowhere,))
    reasons: list[tuple[str, bool]] = []
    driver.forgotten = lambda reason, ours: reasons.append((reason, ours))
    before = driver.owner()
    monkeypatch.setattr(fork, "DRIVERS", [driver])
    fork._after_fork_in_child()
    assert nowhere.calls == ["after_fork"]
    assert driver.owner() is not before
    assert str(os.getppid()) in reasons[0][0]
    assert not reasons[0][1]
    Threads().after_fork()
    assert SystemEnv().wall() == pytest.approx(time.time(), abs=5)


def test_every_driver_is_notified_of_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Nowhere()
    driver = Threads((nowhere,))
    monkeypatch.setattr(fork, "DRIVERS", [driver])
    fork._after_fork_in_child()
    assert nowhere.calls == ["after_fork"]


def test_the_end_of_the_interpreter_closes_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = leaselock.Client("memory://exit"), leaselock.Client("memory://exit")
    lease = client.lock("a").acquire()
    assert lease is not None
    monkeypatch.setattr("leaselock._drivers.threads.DRIVERS", [client._driver, Threads(), object()])
    _at_exit()
    with other, other.lock("a", timeout=0):
        assert lease.lost


def test_close_while_blocked_ends_the_wait() -> None:
    client = leaselock.Client("memory://blocked")
    errors: list[BaseException] = []

    def block() -> None:
        try:
            client.lock("a").acquire()
        except leaselock.ClientClosed as error:
            errors.append(error)

    with leaselock.Client("memory://blocked") as other, other.lock("a") as lease:
        thread = threading.Thread(target=block)
        thread.start()
        while not other.lock("a").waiters():
            lease.ensure()
        client.close()
        thread.join(TIMEOUT)
        assert other.lock("a").waiters() == []
    assert "while it waited" in str(errors[0])


def test_greenlets_of_one_thread_are_different_owners() -> None:
    driver = Threads()
    owners = [greenlet.greenlet(lambda: [driver.owner(), driver.owner()]).switch() for _ in "ab"]
    (first, again), (other, _) = owners
    assert first is again
    assert len({first, other, driver.owner()}) == 3


def test_tasks_of_one_thread_are_different_owners() -> None:
    """The same ones for every client; outside of tasks the thread is the owner."""
    one, other, asynchronous = Threads(), Threads(), Aio()
    seen: list[Owner] = []

    async def task() -> None:
        assert one.owner() is other.owner() is asynchronous.owner()
        seen.append(one.owner())
        assert greenlet.greenlet(one.owner).switch() is one.owner(), "a greenlet within the task"
        asyncio.get_running_loop().call_soon(lambda: seen.append(one.owner()))

    async def main() -> None:
        await asyncio.gather(task(), task())
        seen.append(one.owner())

    asyncio.run(main())
    first, second, *called, last = seen
    assert called == [one.owner()] * 2
    assert len({first, second, last, one.owner()}) == 4
    assert len({owner.identity for owner in seen}) == 4
    assert {owner.thread for owner in seen} == {one.owner().thread}


@pytest.mark.parametrize("scheduler", ["gevent", "eventlet"])
def test_a_scheduled_greenlet_is_no_part_of_a_task(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Threads()
    monkeypatch.setitem(sys.modules, scheduler, sys)

    async def main() -> tuple[Owner, Owner]:
        return driver.owner(), greenlet.greenlet(driver.owner).switch()

    task, scheduled = asyncio.run(main())
    assert scheduled is not task
    assert scheduled.thread is None, "others run while it waits"


@pytest.mark.parametrize("module", ["asyncio", "greenlet"])
def test_a_thread_that_sees_a_module_half_imported_is_the_owner(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Threads()
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    assert driver.owner().title == threading.current_thread().name


def test_greenlets_do_not_share_a_lock() -> None:
    with leaselock.Client("memory://greenlets") as client, client.lock("a") as lease:
        assert greenlet.greenlet(lambda: client.lock("a").try_acquire()).switch() is None
        lease.ensure()


def test_random_is_a_number_below_one() -> None:
    drawn = {SystemEnv().random() for _ in range(100)}
    assert len(drawn) > 90
    assert all(0.0 <= chance < 1.0 for chance in drawn)


def test_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SystemEnv().host_and_pid() == (socket.gethostname(), os.getpid())
    monkeypatch.setattr(sys, "platform", "win32")
    assert SystemEnv().host_and_pid() == (socket.gethostname(), os.getpid())


def test_a_thread_owns_what_it_acquires_where_asyncio_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = OWNERS.running()
    monkeypatch.delitem(sys.modules, "asyncio")
    assert OWNERS.running() is known


def test_a_thread_that_threading_did_not_start_has_its_number_as_name() -> None:
    names: list[str] = []
    done = threading.Event()

    def note() -> None:
        names.append(thread_name())
        done.set()

    number = _thread.start_new_thread(note, ())
    done.wait()
    assert names == [f"thread {number}"]


def test_a_client_made_before_locks_were_patched_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gevent and eventlet do."""

    async def nothing() -> None:
        """An operation without a step."""

    driver = Threads()
    monkeypatch.setattr(driver, "lock_type", object)
    monkeypatch.setattr(driver, "last", nothing)
    for call in (driver.run, driver.end):
        with pytest.raises(RuntimeError, match="patch_all"):
            call(nothing())
    driver.end_later()
    monkeypatch.setattr(threads, "DRIVERS", [driver])
    threads._at_exit()
