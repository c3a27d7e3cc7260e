"""A small store on the network, for tests of the adapter suite: its server, client and listener.

The server keeps documents in this process. A request and its reply are a line of JSON each; a
listener's connection gets a line for each change. `SmallStore` is a correct adapter; the tests
derive faulty ones from it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING, Any

from leaselock import NotApplied, OutcomeUnknown
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock.stores import (
    Changed,
    Changes,
    Conflict,
    DocumentStore,
    Finding,
    Found,
    Opened,
    Page,
    Stored,
    Traits,
    WatchListener,
    document_store,
    open_documents,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
PAGE = 100


class Server(socketserver.ThreadingTCPServer):
    """Documents, by their names, each with its version."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), Handler)
        self.changed = threading.Condition()
        self.documents: dict[str, tuple[str, int]] = {}
        self.writes = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{HOST}:{self.server_address[1]}"

    def answer(self, words: list[Any]) -> Any:
        """Carry out one request."""
        with self.changed:
            return getattr(self, f"do_{words[0]}")(*words[1:])

    def do_get(self, name: str) -> Any:
        return self.documents.get(name)

    def do_put(self, name: str, value: str, version: int | None) -> Any:
        found = self.documents.get(name)
        if (found and found[1]) != version:
            return [False, found]
        self.writes += 1
        self.documents[name] = (value, self.writes)
        self.changed.notify_all()
        return [True, self.writes]

    def do_delete(self, name: str, version: int | None) -> Any:
        found = self.documents.get(name)
        if found is None or (version is not None and found[1] != version):
            return False
        del self.documents[name]
        self.changed.notify_all()
        return True

    def do_list(self, after: str) -> Any:
        names = sorted(name for name in self.documents if name > after)
        return [names[:PAGE], len(names) > PAGE]

    def do_changes(self, versions: dict[str, int | None], seconds: float) -> Any:
        """Wait until a document has another version."""
        end = time.monotonic() + seconds

        def present(name: str) -> int | None:
            found = self.documents.get(name)
            return found[1] if found else None

        while not (names := [name for name in versions if present(name) != versions[name]]):
            if (left := end - time.monotonic()) <= 0.0:
                break
            self.changed.wait(left)
        return names


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    def handle(self) -> None:
        server: Any = self.server
        with contextlib.suppress(OSError):
            for line in self.rfile:
                reply = server.answer(json.loads(line))
                self.wfile.write(json.dumps(reply).encode() + b"\n")


