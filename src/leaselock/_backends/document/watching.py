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

from leaselock._backends.document.listening import WatchListener
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


class OpenStream:
    """A stream, and the documents that it was opened for, with the versions known then."""

    def __init__(self, stream: Stream, versions: Mapping[str, Any]) -> None:
        self.stream = stream
        self.versions = versions
        self.names = tuple(versions)
        self.wanted = set(versions)


class StreamListener(WatchListener):
    """Waits for changes of documents. A store says how to open a stream and what its lines say.

    The streams are read by the thread that waits, so there is no other one.
    """

    def _reset(self) -> None:
        super()._reset()
        self.streams: list[OpenStream] = []
        self.by_name: dict[str, OpenStream] = {}
        self.tell: dict[str, Callable[[Found | None], None]] = {}
        self.selector: selectors.BaseSelector | None = None
        self.inner: socket.socket | None = None
        self.outer: socket.socket | None = None

    @abc.abstractmethod
    def open(self, versions: Mapping[str, Any], until: float) -> Stream:
        """A stream of the changes of documents that happen after these versions."""

    @abc.abstractmethod
    def read(self, watched: OpenStream, line: bytes) -> Iterable[News]:
        """What a line says. StoreError if the stream cannot go on."""

    def watch(self, name: str, tell: Callable[[Found | None], None]) -> None:
        """Note whom to tell; `_follow` opens one stream for all that are new."""
        self.tell[name] = tell

    def unwatch(self, name: str) -> None:
        """Close the stream, if it is for no other document."""
        del self.tell[name]
        if watched := self.by_name.pop(name, None):
            watched.wanted.discard(name)
            if not watched.wanted:
                self._close(watched)

    def _follow(self, versions: Mapping[str, Any], until: float) -> None:
        if self.selector is None:
            self._begin()
        super()._follow(versions, until)
        for watched in [watched for watched in self.streams if watched.stream.is_stale]:
            self._close(watched)
        missing = [name for name in versions if name not in self.by_name]
        if missing and not self._news:
            with self._closing_on_errors():
                self._open(missing, versions, min(until, self.now() + OPEN_TIMEOUT))

    def _begin(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.inner, self.outer = socket.socketpair()
        for end in (self.inner, self.outer):
            end.setblocking(False)
        self.selector.register(self.inner, selectors.EVENT_READ)

    def _open(self, missing: Sequence[str], versions: Mapping[str, Any], until: float) -> None:
        if len(self.streams) >= MOST_STREAMS:
            self._close_streams()
            missing = list(versions)
        wanted = {name: versions[name] for name in missing}
        stream = self.open(wanted, until)
        watched = OpenStream(stream, wanted)
        self.streams.append(watched)
        self.by_name |= dict.fromkeys(missing, watched)
        assert self.selector is not None
        self.selector.register(stream, selectors.EVENT_READ, watched)

    @contextlib.contextmanager
    def _closing_on_errors(self) -> Iterator[None]:
        """The streams begin again after an error; it is one of a request that changed nothing."""
        try:
            yield
        except StoreError as error:
            self._close_streams()
            raise NotApplied(str(error), error.reason) from error

    def _wait(self, seconds: float) -> None:
        # `_changed` stays locked meanwhile, unlike in the base class: so `_notify` must not lock
        # it, and what is read is told in this thread.
        assert self.selector is not None
        with self._closing_on_errors():
            for key, _ in self.selector.select(min(seconds, CHECK_INTERVAL)):
                watched: OpenStream | None = key.data
                if watched is None:
                    assert self.inner is not None
                    self.inner.recv(4096)
                elif watched in self.streams:
                    self._read(watched)

    def _read(self, watched: OpenStream) -> None:
        for line in watched.stream.read():
            for name, found, ended in self.read(watched, line):
                if self.by_name.get(name) is watched:
                    self.tell[name](found)
                    if ended:
                        self.by_name.pop(name)
                        watched.wanted.discard(name)
        if not watched.wanted:
            self._close(watched)
        elif watched.stream.ended:
            watched.stream.read()  # raises: its selector would not report it again

    def _close(self, watched: OpenStream) -> None:
        assert self.selector is not None
        self.streams.remove(watched)
        for name in watched.wanted:
            self.by_name.pop(name, None)
        self.selector.unregister(watched.stream)
        watched.stream.close()

    def _close_streams(self) -> None:
        while self.streams:
            self._close(self.streams[-1])

    def _notify(self) -> None:
        outer = self.outer
        if outer is not None:
            # If the buffer is full, the reader is awake already; a closed one has no reader.
            with contextlib.suppress(OSError):
                outer.send(b".")

    def close(self) -> None:
        """End all streams; be ready to be used again."""
        super().close()
        self._drop()

    def after_fork(self) -> None:
        """Forget the streams of the parent, which its pool closes here."""
        self._drop()

    def _drop(self) -> None:
        for end in (self.selector, self.inner, self.outer):
            if end is not None:
                end.close()
        self._reset()
