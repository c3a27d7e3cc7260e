"""A TCP proxy that loses, holds, delays and cuts what passes through it, on demand.

Law: it knows no protocol. TCP never loses something in the middle, so a loss is a direction that
goes silent from one request on, while the connection stays open. A request is a piece of what the
client sent (one write, as a rule) that contains certain bytes; a fault strikes the k-th of them,
once, and says when it has.

    proxy = Proxy(server.port)
    fault = proxy.hold(b"EVALSHA", nth=2)   # the second such request stays here
    ...                                     # the asker goes through the proxy and gives up
    fault.wait(); fault.pass_on()           # the server gets it now, though nobody waits any more
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
PATIENCE = 120.0
ACTIONS = ("lose_request", "lose_reply", "hold", "hold_reply", "cut", "cut_reply")


class Fault:
    """What shall happen to one connection, at its k-th request with certain bytes in it."""

    def __init__(self, action: str, where: bytes, nth: int) -> None:
        self.action = action
        self.where = where
        self.left = nth
        self.struck = threading.Event()
        self.passed = threading.Event()
        self.arrived = threading.Event()
        self.request = b""

    def wait(self) -> None:
        """Until it has struck."""
        assert self.struck.wait(PATIENCE), f"nothing was there to {self.action}"

    def pass_on(self) -> None:
        """Deliver what was held, and let the connection go on if it still can; returns when it is
        with the receiver's kernel, or when there is no receiver any more.
        """
        self.wait()
        self.passed.set()
        assert self.arrived.wait(PATIENCE), "it was not delivered"

    def due(self, data: bytes) -> bool:
        """Whether this piece is the one."""
        if self.where not in data:
            return False
        self.left -= 1
        return self.left == 0


class Direction:
    """One way of one connection. A pump copies *source* to *sink*; what faults do, they do here."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.silent = False
        self.gate: Fault | None = None

    def deliver(self, data: bytes, delay: float) -> None:
        """Pass a piece on, or not, or not yet."""
        if delay:
            time.sleep(delay)
        self._through(lambda: self.sink.sendall(data))

    def end(self) -> None:
        """The source has said all; what is held still has to arrive first."""
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
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.up = Direction(client, server)
        self.down = Direction(server, client)
        self.gates: list[Fault] = []
        self.parting: Fault | None = None
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
                elif self.parting:
                    self._cut(self.parting)
                direction.deliver(data, self.proxy.delay)
            direction.end()
        except OSError:
            # One that is killed before it has read everything resets its connection.
            if not direction.silent:
                self.close()

    def _strike(self, fault: Fault, data: bytes) -> None:
        fault.request = data
        if fault.action == "cut":
            self._cut(fault)
            return
        if fault.action == "cut_reply":
            self.parting = fault
            return
        direction = self.down if fault.action.endswith("_reply") else self.up
        if fault.action.startswith("lose"):
            direction.silent = True
        else:
            self.gates.append(fault)
            direction.gate = fault
        fault.struck.set()

    def _cut(self, fault: Fault) -> None:
        self.close()
        fault.struck.set()

    def close(self) -> None:
        """Cut both ways at once."""
        for gate in self.gates:
            gate.passed.set()
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on a free port of 127.0.0.1, in threads, for the server on *target*; *requests* are
    counted.
    """

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
                self._join(client)
            else:
                client.close()

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, PATIENCE)
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
            joined = Connection(self, client, server)
            self.connections.append(joined)
        if self.refusing:
            joined.close()
        else:
            joined.start()

    def due(self, data: bytes) -> list[Fault]:
        """The faults that strike at this piece; each strikes once."""
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
        """Any of ACTIONS by its name, at the *nth* piece from now with *where* in it."""
        assert action in ACTIONS, action
        return self._plan(action, where, nth)

    def withdraw(self, fault: Fault) -> None:
        """Plan it no more, if it has not struck."""
        with self.mutex:
            self.faults = [other for other in self.faults if other is not fault]

    def lose_request(self, where: bytes = b"", nth: int = 1) -> Fault:
        """The server never sees it, nor what the same client sends after it."""
        return self._plan("lose_request", where, nth)

    def lose_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """The server carries it out; its client hears nothing any more."""
        return self._plan("lose_reply", where, nth)

    def hold(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Keep it back until `pass_on`; it then arrives even if its asker is gone."""
        return self._plan("hold", where, nth)

    def hold_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Keep the answers back until `pass_on`."""
        return self._plan("hold_reply", where, nth)

    def cut(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Close the connection instead of delivering it."""
        return self._plan("cut", where, nth)

    def cut_reply(self, where: bytes = b"", nth: int = 1) -> Fault:
        """Close the connection when the server has carried it out, instead of its answer."""
        return self._plan("cut_reply", where, nth)

    # --- everything at once ---------------------------------------------------------------------

    def silence(self) -> None:
        """A partition: all connections, those to come included, stay open and say nothing."""
        with self.mutex:
            self.silent = True
            for connection in self.connections:
                connection.up.silent = connection.down.silent = True

    def refuse(self) -> None:
        """Cut everything, and turn away whoever comes."""
        self.refusing = True
        self.cut_all()

    def calm(self) -> None:
        """Plan no more, and begin with new connections."""
        with self.mutex:
            self.faults = []
        self.heal()

    def heal(self) -> None:
        """New connections work again; those that lost something cannot, and are cut."""
        self.refusing = self.silent = False
        self.cut_all()

    def cut_all(self) -> None:
        """Close every connection."""
        with self.mutex:
            connections, self.connections = self.connections, []
        for connection in connections:
            connection.close()

    def stop(self) -> None:
        """Close everything."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
