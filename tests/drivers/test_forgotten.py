"""Clients that were never closed and that nothing refers to any more."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import warnings
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually

import leaselock
from leaselock._drivers.aio import Aio, _at_exit
from leaselock._drivers.forgotten import Closer
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = itertools.count()


def room() -> str:
    """A store of the test's own."""
    return f"memory://forgotten{next(NUMBERS)}"


def ours() -> set[threading.Thread]:
    """The threads of the library."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("leaselock")}


def use(url: str) -> None:
    """Use a client, and forget it."""
    client = leaselock.Client(url)
    with client.lock("a"):
        pass


def test_a_forgotten_client_warns_and_is_closed() -> None:
    before = ours()
    with pytest.warns(ResourceWarning, match="<leaselock.Client memory://forgotten.* never closed"):
        use(room())
    eventually(lambda: not ours() - before)


def test_it_is_closed_even_if_warnings_are_errors() -> None:
    before = ours()
    said: list[Any] = []
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", said.append)
        warnings.simplefilter("error")
        use(room())
    assert [type(one.exc_value) for one in said] == [ResourceWarning]
    eventually(lambda: not ours() - before)


def test_a_client_that_was_closed_or_never_used_does_not_warn() -> None:
    leaselock.Client(room())
    with leaselock.Client(room()) as client:
        client.locks()
    del client
    with pytest.raises(ValueError, match="memory"):
        leaselock.Client("memory://?unknown=1")


def test_a_client_that_only_looked_warns() -> None:
    client = leaselock.Client(room())
    client.locks()
    with pytest.warns(ResourceWarning):
        del client


def test_a_lock_keeps_its_client() -> None:
    lock = leaselock.Client(room()).lock("a")
    with lock:
        assert lock.owned()
    with pytest.warns(ResourceWarning):
        del lock


def test_a_lease_keeps_its_client_also_in_its_callbacks() -> None:
    called = threading.Event()
    url = room()
    lease = leaselock.Client(url).lock("a", lease=0.05, renew=False).acquire()
    lease.on_lost(lambda lost: called.set())
    gc.collect()
    assert called.wait(60.0)
    with pytest.warns(ResourceWarning):
        del lease


def drop_a_lease(client: leaselock.Client) -> None:
    """Acquire a short lease, and drop it."""
    client.lock("a", lease=0.2).acquire()


@pytest.mark.parametrize("how", ["recorded", "raised"])
def test_a_dropped_lease_ends_although_its_warning_is_kept(how: str) -> None:
    """A test runner keeps what was warned of; with -W error, also the frames of the traceback."""
    url, kept = room(), list[Any]()
    with (
        leaselock.Client(url) as client,
        leaselock.Client(url) as other,
        warnings.catch_warnings(record=how == "recorded") as recorded,
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("always" if how == "recorded" else "error")
        patch.setattr("threading.excepthook", kept.append)
        drop_a_lease(client)
        # AcquireTimeout if the lease that was dropped is renewed.
        other.lock("a").acquire(timeout=60.0).release()
        eventually(lambda: [*kept, *(recorded or ())])


async def use_in_task(url: str) -> None:
    """The same with asyncio."""
    client = leaselock.AsyncClient(url)
    async with client.lock("a"):
        pass


def test_a_forgotten_client_of_a_running_loop_is_closed_in_a_task() -> None:
    async def main() -> bool:
        before = ours()
        with pytest.warns(ResourceWarning, match="never closed"):
            await use_in_task(room())
        for _ in range(10_000):
            if not ours() - before and len(asyncio.all_tasks()) == 1:
                return True
            await asyncio.sleep(0.001)
        return False

    assert asyncio.run(main())


def test_a_client_forgotten_at_the_end_of_its_loop_is_closed() -> None:
    before = ours()
    with pytest.warns(ResourceWarning, match="never closed"):
        asyncio.run(use_in_task(room()))
    eventually(lambda: not ours() - before)


def test_a_client_forgotten_after_the_end_of_its_loop_is_closed() -> None:
    before = ours()
    kept = []

    async def main() -> None:
        kept.append(leaselock.AsyncClient(room()))
        async with kept[0].lock("a"):
            pass

    asyncio.run(main())
    with pytest.warns(ResourceWarning, match="never closed"):
        kept.clear()
    eventually(lambda: not ours() - before)


def at_once(function: Callable[[], None], arguments: tuple[()]) -> None:
    """Take the place of a thread without an object, in which the coverage is not measured."""
    function(*arguments)


def test_an_error_while_closing_is_reported_and_the_next_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: reported.append(str(hook.exc_value)))
    monkeypatch.setattr("_thread.start_new_thread", at_once)
    closer, done = Closer(), threading.Event()

    def fail() -> None:
        closer.close_later(done.set)
        raise OSError("broken")

    closer.close_later(fail)
    assert done.wait(60.0)
    assert reported == ["broken"]


class Late(SimpleQueue[Any]):
    """A queue in which something seems to arrive after the last look at it."""

    looks = 0

    def empty(self) -> bool:
        self.looks += 1
        return super().empty() or self.looks == 1


def test_what_arrives_when_the_thread_ends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_thread.start_new_thread", at_once)
    closer, done = Closer(), threading.Event()
    closer.waiting = late = Late()
    closer.close_later(done.set)
    assert done.is_set()
    # It was missed at the first look, and found at one of the next.
    assert late.looks > 2
    assert not closer.running.locked()


def test_nothing_is_left_in_the_list_of_threads() -> None:
    before = set(threading.enumerate())
    client = leaselock.Client(room())
    with client.lock("a"):
        assert set(threading.enumerate()) > before
    with pytest.warns(ResourceWarning, match="never closed"):
        del client
    eventually(lambda: not set(threading.enumerate()) - before)


def test_it_is_closed_where_there_can_be_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    closer, done = Closer(), threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", at_once)
    monkeypatch.setattr("threading.Thread.start", refuse)
    closer.close_later(done.set)
    assert done.is_set()


def test_the_end_of_the_interpreter_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaselock._drivers.forgotten.EXIT_TIMEOUT", 0.0)
    closer = Closer()
    closer.finish()
    assert not closer.running.locked()
    with closer.running:
        closer.finish()
        # It is still the thread's, which has not ended.
        assert closer.running.locked()


def test_a_driver_that_served_no_loop_has_nothing_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closing: list[object] = []
    monkeypatch.setattr("leaselock._drivers.aio.CLOSER.close_later", closing.append)
    driver = Aio()
    driver.last = nothing
    driver.end_later()
    assert closing == []


def test_a_client_whose_closing_fails_in_its_task_is_reported() -> None:
    reported: list[str] = []

    async def fail() -> None:
        raise NotApplied("out of reach")

    async def main() -> None:
        done = asyncio.Event()

        def report(_: object, context: dict[str, Any]) -> None:
            reported.append(str(context["exception"]))
            done.set()

        asyncio.get_running_loop().set_exception_handler(report)
        driver = Aio()
        driver.last = fail
        await driver.run(nothing())
        driver.end_later()
        await done.wait()

    asyncio.run(main())
    assert reported == ["out of reach"]


def test_an_asyncio_client_that_was_closed_is_left_alone_at_the_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> leaselock.AsyncClient:
        async with leaselock.AsyncClient(room()) as client:
            await client.locks()
        return client

    closed = asyncio.run(main())
    ended: list[object] = []
    monkeypatch.setattr(closed._driver, "last", lambda: ended.append("again"))
    # Not the clients of other tests, which may be left to the collector.
    monkeypatch.setattr("leaselock._drivers.aio.DRIVERS", [closed._driver])
    _at_exit()
    assert ended == []


async def nothing() -> None:
    """A process without steps."""


def test_a_closer_that_cannot_start_a_thread_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closer, done = Closer(), threading.Event()

    def refuse(*_: object) -> None:
        raise RuntimeError("no thread")

    with monkeypatch.context() as patch:
        patch.setattr("_thread.start_new_thread", refuse)
        with pytest.raises(RuntimeError, match="no thread"):
            closer.close_later(done.set)
    closer.close_later(lambda: None)
    assert done.wait(60.0)
    closer.finish()
