"""Incomplete TLS records: a connection to MySQL is given up at its deadline."""

from __future__ import annotations

import socket
import ssl
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.servers.tls import Certificates

from leaselock.backends.sql.mysql import Wire
from leaselock.drivers.system_env import now

if TYPE_CHECKING:
    from pathlib import Path


def serve(theirs: socket.socket, context: ssl.SSLContext) -> None:
    """Complete the handshake, then send half a record."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            server.do_handshake()
            break
        except ssl.SSLWantReadError:
            theirs.sendall(outgoing.read())
            incoming.write(theirs.recv(1 << 16))
    server.write(b"whole")
    theirs.sendall(outgoing.read())
    server.write(b"half of it")
    theirs.sendall(outgoing.read()[:20])


def test_incomplete_record_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, context))
    thread.start()
    with theirs, made.context().wrap_socket(ours, server_hostname="127.0.0.1") as sock:
        wire = Wire(SimpleNamespace(_sock=sock), now, now() + 10.0)
        wire.settle()
        assert wire.read(5) == b"whole"
        wire.until = now() + 0.2
        with pytest.raises(TimeoutError):
            wire.read(5)
        thread.join()
