"""An asyncio loop on the clock of a simulated machine: the library's own tasks run on it.

Law: what is ready runs in the order in which it became so, as asyncio promises; a machine that is
frozen or dead runs nothing.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from tests.simulation.world import Machine


class Loop:
    """As much of a loop as tasks, futures, locks and timeouts need."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.itself: Any = self
        self.ready: deque[asyncio.Handle] = deque()
        self.failed: list[object] = []

    def time(self) -> float:
        """The machine's clock."""
        return self.machine.now()

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_closed(self) -> bool:
        """It ends with its machine."""
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """In turn, at this moment."""
        handle = asyncio.Handle(callback, args, self.itself, context)
        if not self.ready:
            self.machine.world.after(0.0, self._run)
        self.ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """After a while."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """At that time."""
        handle = asyncio.TimerHandle(when, callback, args, self.itself, context)
        self.machine.world.after(max(0.0, when - self.time()), lambda: self._due(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays on the agenda, and does nothing."""

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if handle.cancelled():
            self.machine.world.quiet = True
        else:
            self.call_soon(self._fire, handle)

    def _fire(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            handle._run()

    def _run(self) -> None:
        machine = self.machine
        thaw = machine.frozen_until - machine.world.time
        if not machine.alive:
            return
        if thaw > 0.0:
            machine.world.after(thaw, self._run)
            return
        events._set_running_loop(self.itself)
        try:
            while self.ready:
                handle = self.ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)

    def create_future(self) -> asyncio.Future[Any]:
        """One of ours."""
        return asyncio.Future(loop=self.itself)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """One of ours."""
        return asyncio.Task(coro, loop=self.itself, name=name, context=context)

    def begin(
        self, work: Callable[[], Coroutine[Any, Any, object]], reply: Callable[[object], None]
    ) -> None:
        """Have it done; its answer or its error is the reply."""

        def done(task: asyncio.Task[object]) -> None:
            reply(task.exception() or task.result())

        self.call_soon(lambda: self.create_task(work()).add_done_callback(done))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody asks for is a violation; that a task of a dead machine is left is not."""
        if "exception" in context:
            self.failed.append(context["exception"])
