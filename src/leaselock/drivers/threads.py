"""The driver for threads: a process runs in the thread that calls it.

Steps are taken under one monitor for each client, which is never held while waiting. So two threads
interleave at the awaits of the core and nowhere else, as in the simulator.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock.core.effects import (
    Call,
    CallUser,
    Effect,
    Owner,
    Process,
    Signal,
    Sleep,
    Spawn,
    Wait,
)
from leaselock.drivers.errors import as_public
from leaselock.drivers.node import DRIVERS, Node, forked_message
from leaselock.drivers.system_env import SystemEnv, time_left, was_dropped
from leaselock.drivers.thread_pool import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.core.backend import StoreLifecycle

T = TypeVar("T")
JOIN_TIMEOUT = 5.0


class Threads(SystemEnv):
    """Steps the processes of one client in threads."""

    def __init__(
        self, stores: Sequence[StoreLifecycle] = (), blocking: Sequence[Node] = ()
    ) -> None:
        self.stores = stores
        self.blocking = blocking
        self.monitor = threading.RLock()
        self.local = threading.local()
        self.pool = ThreadPool(self._in_background)
        # What the client does when its holds are lost with a fork.
        self.forgotten: Callable[[str, bool], None] = _nothing
        # The last process of the client, for the end of the interpreter.
        self.last: Callable[[], Process[None]] | None = None
        # The URL of the store, for people.
        self.store = ""
        DRIVERS.add(self)

    def owner(self) -> Owner:
        """The running thread. A thread local dies with the thread; its identifier is reused."""
        try:
            owner: Owner = self.local.owner
        except AttributeError:
            owner = self.local.owner = Owner(threading.current_thread().name)
        return owner

    def guard(self) -> None:
        """The body of a thread cannot be interrupted; it uses `lost`, `ensure` or `on_lost`."""

    def run(self, process: Process[T]) -> T:
        """Step *process* to its end in this thread; return its result."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                with self.monitor:
                    effect = process.send(answer) if error is None else process.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            except BaseException as raised:
                failure = raised
                break
            answer = error = None
            try:
                answer = self._perform(effect)
            except BaseException as raised:
                # An interrupt, too, is thrown into the process, which knows what to undo.
                error = raised
        error = None
        try:
            # Not in the handler, so that its context is what the caller handles, if anything.
            raise as_public(failure)
        finally:
            del failure  # it has this frame in its traceback

    def ask(self, function: Callable[[], T]) -> T:
        """The result of a function that awaits nothing, run as one step."""
        with self.monitor:
            return function()

    def step(self, function: Callable[..., None], *arguments: object) -> None:
        """Run a function that awaits nothing as one step."""
        with self.monitor:
            function(*arguments)

    def _perform(self, effect: Effect[Any]) -> object:
        if isinstance(effect, Call):
            answer: object = effect.node.call(effect.request, effect.until)
            return answer
        if isinstance(effect, Wait):
            return self._wait(effect.signal, effect.until)
        if isinstance(effect, Sleep):
            self._wait(Signal(), effect.until)
        elif isinstance(effect, Spawn):
            self.pool.start(effect.process, effect.name)
        elif isinstance(effect, CallUser):
            self._call_user(effect)
        else:
            raise TypeError(f"the core awaited {effect!r}, which is not an effect")
        return None

    def _wait(self, signal: Signal, until: float) -> bool:
        gate = threading.Lock()
        gate.acquire()
        with self.monitor:
            if signal.is_set:
                return True
            signal.wakers.append(gate.release)
        try:
            while not gate.acquire(timeout=time_left(until)):
                if time_left(until) <= 0.0:
                    break
        finally:
            with self.monitor:
                if gate.release in signal.wakers:
                    signal.wakers.remove(gate.release)
        return signal.is_set

    def _in_background(self, process: Process[None]) -> None:
        if not was_dropped(process):
            self.run(process)

    def _call_user(self, effect: CallUser) -> None:
        try:
            effect.callback(effect.argument)
        except Exception as error:
            # The user's own function failed: report it like an uncaught exception of a thread.
            thread = threading.current_thread()
            hook = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
            threading.excepthook(hook)

    def end(self, process: Process[None]) -> None:
        """Run the client's last process, and close the driver even if that fails."""
        try:
            self.run(process)
        finally:
            self.close()

    def close(self) -> None:
        """End the background threads and close the stores."""
        for node in self.blocking:
            node.interrupt()
        with self.monitor:
            for store in self.stores:
                store.interrupt()
        self.pool.close(JOIN_TIMEOUT)
        for node in self.blocking:
            node.close()
        with self.monitor:
            for store in self.stores:
                store.close()

    def after_fork(self) -> None:
        """In a forked child: only the forking thread runs, and nothing is held."""
        self.monitor = threading.RLock()
        self.local = threading.local()
        self.pool = ThreadPool(self._in_background)
        for node in self.blocking:
            node.after_fork()
        for store in self.stores:
            store.abandon()
        self.forgotten(forked_message(), False)


def _nothing(reason: str, ours: bool) -> None:
    """No client uses the driver."""


def _at_exit() -> None:
    for driver in list(DRIVERS):
        if isinstance(driver, Threads) and driver.last is not None:
            driver.end(driver.last())


atexit.register(_at_exit)
