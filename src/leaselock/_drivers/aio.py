"""The driver for asyncio: an operation runs in the task that awaits it.

A loop runs one step at a time, so no monitor is needed. A client belongs to one loop at a time.
When that is closed, its holds are lost, and the client can serve another loop.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, overload

from leaselock._core.contract.effects import (
    Call,
    CallUser,
    Effect,
    Operation,
    Signal,
    Sleep,
    Spawn,
    Wait,
)
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock._drivers.errors import as_public, refuse_pickling
from leaselock._drivers.forgotten import CLOSER
from leaselock._drivers.fork import DRIVERS, forked_message
from leaselock._drivers.in_thread import InThread, Loop
from leaselock._drivers.owners import OWNERS
from leaselock._drivers.system_env import Driver, now, time_left, was_closed
from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
    from concurrent.futures import Executor

    from leaselock._core.contract.effects import Owner
    from leaselock._core.contract.lifecycle import Lifecycle

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CLOSE_TIMEOUT = 5.0
# The tasks that close clients which were never closed.
ENDING: set[asyncio.Task[None]] = set()


class TaskInterrupter:
    """Cancels the body of an `async with` when its lease is lost, as asyncio.timeout does."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.before = task.cancelling()
        self.interrupted = False

    def interrupt(self) -> None:
        """Cancel the body, unless it runs this step itself, or its loop is closed."""
        if self.task.get_loop().is_closed():
            return
        if not self.interrupted and self.task is not _current_task():
            self.interrupted = True
            self.task.cancel("the lease was lost")

    def finish(self, exception: BaseException | None) -> bool:
        """Take our cancellation back; return whether *exception* is it, and nothing else."""
        if not self.interrupted:
            return False
        left = self.task.uncancel()
        return left <= self.before and isinstance(exception, asyncio.CancelledError)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def _end_with_loop(tasks: Collection[asyncio.Task[None]]) -> AsyncGenerator[None, None]:
    """Cancel *tasks* when their loop ends, and wait for them.

    `asyncio.run` cancels all tasks at its end, and then closes the asynchronous generators: this is
    one of them. A task that is cancelled may start others, for the releases that it owes.
    """
    try:
        yield
    except GeneratorExit:
        until = now() + CLOSE_TIMEOUT
        while tasks and now() < until:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=time_left(until))
        raise


def _go_on(generator: AsyncGenerator[None, None]) -> None:
    """Take one step of a generator that does not wait in it."""
    with suppress(StopIteration, StopAsyncIteration):
        generator.asend(None).send(None)


