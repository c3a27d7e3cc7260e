"""A listener for stores whose changes are an HTTP reply that does not end, one JSON text a line.

One stream watches several documents. Those that are waited for later get a stream of their own;
when there are too many streams, one replaces them all.
"""

from __future__ import annotations

import abc
import contextlib
import selectors
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.document.adapter import Changed, Changes
from leaselock._core.hold import CLIENT_CLOSED
from leaselock._core.lifecycle import BlockingNode
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leaselock._backends.document.adapter import Found
    from leaselock._backends.document.http import Stream

# Streams, and with them connections, of one client.
MOST_STREAMS = 4
# Seconds that opening a stream may take: the caller has leases to renew.
OPEN_TIMEOUT = 1.0
# Seconds after which a listener that hears nothing checks whether the server of a stream has failed
# to answer a request.
CHECK_INTERVAL = 1.0


class News(NamedTuple):
    """What a line of a stream says about one document."""

    name: str
    found: Found | None
    """None if changes may have been missed."""
    ended: bool = False
    """Whether the stream says nothing more about this document."""


class Watched:
    """A stream, and the documents that it was opened for, with the versions known then."""

    def __init__(self, stream: Stream, versions: Mapping[str, Any]) -> None:
        self.stream = stream
        self.versions = versions
        self.names = tuple(versions)
        self.wanted = set(versions)


class StreamListener(BlockingNode):
    """Waits for changes of documents. A store says how to open a stream and what its lines say."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.ended = False
        self._reset()

    def _reset(self) -> None:
        self.streams: list[Watched] = []
        self.by_name: dict[str, Watched] = {}
        self.news: dict[str, Found | None] = {}
        self.selector: selectors.BaseSelector | None = None
        self.inner: socket.socket | None = None
        self.outer: socket.socket | None = None

    @abc.abstractmethod
    def open(self, versions: Mapping[str, Any], until: float) -> Stream:
        """A stream of the changes of documents that happen after these versions."""

    @abc.abstractmethod
    def read(self, watched: Watched, line: bytes) -> Iterable[News]:
        """What a line says. StoreError if the stream cannot go on."""

    def call(self, request: object, until: float) -> object:
        """Wait for changes."""
        if not isinstance(request, Changes):
            raise TypeError(f"not a request of a listener: {request!r}")
        selector = self.selector or self._begin()
        request.interrupt.wakers.append(self._wake)
        try:
            # Checked after the callback is in place, so no interruption is missed.
            while not (request.interrupt.is_set or self.ended):
                if changed := self._changed(request.versions):
                    return changed
                self._follow(request.versions, until)
                remaining = until - self.now()
                if remaining <= 0.0:
                    break
                self._wait(selector, min(remaining, CHECK_INTERVAL))
        except StoreError as error:
            self._close_streams()
            raise NotApplied(str(error), error.reason) from error
        finally:
            request.interrupt.remove(self._wake)
        if self.ended:
            raise NotApplied(CLIENT_CLOSED)
        return ()

    def _begin(self) -> selectors.BaseSelector:
        self.selector = selectors.DefaultSelector()
        self.inner, self.outer = socket.socketpair()
        for end in (self.inner, self.outer):
            end.setblocking(False)
        self.selector.register(self.inner, selectors.EVENT_READ)
        return self.selector

    def _follow(self, versions: Mapping[str, Any], until: float) -> None:
        """Watch these documents, and no others."""
        for watched in [watched for watched in self.streams if watched.stream.is_stale]:
            self._close(watched)
        for name in [name for name in self.by_name if name not in versions]:
            self._forget(name)
        missing = [name for name in versions if name not in self.by_name]
        if not missing:
            return
        if len(self.streams) >= MOST_STREAMS:
            self._close_streams()
            missing = list(versions)
        wanted = {name: versions[name] for name in missing}
        stream = self.open(wanted, min(until, self.now() + OPEN_TIMEOUT))
        watched = Watched(stream, wanted)
        self.streams.append(watched)
        self.by_name |= dict.fromkeys(missing, watched)
        assert self.selector is not None
        self.selector.register(stream, selectors.EVENT_READ, watched)

    def _forget(self, name: str) -> None:
        watched = self.by_name.pop(name)
        self.news.pop(name, None)
        watched.wanted.discard(name)
        if not watched.wanted:
            self._close(watched)

    def _changed(self, versions: Mapping[str, Any]) -> Sequence[Changed]:
        """What was not reported yet."""
        news, self.news = self.news, {}
        return tuple(
            Changed(name, found)
            for name, found in news.items()
            if name in versions and (found is None or found.version != versions[name])
        )

    def _wait(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in selector.select(seconds):
            watched: Watched | None = key.data
            if watched is None:
                assert self.inner is not None
                self.inner.recv(4096)
            elif watched in self.streams:
                self._take(watched)

    def _take(self, watched: Watched) -> None:
        for line in watched.stream.read():
            for name, found, ended in self.read(watched, line):
                if self.by_name.get(name) is watched:
                    self.news[name] = found
                    if ended:
                        self.by_name.pop(name)
                        watched.wanted.discard(name)
        if not watched.wanted:
            self._close(watched)
        elif watched.stream.ended:
            watched.stream.read()  # raises: its selector would not report it again

    def _close(self, watched: Watched) -> None:
        assert self.selector is not None
        self.streams.remove(watched)
        for name in watched.wanted:
            self.by_name.pop(name, None)
        self.selector.unregister(watched.stream)
        watched.stream.close()

    def _close_streams(self) -> None:
        while self.streams:
            self._close(self.streams[-1])

    def _wake(self) -> None:
        outer = self.outer
        if outer is not None:
            # If the buffer is full, the reader is awake already; a closed one has no reader.
            with contextlib.suppress(OSError):
                outer.send(b".")

    def wake(self) -> None:
        """End the present call; refuse those to come until `close`."""
        self.ended = True
        self._wake()

    def close(self) -> None:
        """End all streams; be ready to be used again."""
        self._close_streams()
        self._drop()
        self.ended = False

    def after_fork(self) -> None:
        """Forget the streams of the parent, which its pool closes here."""
        self._drop()
        self.ended = False

    def _drop(self) -> None:
        for end in (self.selector, self.inner, self.outer):
            if end is not None:
                end.close()
        self._reset()