class Connections:
    """Free connections of a client; a call has one for itself."""

    def __init__(self, host: str, port: int, now: Callable[[], float]) -> None:
        self.place, self.now = (host, port), now
        self.free: list[socket.socket] = []
        self.closings = 0

    def ask(self, words: list[Any], until: float) -> Any:
        """Send a request, and return the reply."""
        left = until - self.now()
        if left <= 0.0:
            raise NotApplied("no time is left", "unreachable")
        closings = self.closings
        try:
            connection = (
                self.free.pop() if self.free else socket.create_connection(self.place, left)
            )
        except OSError as error:
            raise NotApplied(f"{self.place}: {error}", "unreachable") from error
        try:
            connection.settimeout(max(0.001, until - self.now()))
            connection.sendall(json.dumps(words).encode() + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                connection.settimeout(max(0.001, until - self.now()))
                if not (part := connection.recv(1 << 16)):
                    raise ConnectionResetError("the server closed the connection")
                line += part
        except OSError as error:
            connection.close()
            raise OutcomeUnknown(f"{self.place}: {error}", "unreachable") from error
        if closings == self.closings:
            self.free.append(connection)
        else:
            connection.close()
        return json.loads(line)

    def close(self) -> None:
        """Close those that are free, and the others when their calls end."""
        self.closings += 1
        while self.free:
            self.free.pop().close()


class SmallStore(DocumentStore):
    """Carries out requests."""

    def __init__(self, host: str, port: int, now: Callable[[], float]) -> None:
        super().__init__(Traits())
        self.connections = Connections(host, port, now)

    def get(self, name: str, until: float) -> Found:
        return found_of(self.connections.ask(["get", name], until))

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        words = ["put", name, value.decode(), version]
        done, what = self.connections.ask(words, until)
        return Stored(what) if done else Conflict(found_of(what))

    def delete(self, name: str, version: Any, until: float) -> bool:
        return bool(version is not None and self.connections.ask(["delete", name, version], until))

    def list(self, position: Any, until: float) -> Page:
        names, more = self.connections.ask(["list", position or ""], until)
        return Page([(name, None) for name in names], names[-1] if more else None)

    def doctor(self, until: float) -> tuple[Finding, ...]:
        return (Finding("ok", "a small store"),)

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self.connections.close()

    def after_fork(self) -> None:
        self.connections.close()


def found_of(document: Any) -> Found:
    """Return a document of a reply."""
    return Found(document[0].encode(), document[1]) if document else Found(None, None)


class SmallListener(BlockingNode):
    """Asks the server for changes, a moment at a time, so that it can be interrupted."""

    moment = 0.05

    def __init__(self, host: str, port: int, now: Callable[[], float]) -> None:
        self.connections = Connections(host, port, now)
        self.now = now
        self.ended = False

    def call(self, request: Any, until: float) -> Sequence[Changed]:
        assert isinstance(request, Changes)
        wake = request.interrupt.add(self.noted)
        try:
            while not request.interrupt.is_set:
                if self.ended:
                    raise NotApplied("the client was closed")
                left = min(self.moment, until - self.now())
                if left <= 0.0:
                    break
                if changed := self.changed(request, left):
                    return changed
            return ()
        except OutcomeUnknown as error:
            raise NotApplied(str(error), error.reason) from error
        finally:
            request.interrupt.remove(wake)

    def changed(self, request: Changes, seconds: float) -> Sequence[Changed]:
        words = ["changes", dict(request.versions), seconds]
        return [Changed(name, None) for name in self.connections.ask(words, self.now() + 5.0)]

    def noted(self) -> None:
        """The loop of `call` sees it within a moment."""

    def wake(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.connections.close()
        self.ended = False

    def after_fork(self) -> None:
        self.connections.close()


class SmallWatcher(WatchListener):
    """The same by a thread for each document, which calls a function when it has changed."""

    moment = 0.05

    def __init__(self, host: str, port: int, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.connections = Connections(host, port, now)
        self.watched: dict[str, threading.Event] = {}
        self.threads: list[threading.Thread] = []

    def watch(self, name: str, tell: Callable[[Found | None], None]) -> None:
        ended = self.watched[name] = threading.Event()
        first = found_of(self.connections.ask(["get", name], self.now() + 5.0))
        tell(first)
        thread = threading.Thread(
            target=self.follow, args=(name, first.version, tell, ended), daemon=True
        )
        thread.start()
        self.threads = [each for each in self.threads if each.is_alive()] + [thread]

    def follow(
        self, name: str, version: Any, tell: Callable[[Found | None], None], ended: threading.Event
    ) -> None:
        while not ended.wait(0.001):
            try:
                words = ["changes", {name: version}, self.moment]
                if self.connections.ask(words, self.now() + 5.0):
                    found = found_of(self.connections.ask(["get", name], self.now() + 5.0))
                    version = found.version
                    tell(found)
            except (NotApplied, OutcomeUnknown):
                tell(None)  # and connect again

    def unwatch(self, name: str) -> None:
        self.watched.pop(name).set()

    def close(self) -> None:
        super().close()
        for ended in self.watched.values():
            ended.set()
        for thread in self.threads:  # each has a connection until its call ends
            thread.join()
        self.connections.close()

    def after_fork(self) -> None:
        super().after_fork()
        self.watched = {}
        self.threads = []
        self.connections.close()


def opening(
    store: type[SmallStore] = SmallStore,
    listener: type[SmallListener | SmallWatcher] = SmallListener,
) -> Callable[..., Opened]:
    """Return how to open a store of ``small://host:port`` with these classes."""

    def open_small(named: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
        url = parse(named)
        kind.protocol_of(url)
        (host,) = url.hosts()
        place = host.name, host.port or 0, now
        return open_documents(kind, url, store(*place), listener(*place), now, shown=named)

    kind = document_store("small", open_small, listens=True)
    return open_small


STORE = document_store("small", opening(), listens=True)
