"""Waiting for the socket of a connection: in a thread, or in an asyncio loop.

A protocol is a class without I/O waits: its method `steps(request, until)` is a generator that
carries out one request. It yields what it needs:

    READ, WRITE, or both   wait for the socket; it is sent what the socket is ready for
    a callable             run this blocking function; it is sent the result

When the deadline of the request passes, TimeoutError is thrown into the generator. `ThreadWire`
and `TaskWire` run these generators. A connection is one of them together with a protocol:

    class ThreadConnection(ThreadWire, Protocol): ...
    class TaskConnection(TaskWire, Protocol): ...

A wire carries out one request at a time. `cut` may be called from any thread; all other methods
are called under the monitor of the driver.
"""

from __future__ import annotations

import math
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any

from leaselock._backends.loop_readiness import watcher_of
from leaselock._backends.readiness import POLLIN, POLLOUT, new_poller
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator
    from concurrent.futures import Future

READ, WRITE = 1, 2
LONGEST_WAIT = 3600.0
EVENTS = {READ: POLLIN, WRITE: POLLOUT, READ | WRITE: POLLIN | POLLOUT}

CONNECTION_CLOSED = "the connection was closed"


class Protocol:
    """What a wire needs of a protocol."""

    now: Callable[[], float]
    reply_pending = False
    """A request was sent, and its answer has not been read completely."""

    def steps(self, request: Any, until: float) -> Generator[Any, Any, Any]:
        """Carry out one request."""
        raise NotImplementedError

    def fileno(self) -> int:
        """The descriptor to wait for."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End the connection without closing its descriptor; may be called from any thread."""
        raise NotImplementedError

    def readable(self) -> bool:
        """Whether the peer has sent something, or has ended the connection."""
        raise NotImplementedError

    def release(self) -> None:
        """Close the connection and its descriptors."""
        raise NotImplementedError

    def after_fork(self) -> None:
        """Close the descriptors without sending anything to the server: they are the parent's."""
        raise NotImplementedError

    def discard(self, made: Any) -> None:
        """Dispose of the result of a blocking function that came too late."""
        raise NotImplementedError


class Wire(Protocol):
    """The parts that threads and asyncio have in common."""

    closed = False
    """No request can be sent any more."""
    poll: Any = None
    polled = 0

    def remaining(self, until: float) -> float:
        """Seconds until then, as far as one wait may last."""
        return min(LONGEST_WAIT, max(0.0, until - self.now()))

    def _poll_for(self, events: int, seconds: float) -> list[tuple[int, int]]:
        if self.poll is None:
            self.poll = new_poller()
        if events != self.polled:
            self.poll.register(self.fileno(), EVENTS[events])
            self.polled = events
        happened: list[tuple[int, int]] = self.poll.poll(math.ceil(seconds * 1000))
        return happened

    def readable(self) -> bool:
        """Whether the peer has sent something, or has ended the connection."""
        return bool(self._poll_for(READ, 0.0))

    def cut(self) -> None:
        """End the connection from any thread: a request in progress fails, and so do all later."""
        self.shutdown()

    def close(self) -> None:
        """End the connection and close its descriptors."""
        raise NotImplementedError

    def __del__(self) -> None:
        if not self.closed:
            self.close()


class ThreadWire(Wire):
    """Runs a request in the calling thread."""

    # An interrupt such as Ctrl-C may strike when a part of an answer was read and is lost.
    resumes = False
    calling = False
    released = False

    def __init__(self, *arguments: Any) -> None:
        self.releasing = threading.Lock()
        super().__init__(*arguments)

    def call(self, request: Any, until: float) -> Any:
        """Carry out one request."""
        self.calling = True
        try:
            # Read after `calling` was set: either this sees `closed`, or `close` sees `calling`.
            if self.closed:
                raise OutcomeUnknown(CONNECTION_CLOSED)
            return self._run(self.steps(request, until), until)
        finally:
            self.calling = False
            if self.closed:
                self._release()

    def _run(self, steps: Generator[Any, Any, Any], until: float) -> Any:
        try:
            wanted = next(steps)
            while True:
                if callable(wanted):
                    wanted = steps.send(wanted())
                elif happened := self._ready(wanted, until):
                    wanted = steps.send(happened)
                else:
                    wanted = steps.throw(TimeoutError())
        except StopIteration as done:
            return done.value

    def _ready(self, events: int, until: float) -> int:
        """Wait for the socket. Returns what it is ready for, 0 when the time is up."""
        while True:
            for _, happened in self._poll_for(events, self.remaining(until)):
                writable = WRITE if happened & POLLOUT else 0
                # An error or the end of the connection shows when it is read.
                return writable | (READ if happened & ~POLLOUT else 0)
            if self.now() >= until:
                return 0

    def close(self) -> None:
        """End the connection. If a thread is in a request on it, that thread closes it."""
        self.closed = True
        if self.calling:
            self.shutdown()
        else:
            self._release()

    def _release(self) -> None:
        with self.releasing:
            if not self.released:
                self.released = True
                self.release()

    def after_fork(self) -> None:
        """In a forked child: close the descriptors and nothing else."""
        self.closed = self.released = True
        super().after_fork()


