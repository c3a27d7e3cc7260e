"""The driver for threads: an operation runs in the thread that calls it.

Steps are taken under one monitor for each client, which is never held while waiting. So two threads
interleave at the awaits of the core and nowhere else, as in the simulator.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

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
from leaselock._drivers.forgotten import CLOSER, report
from leaselock._drivers.fork import DRIVERS, forked_message
from leaselock._drivers.owners import OWNERS
from leaselock._drivers.system_env import Driver, time_left, was_closed
from leaselock._drivers.thread_pool import ThreadPool
from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from leaselock._core.contract.lifecycle import Lifecycle

R = TypeVar("R")
T = TypeVar("T")
JOIN_TIMEOUT = 5.0
PATCHED = (
    "this client was made before monkey.patch_all() of gevent or eventlet, so it would block every "
    "greenlet: make it afterwards; with `gunicorn -k gevent --preload` in each worker (post_fork)"
)


class Threads(Driver):
    """Steps the operations of one client in threads."""

    awaited = False
    blocks_thread = True

    def __init__(self, parts: Sequence[Lifecycle] = ()) -> None:
        self.parts = parts
        # gevent and eventlet replace it. Those of this client stay what they are.
        self.lock_type = threading.Lock
        self.monitor = threading.RLock()
        self.pool = ThreadPool(self._in_background)
        super().__init__()
        DRIVERS.add(self)

    # The running task where an event loop runs in this thread, otherwise the thread.
    owner = staticmethod(OWNERS.running)

    def body_interrupter(self) -> None:
        """The body of a thread cannot be interrupted; it uses `lost`, `ensure` or `on_lost`."""

    def __reduce__(self) -> NoReturn:
        """Every object of a client refers to its driver, so none of them can be pickled."""
        raise refuse_pickling()

    @overload
    def run(self, operation: Operation[T]) -> T: ...

    @overload
    def run(self, operation: Operation[T], wrap: Callable[[T], R]) -> R: ...

    def run(self, operation: Operation[Any], wrap: Any = None) -> Any:
        """Carry out *operation* in this thread; return its result, or what *wrap* makes of it."""
        if threading.Lock is not self.lock_type:
            operation.close()
            raise RuntimeError(PATCHED)
        answer = error = None
        try:
            while True:
                try:
                    with self.monitor:
                        effect = operation.send(answer) if error is None else operation.throw(error)
                except StopIteration as done:
                    return done.value if wrap is None else wrap(done.value)
                answer = error = None
                try:
                    answer = self._perform(effect)
                except BaseException as raised:
                    # An interrupt, too, is thrown into the operation.
                    error = raised
        except BaseException as raised:
            failure = raised
        error = None
        # What has interrupted it must not keep what it had in hand: the renewer looks at once.
        with self.monitor:
            operation.close()
        failure = as_public(failure, self.store, self.typed)
        if not isinstance(failure, LeaselockError):
            with self.monitor:
                self.look_again()
        try:
            # Not in the handler, so that its context is what the caller handles, if anything.
            raise failure
        finally:
            del failure  # it has this frame in its traceback

    def ask(self, function: Callable[[], T]) -> T:
        """The result of a function that awaits nothing, run as one step."""
        with self.monitor:
            return function()

    def run_step(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function that awaits nothing as one step; return its result."""
        with self.monitor:
            return function(*arguments)

    def _perform(self, effect: Effect[Any]) -> object:
        if isinstance(effect, Call):
            answer: object = effect.node.call(effect.request, effect.until)
            return answer
        if isinstance(effect, Wait):
            return self._wait(effect.signal, effect.until)
        if isinstance(effect, Sleep):
            self._wait(Signal(), effect.until)
        elif isinstance(effect, Spawn):
            self.pool.start(effect.operation, effect.name)
        elif isinstance(effect, CallUser):
            return self._call_user(effect)
        else:
            raise TypeError(f"the core awaited {effect!r}, which is not an effect")
        return None

    def _wait(self, signal: Signal, until: float) -> bool:
        gate = threading.Lock()
        gate.acquire()
        with self.monitor:
            if signal.is_set:
                return True
            wake = signal.add(gate.release)
        try:
            while not gate.acquire(timeout=time_left(until)):
                if time_left(until) <= 0.0:
                    break
        finally:
            with self.monitor:
                signal.remove(wake)
        return signal.is_set

    def _in_background(self, operation: Operation[None]) -> None:
        if was_closed(operation):
            return
        try:
            self.run(operation)
        except SystemExit as error:
            # It ends this thread only, of which the module threading would say nothing.
            failure = RuntimeError(
                "a callback or a listener raised SystemExit in a background thread of leaselock, "
                "which does not end the program"
            )
            failure.__cause__ = error
            report(failure)

    def _call_user(self, effect: CallUser) -> object:
        try:
            return effect.callback(effect.argument)
        except Exception as error:
            if not effect.reported:
                raise
            report(error)  # the user's own function failed
            return None

    def end(self, operation: Operation[None]) -> None:
        """Run the client's last operation, and close the driver even if that fails.

        A signal handler that has interrupted a call of this client may hold what that needs: then
        it is done in the background, and the call ends with ClientClosed, or with what the handler
        raises.
        """
        if threading.Lock is not self.lock_type:
            operation.close()
            raise RuntimeError(PATCHED)
        if self._is_interrupted(sys._getframe()):
            CLOSER.close_later(functools.partial(self._end, operation))
        else:
            self._end(operation)

    def _is_interrupted(self, frame: FrameType | None) -> bool:
        """Whether this thread is in the middle of a call of this client, which is not a callback
        of the user.
        """
        while frame is not None and frame.f_code is not CALLING_USER:
            if frame.f_code in CALLS and frame.f_locals["self"] is self:
                return True
            frame = frame.f_back
        return False

    def _end(self, operation: Operation[None]) -> None:
        try:
            self.run(operation)
        finally:
            self.close()

    def end_later(self) -> None:
        """Close the client in the background: nothing refers to it any more. For a finalizer."""
        last = self.last
        assert last is not None  # there was a client
        if threading.Lock is not self.lock_type:
            return  # it cannot be used any more, and its holds end with their leases
        CLOSER.close_later(lambda: self._end(last()))

    def close(self) -> None:
        """End the background threads and close the store."""
        for part in self.parts:
            with self._monitor_of(part):
                part.wake()
        self.pool.close(JOIN_TIMEOUT)
        for part in self.parts:
            with self._monitor_of(part):
                part.close()

    def _monitor_of(self, part: Lifecycle) -> AbstractContextManager[object]:
        """What to hold while a method of *part* is called. To close a node that blocks may take as
        long as the call that a thread is in; the monitor is never held during a wait.
        """
        return nullcontext() if isinstance(part, BlockingNode) else self.monitor

    def after_fork(self) -> None:
        """In a forked child: only the forking thread runs, and nothing is held."""
        self.monitor = threading.RLock()
        self.pool = ThreadPool(self._in_background)
        for part in self.parts:
            part.after_fork()
        self.forgotten(forked_message(), False)


# What a thread executes while it is in the middle of a call, and outside of it again.
CALLS = {Threads.run.__code__, Threads._end.__code__}
CALLING_USER = Threads._call_user.__code__


def _at_exit() -> None:
    CLOSER.finish()
    for driver in DRIVERS:
        if not isinstance(driver, Threads) or driver.last is None:
            continue
        if driver.lock_type is threading.Lock:
            driver.end(driver.last())


atexit.register(_at_exit)
