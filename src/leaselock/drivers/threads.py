"""The driver for threads: a process runs in the thread that asks for it.

Steps are taken under one monitor per client, and it is never held while waiting. So two threads
interleave at the awaits of the core and nowhere else, as in the simulation.
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
from leaselock.drivers.node import DRIVERS, Node, forked_message
from leaselock.drivers.system_env import SystemEnv, given_up, patience
from leaselock.drivers.thread_pool import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock.core.backend import StoreLifecycle

T = TypeVar("T")
JOIN_PATIENCE = 5.0


class Threads(SystemEnv):
    """Steps processes in threads; one for each client."""

    def __init__(self, nodes: Mapping[str, Node], stores: tuple[StoreLifecycle, ...] = ()) -> None:
        self.nodes = nodes
        self.stores = stores
        self.monitor = threading.RLock()
        self.local = threading.local()
        self.crew = ThreadPool(self._begin)
        self.forgotten: Callable[[str, bool], None] = _nothing
        self.last: Callable[[], Process[None]] | None = None
        DRIVERS.add(self)

    def owner(self) -> Owner:
        """The running thread; the local dies with it, whatever its identifier is used for next."""
        try:
            caller: Owner = self.local.caller
        except AttributeError:
            caller = self.local.caller = Owner(threading.current_thread().name)
        return caller

    def guard(self) -> None:
        """Nobody can stop a thread's body; it is told by `lost`, `ensure` and its callback."""

    def run(self, process: Process[T]) -> T:
        """Step *process* to its end in this thread, and return what it returns."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                with self.monitor:
                    effect = process.send(answer) if error is None else process.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                answer = self._perform(effect)
            except BaseException as raised:
                # An interrupt, too, belongs to the process: it knows what to undo.
                error = raised

    def step(self, function: Callable[..., None], *arguments: object) -> None:
        """One step that awaits nothing."""
        with self.monitor:
            function(*arguments)

    def _perform(self, effect: Effect[Any]) -> object:
        if isinstance(effect, Call):
            node = self.nodes[effect.node] if isinstance(effect.node, str) else effect.node
            answer: object = node.call(effect.request, effect.until)
            return answer
        if isinstance(effect, Wait):
            return self._wait(effect.signal, effect.until)
        if isinstance(effect, Sleep):
            self._wait(Signal(), effect.until)
        elif isinstance(effect, Spawn):
            self.crew.start(effect.process, effect.name)
        elif isinstance(effect, CallUser):
            self._tell(effect)
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
            while not gate.acquire(timeout=patience(until)):
                if patience(until) <= 0.0:
                    break
        finally:
            with self.monitor:
                if gate.release in signal.wakers:
                    signal.wakers.remove(gate.release)
        return signal.is_set

    def _begin(self, process: Process[None]) -> None:
        if not given_up(process):
            self.run(process)

    def _tell(self, effect: CallUser) -> None:
        try:
            effect.callback(effect.argument)
        except Exception as error:
            # The user's own function failed: reported like an error of a thread, never lost.
            thread = threading.current_thread()
            hook = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
            threading.excepthook(hook)

    def end(self, process: Process[None]) -> None:
        """Run the client's last process, and close whatever comes of it."""
        try:
            self.run(process)
        finally:
            self.close()

    def close(self) -> None:
        """End the background threads and close the stores."""
        for node in self.nodes.values():
            node.interrupt()
        with self.monitor:
            for store in self.stores:
                store.interrupt()
        self.crew.dismiss(JOIN_PATIENCE)
        for node in self.nodes.values():
            node.close()
        with self.monitor:
            for store in self.stores:
                store.close()

    def after_fork(self) -> None:
        """In a forked child: only the forking thread lives, and nothing is held."""
        self.monitor = threading.RLock()
        self.local = threading.local()
        self.crew = ThreadPool(self._begin)
        for node in self.nodes.values():
            node.after_fork()
        for store in self.stores:
            store.abandon()
        self.forgotten(forked_message(), False)


def _nothing(reason: str, ours: bool) -> None:
    """Until a client says what else must forget."""


def _at_exit() -> None:
    for driver in list(DRIVERS):
        if isinstance(driver, Threads) and driver.last is not None:
            driver.end(driver.last())


atexit.register(_at_exit)