class TaskWire(Wire):
    """Runs a request in callbacks of the running loop, with one future per request.

    The reader of the socket stays registered between requests. It refers to the connection weakly,
    so that the loop does not keep a connection that is not used any more.
    """

    # A task is cancelled between two steps, so another request can read the rest of the answer.
    resumes = True
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    running: Generator[Any, Any, Any] | None = None
    timer: asyncio.TimerHandle | None = None
    watched = -1
    writing = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Threads do without the event loop, so it is not imported for them.
        from asyncio import get_running_loop

        self.running_loop = get_running_loop

    def call(self, request: Any, until: float) -> asyncio.Future[Any]:
        """Carry out one request."""
        loop = self.loop = self.running_loop()
        if self.timer is not None:
            self.timer.cancel()  # of a request that was cancelled
            self.timer = None
        future = self.future = loop.create_future()
        if self.closed:
            self._finish(None, OutcomeUnknown(CONNECTION_CLOSED))
            return future
        self.running = self.steps(request, until)
        self._advance(self.running.send, None)
        if self.running is not None:
            self.timer = loop.call_later(self.remaining(until), self._time_up, until)
        return future

    def _advance(self, step: Callable[[Any], Any], argument: Any) -> None:
        try:
            wanted = step(argument)
        except StopIteration as done:
            self._finish(done.value)
        except Exception as error:
            self._finish(None, error)
        else:
            if callable(wanted):
                self._run_blocking(wanted)
            else:
                self._watch(wanted)

    def _finish(self, result: object, error: Exception | None = None) -> None:
        """Settle the request, unless its task was cancelled."""
        future, self.future, self.running = self.future, None, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if future is None or future.done() or future.get_loop().is_closed():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
            # A task that waits gets the error. One that was collected with this connection does
            # not, and asyncio would report that the error was never retrieved.
            future.exception()

    def _watch(self, events: int) -> None:
        assert self.loop is not None
        if self.watched < 0:
            self.watched = self.fileno()
            watcher_of(self.loop).add_reader(self.watched, _on_ready, weakref.ref(self), READ)
        if bool(events & WRITE) != self.writing:
            self.writing = not self.writing
            if self.writing:
                watcher_of(self.loop).add_writer(self.watched, _on_ready, weakref.ref(self), WRITE)
            else:
                watcher_of(self.loop).remove_writer(self.watched)

    def ready(self, happened: int) -> None:
        """The socket is ready."""
        if self.future is None or self.future.done() or self.running is None:
            # The peer has sent something between two requests. `readable` reports it.
            self._unwatch()
        else:
            self._advance(self.running.send, happened)

    def _unwatch(self) -> None:
        watched, self.watched = self.watched, -1
        if watched >= 0 and self.loop is not None:
            watcher_of(self.loop).remove_reader(watched)
            if self.writing:
                self.writing = False
                watcher_of(self.loop).remove_writer(watched)

    def _time_up(self, until: float) -> None:
        if self.running is None or self.loop is None:
            return
        if self.now() < until:
            self.timer = self.loop.call_later(
                max(0.001, self.remaining(until)), self._time_up, until
            )
        else:
            self._advance(self.running.throw, TimeoutError())

    def _run_blocking(self, function: Callable[[], Any]) -> None:
        """Run a blocking function in a thread of its own: those of the loop may all be busy."""
        from concurrent.futures import Future, ThreadPoolExecutor

        loop, future = self.loop, self.future
        assert loop is not None
        worker = ThreadPoolExecutor(1, "leaselock-connect")
        work: Future[Any] = Future()
        try:
            work = worker.submit(function)
        except RuntimeError:
            # The interpreter ends, and no thread can be started: nothing else runs, either.
            try:
                work.set_result(function())
            except Exception as error:
                work.set_exception(error)
        worker.shutdown(wait=False)

        def done(work: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(self._blocking_done, work, future)
            except RuntimeError:
                self._discard(work)  # the loop was closed meanwhile

        work.add_done_callback(done)

    def _blocking_done(self, work: Future[Any], future: asyncio.Future[Any] | None) -> None:
        if future is None or self.future is not future or future.done() or self.running is None:
            self._discard(work)
        elif error := work.exception():
            self._advance(self.running.throw, error)
        else:
            self._advance(self.running.send, work.result())

    def _discard(self, work: Future[Any]) -> None:
        if work.exception() is None:
            self.discard(work.result())

    def close(self) -> None:
        """End the connection; a request in progress fails."""
        if not self.closed:
            self.closed = True
            self._unwatch()
            self._finish(None, OutcomeUnknown(CONNECTION_CLOSED))
            self.release()

    def after_fork(self) -> None:
        """In a forked child: close the descriptors, without touching the loop of the parent."""
        self.closed = True
        self.watched, self.future, self.running, self.timer = -1, None, None, None
        super().after_fork()


def _on_ready(wire: weakref.ref[TaskWire], happened: int) -> None:
    connection = wire()
    if connection is not None:
        connection.ready(happened)


def shut_down(connected: Any) -> None:
    """Shut a socket down, so that a wait for it ends."""
    try:
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return  # the connection has ended already