class Aio(Driver):
    """Steps the operations of one client in tasks."""

    awaited = True
    blocks_thread = False

    def __init__(self, parts: Sequence[Lifecycle] = ()) -> None:
        self.parts = parts
        # What is called instead of each blocking node.
        self.in_threads = {part: InThread(part) for part in parts if isinstance(part, BlockingNode)}
        self.loop: Loop | None = None
        self.background: set[asyncio.Task[None]] = set()
        self.until_loop_ends: AsyncGenerator[None, None] | None = None
        super().__init__()
        DRIVERS.add(self)

    def owner(self) -> Owner:
        """The running task; the owner dies with it."""
        task = asyncio.current_task(self.loop) or asyncio.current_task()
        if task is None:
            raise RuntimeError("an AsyncClient is used from a task, not from a loop callback")
        return OWNERS.of_task(task)

    def body_interrupter(self) -> TaskInterrupter | None:
        """What interrupts the running task."""
        task = asyncio.current_task(self.loop)
        return None if task is None else TaskInterrupter(task)

    def _bind(self, operation: Operation[Any]) -> None:
        """Serve the running loop; close *operation* if that is impossible."""
        try:
            loop = asyncio.get_running_loop()
            if self.loop is not loop:
                if self.loop is not None:
                    self._rebind(self.loop)
                self.loop = loop
                self.until_loop_ends = _end_with_loop(self.background)
                _go_on(self.until_loop_ends)
        except BaseException:
            operation.close()
            raise

    def _rebind(self, old: Loop) -> None:
        if not old.is_closed():
            raise RuntimeError(
                "this AsyncClient belongs to another event loop that is still open; "
                "make one client for each loop"
            )
        self._drop()
        self._forget("the event loop in which it was taken is closed", ours=True)

    def _drop(self) -> None:
        """Let go of everything in the store, where its loop does not run. What blocks belongs to no
        loop, and is closed in order.
        """
        for node in self.in_threads:
            node.wake()
        for thread in self.in_threads.values():
            thread.retire()
        for part in self.parts:
            if part in self.in_threads:
                part.close()
            else:
                part.after_fork()

    def _forget(self, reason: str, *, ours: bool) -> None:
        self._release_loop()
        self.background = set()
        self.forgotten(reason, ours)

    def _release_loop(self) -> None:
        """Nothing is to be done any more when the loop ends."""
        if self.until_loop_ends is not None:
            _go_on(self.until_loop_ends)
            self.until_loop_ends = None

    def after_fork(self) -> None:
        """In a forked child: no loop runs, and nothing is held."""
        self.loop = None
        for thread in self.in_threads.values():
            thread.after_fork()
        for part in self.parts:
            part.after_fork()
        self._forget(forked_message(), ours=False)

    def __reduce__(self) -> NoReturn:
        """Every object of a client refers to its driver, so none of them can be pickled."""
        raise refuse_pickling()

    @overload
    async def run(self, operation: Operation[T]) -> T: ...

    @overload
    async def run(self, operation: Operation[T], wrap: Callable[[T], R]) -> R: ...

    async def run(self, operation: Operation[Any], wrap: Any = None) -> Any:
        """Carry out *operation* in this task; return its result, or what *wrap* makes of it."""
        loop = asyncio._get_running_loop()
        if loop is None or loop is not self.loop:
            self._bind(operation)
        answer: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    effect = operation.send(answer) if error is None else operation.throw(error)
                except StopIteration as done:
                    return done.value if wrap is None else wrap(done.value)
                answer = error = None
                try:
                    answer = await self._perform(effect)
                except BaseException as raised:
                    if was_closed(operation):
                        raise  # of a loop that has ended: the collector closed the operation first
                    # Cancellation, too, is thrown into the operation.
                    error = raised
        except BaseException as raised:
            failure = raised
        error = None
        # What has interrupted it must not keep what it had in hand.
        operation.close()
        failure = as_public(failure, self.store, self.typed)
        if not isinstance(failure, LeaselockError):
            self.look_again()
        try:
            # Not in the handler, so that its context is what the caller handles, if anything.
            raise failure
        finally:
            del failure  # it has this frame in its traceback

    def ask(self, function: Callable[[], T]) -> T:
        """The result of a function that awaits nothing, run as one step."""
        return function()

    def run_step(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function that awaits nothing as one step; return its result."""
        return function(*arguments)

    def _perform(self, effect: Effect[Any]) -> Awaitable[object]:
        """What to await for the answer. It is no coroutine itself: each one costs memory and time
        while a task waits.
        """
        if isinstance(effect, Call):
            node = effect.node
            if self.in_threads:
                node = self.in_threads.get(node, node)
            answer: Awaitable[object] = node.call(effect.request, effect.until)
            return answer
        if isinstance(effect, Wait):
            return self._wait(effect.signal, effect.until)
        if isinstance(effect, Sleep):
            return self._sleep(effect.until)
        if isinstance(effect, CallUser):
            return self._call_user(effect)
        if isinstance(effect, Spawn):
            return self._start(effect)
        raise TypeError(f"the core awaited {effect!r}, which is not an effect")

    async def _wait(self, signal: Signal, until: float) -> bool:
        if signal.is_set:
            return True
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        wake = _Waker(woken)
        signal.wakers.append(wake)
        timer = loop.call_later(time_left(until), wake)
        try:
            await woken
        finally:
            timer.cancel()
            signal.remove(wake)
        return signal.is_set

    async def _sleep(self, until: float) -> None:
        await self._wait(Signal(), until)

    async def _start(self, effect: Spawn) -> None:
        self._spawn(effect.operation, effect.name)

    def _spawn(self, operation: Operation[None], name: str) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._in_background(operation), name=f"leaselock-{name}")
        self.background.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # A task that was cancelled before its first step has not begun its operation.
            operation.close()
            self.background.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _report(error, f"the {name} of a lock client failed")

        task.add_done_callback(ended)

    async def _in_background(self, operation: Operation[None]) -> None:
        if not was_closed(operation):
            await self.run(operation)

    async def _call_user(self, effect: CallUser) -> object:
        try:
            answer = effect.callback(effect.argument)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if not effect.reported:
                raise
            _report(error, "a callback or a listener of a lock client failed")
            return None

    async def end(self, operation: Operation[None]) -> None:
        """Run the client's last operation, and close the driver even if that fails."""
        # First of all: if another loop is still open, nothing may be closed.
        self._bind(operation)
        try:
            await self.run(operation)
        finally:
            await self.close()

    def end_later(self) -> None:
        """Close the client in the background: nothing refers to it any more. For a finalizer."""
        if self.loop is None or self.last is None:
            return
        try:
            self.loop.call_soon_threadsafe(self._end_in_task, self.loop, self.last)
        except RuntimeError:
            # The loop is closed.
            CLOSER.close_later(self._drop)

    def _end_in_task(self, loop: Loop, last: Callable[[], Operation[None]]) -> None:
        operation = last()
        task = loop.create_task(self.end(operation), name="leaselock-closer")
        ENDING.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            ENDING.discard(task)
            # One that was cancelled before its first step has not begun its operation.
            operation.close()
            if task.cancelled():
                self._drop()
            elif (error := task.exception()) is not None:
                _report(error, "closing a lock client that was never closed failed")

        task.add_done_callback(ended)

    def end_at_exit(self) -> None:
        """Release what the client still holds when the interpreter ends; warn if that fails."""
        if self.loop is None or self.last is None or not self.unreleased():
            return
        error: Exception | None = None
        if self.loop.is_running():
            error = RuntimeError("its event loop runs in another thread")
        else:
            loop = LastLoop() if self.loop.is_closed() else self.loop
            try:
                loop.run_until_complete(self.end(self.last()))
            except Exception as raised:
                error = raised
            finally:
                loop.close()
        if names := self.unreleased():
            why = f": {error}" if error else ""
            text = f"an AsyncClient of {self.store} was never closed, and could not be{why}; "
            text += f"until their leases end, these stay locked: {', '.join(map(repr, names))}"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)

    async def close(self) -> None:
        """End the background tasks and close the store."""
        for part in self.parts:
            part.wake()
        others = self.background - {asyncio.current_task()}  # a callback may close the client
        if others:
            await asyncio.wait(others, timeout=CLOSE_TIMEOUT)
        self._release_loop()
        for thread in self.in_threads.values():
            await thread.finish()
        for part in self.parts:
            part.close()
        # A closed transport closes its socket in the next iteration of the loop.
        await asyncio.sleep(0)


class LastLoop(asyncio.SelectorEventLoop):
    """A loop for the end of the interpreter, where no thread can be started: to look up a name, or
    to call what blocks.
    """

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call the function in this thread: there is no other task."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _Waker:
    """Ends one wait. The signal, the timer, or both call it."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def __call__(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def _report(error: BaseException, message: str) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": message, "exception": error})


def _at_exit() -> None:
    for driver in DRIVERS:
        if isinstance(driver, Aio):
            driver.end_at_exit()


atexit.register(_at_exit)
