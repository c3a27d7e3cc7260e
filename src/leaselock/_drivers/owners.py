"""The owners of this process: its threads, tasks and greenlets.

All clients share them: a thread or task is one owner, with whichever client it locks. An owner dies
with its thread, task or greenlet, and its number is never given to another one, as the identifier
of a thread and the address of a task are.
"""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from leaselock._core.contract.effects import Owner, OwnerThread

if TYPE_CHECKING:
    import asyncio

_NUMBERS = itertools.count(1)
# These switch to another greenlet while one waits, so a greenlet is no part of the running task.
_SCHEDULERS = ("gevent", "eventlet")


def thread_name() -> str:
    """The name of the running thread. `current_thread` would make, and keep, an object for a thread
    that another library than `threading` has started.
    """
    here = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return names.get(here, f"thread {here}")


class Owners:
    """Finds the owner that runs."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with new owners: nothing is held in a forked child."""
        # Reentrant, because a signal handler may ask while its thread draws a number.
        self.drawing = threading.RLock()
        self.local = threading.local()
        self.others: WeakKeyDictionary[Any, Owner] = WeakKeyDictionary()

    def running(self) -> Owner:
        """The task that runs in this thread, otherwise the greenlet, otherwise the thread.

        A function that an event loop calls outside of any task belongs to the thread. Asked for
        with each acquire: a thread without an event loop must not pay for those that have one.
        """
        modules = sys.modules
        greenlets = modules.get("greenlet")
        try:
            greenlet = None if greenlets is None else greenlets.getcurrent()
        except AttributeError:
            greenlet = None  # another thread is importing it, so none runs in this one
        if greenlet is not None and greenlet.parent is not None:
            if any(name in modules for name in _SCHEDULERS):
                return self.of_greenlet(greenlet)
        else:
            greenlet = None
        asyncio = modules.get("asyncio")
        if asyncio is not None:
            try:
                loop = asyncio._get_running_loop()
            except AttributeError:
                loop = None  # another thread is importing it, so no loop runs in this one
            if loop is not None and (task := asyncio.current_task(loop)) is not None:
                return self.of_task(task)
        if greenlet is not None:
            return self.of_greenlet(greenlet)
        try:
            owner: Owner = self.local.owner
        except AttributeError:
            owner = self.of_thread()
        return owner

    def of_thread(self) -> Owner:
        """The running thread."""
        try:
            owner: Owner = self.local.owner
        except AttributeError:
            owner = self.local.owner = self._new(thread_name(), OwnerThread())
        return owner

    def of_task(self, task: asyncio.Task[Any]) -> Owner:
        """A task of this thread."""
        owner = self.others.get(task)
        if owner is None:
            thread = self.of_thread().thread
            assert thread is not None
            thread.has_tasks = True
            owner = self.others[task] = self._new(task.get_name(), thread)
            task.add_done_callback(self._task_ended)
        return owner

    def of_greenlet(self, greenlet: Any) -> Owner:
        """A greenlet: gevent and eventlet switch between them also where threads are not patched,
        and then all of them share what is local to the thread.
        """
        owner = self.others.get(greenlet)
        if owner is None:
            name = thread_name()
            owner = self.others[greenlet] = self._new(f"{name}, greenlet {id(greenlet):x}", None)
        return owner

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        # A reference to the ended task may be left; the owner that it was is gone.
        self.others.pop(task, None)

    def _new(self, title: str, thread: OwnerThread | None) -> Owner:
        # Without the interpreter lock two threads could draw the same number.
        with self.drawing:
            number = next(_NUMBERS)
        return Owner(title, f"{number:x}", thread)


OWNERS = Owners()
