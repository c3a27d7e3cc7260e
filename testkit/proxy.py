"""A TCP proxy that loses, holds, delays and cuts messages on demand.

It knows no protocol. TCP never loses data in the middle of a stream, so a loss is a direction that
goes silent from one request on, while the connection stays open. A request is a chunk of what the
client sent (usually one write) that contains certain bytes. A fault applies to the k-th such chunk,
once, and reports when it has happened.

    proxy = Proxy(server.port)
    fault = proxy.hold(b"EVALSHA", nth=2)   # the second such request is held
    ...                                     # the client connects through the proxy and times out
    fault.wait(); fault.pass_on()           # the server gets the late request
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
CHUNK = 1 << 16
# It only bounds a failure.
TIMEOUT = 120.0
ACTIONS = ("lose_request", "lose_reply", "hold", "hold_reply", "cut", "cut_reply")


class Fault:
    """A planned fault of one connection, at the k-th request that contains certain bytes."""

    def __init__(self, action: str, where: bytes, nth: int) -> None:
        self.action = action
        self.where = where
        self.left = nth
        self.injected = threading.Event()
        self.passed = threading.Event()
        self.arrived = threading.Event()
        self.request = b""

    def wait(self) -> None:
        """Wait until the fault has happened."""
        assert self.injected.wait(TIMEOUT), f"no request came to {self.action}"

    def pass_on(self) -> None:
        """Deliver the held message, and let the connection go on if it still can. Return when the
        receiver's kernel has it, or when there is no receiver any more.
        """
        self.wait()
        self.passed.set()
        assert self.arrived.wait(TIMEOUT), "the message was not delivered"

    def due(self, data: bytes) -> bool:
        """Return whether the fault applies to this chunk."""
        if self.where not in data:
            return False
        self.left -= 1
        return self.left == 0


class Direction:
    """One direction of a connection: a thread copies *source* to *sink*, subject to faults."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.silent = False
        self.gate: Fault | None = None

    def deliver(self, data: bytes, delay: float) -> None:
        """Forward a chunk: now, later or never, as faults demand."""
        if delay:
            time.sleep(delay)
        self._through(lambda: self.sink.sendall(data))

    def end(self) -> None:
        """Forward the end of the stream, after held chunks."""
        self._through(lambda: self.sink.shutdown(socket.SHUT_WR))

    def _through(self, act: Callable[[], None]) -> None:
        gate = self.gate
        if gate:
            gate.passed.wait()
        try:
            if not self.silent:
                act()
        finally:
            if gate:
                gate.arrived.set()


class Connection:
    """The connection of one client, and the proxy's own connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.up = Direction(client, server)
        self.down = Direction(server, client)
        self.gates: list[Fault] = []
        self.cut_on_reply: Fault | None = None
        self.up.silent = self.down.silent = proxy.silent

    def start(self) -> None:
        """Begin to copy, in both directions."""
        for direction in (self.up, self.down):
            threading.Thread(target=self._pump, args=(direction,), daemon=True).start()

    def _pump(self, direction: Direction) -> None:
        try:
            while data := direction.source.recv(CHUNK):
                if direction is self.up:
                    for fault in self.proxy.due(data):
                        self._strike(fault, data)
                elif self.cut_on_reply:
                    self._cut(self.cut_on_reply)
                direction.deliver(data, self.proxy.delay)
            direction.end()
        except OSError:
            # A process that is killed before it has read everything resets its connection.
            if not direction.silent:
                self.close()

    def _strike(self, fault: Fault, data: bytes) -> None:
        fault.request = data
        if fault.action == "cut":
            self._cut(fault)
            return
        if fault.action == "cut_reply":
            self.cut_on_reply = fault
            return
        direction = self.down if fault.action.endswith("_reply") else self.up
        if fault.action.startswith("lose"):
            direction.silent = True
        else:
            self.gates.append(fault)
            direction.gate = fault
        fault.injected.set()

    def _cut(self, fault: Fault) -> None:
        self.close()
        fault.injected.set()

    def close(self) -> None:
        """Close both connections."""
        for gate in self.gates:
            gate.passed.set()
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards to port *target*; counts *requests*."""

    def __init__(self, target: int, host: str = HOST) -> None:
        self.target = (host, target)
        self.listener = socket.create_server((HOST, 0))
        self.port: int = self.listener.getsockname()[1]
        self.delay = 0.0
        self.silent = False
        self.refusing = False
        self.connections: list[Connection] = []
        self.faults: list[Fault] = []
        self.requests = 0
        self.mutex = threading.Lock()
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if not self.refusing:
                self._connect(client)
            else:
                client.close()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, TIMEOUT)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Registered before anything passes through it: `silence` and `cut_all` must find every
        # connection that a client has had an answer from. Under the mutex, since a connection that
        # is made while they run must follow them, too.
        with self.mutex:
            connection = Connection(self, client, server)
            self.connections.append(connection)
        if self.refusing:
            connection.close()
        else:
            connection.start()

    def due(self, data: bytes) -> list[Fault]:
        """Return the faults that apply to this chunk, and remove them."""
        with self.mutex:
            self.requests += 1
            found = [fault for fault in self.faults if fault.due(data)]
            self.faults = [fault for fault in self.faults if fault not in found]
        return found

    # --- single faults --------------------------------------------------------------------------

    def _plan(self, action: str, where: bytes, nth: int) -> Fault:
        fault = Fault(action, where, nth)
        with self.mutex:
            self.faults.append(fault)
        return fault

    def plan(self, action: str, where: bytes = b"", nth: int = 1) -> Fault:
        """Plan one of ACTIONS for the *nth* chunk from now that contains *where*."""
        assert action in ACTIONS, action
        return self._plan(action, where, nth)

    def withdraw(self, fault: Fault) -> None:
        """Cancel a planned fault that has not happened yet."""
        with self.mutex:
            self.faults = [other for other in self.faults if other is not fault]

    def lose_request(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Drop the request, and everything that the same connection sends after it."""
        return self._plan("lose_request", where, nth)

    def lose_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Deliver the request; drop its reply and all later ones on the connection."""
        return self._plan("lose_reply", where, nth)

    def hold(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Hold the request until `pass_on`; it then arrives even if its client is gone."""
        return self._plan("hold", where, nth)

    def hold_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Hold the replies until `pass_on`."""
        return self._plan("hold_reply", where, nth)

    def cut(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Close the connection instead of delivering the request."""
        return self._plan("cut", where, nth)

    def cut_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Deliver the request, and close the connection instead of delivering the reply."""
        return self._plan("cut_reply", where, nth)

    # --- all connections --------------------------------------------------------------------------

    def silence(self) -> None:
        """Simulate a partition: all connections, also new ones, stay open but transfer nothing."""
        with self.mutex:
            self.silent = True
            for connection in self.connections:
                connection.up.silent = connection.down.silent = True

    def refuse(self) -> None:
        """Close all connections, and refuse new ones."""
        self.refusing = True
        self.cut_all()

    def calm(self) -> None:
        """Cancel all planned faults, and close all connections so that clients reconnect."""
        with self.mutex:
            self.faults = []
        self.heal()

    def heal(self) -> None:
        """Let new connections work again; close existing ones, which have lost data."""
        self.refusing = self.silent = False
        self.cut_all()

    def cut_all(self) -> None:
        """Close every connection."""
        with self.mutex:
            connections, self.connections = self.connections, []
        for connection in connections:
            connection.close()

    def stop(self) -> None:
        """Stop listening, and close every connection."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
