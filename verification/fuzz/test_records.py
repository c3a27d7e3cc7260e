"""Incomplete TLS records: a connection to MySQL is given up at its deadline."""

from __future__ import annotations

import socket
import ssl
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from testkit.servers.tls import Certificates
from verification.fuzz.hostile_sql import done, packet

from leaselock._backends.sql.connection import Execute
from leaselock._backends.sql.mysql import ThreadConnection
from leaselock._backends.sql.url import parsed
from leaselock._drivers.system_env import now
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from pathlib import Path


def serve(theirs: socket.socket, context: ssl.SSLContext) -> None:
    """Complete the handshake, then send one whole record and half of another."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            server.do_handshake()
            break
        except ssl.SSLWantReadError:
            theirs.sendall(outgoing.read())
            incoming.write(theirs.recv(1 << 16))
    server.write(packet(1, done(7)))
    theirs.sendall(outgoing.read())
    server.write(packet(1, done(7)))
    theirs.sendall(outgoing.read()[:20])


def test_incomplete_record_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, context))
    thread.start()
    with theirs, made.context().wrap_socket(ours, server_hostname="127.0.0.1") as sock:
        sock.setblocking(False)
        connection = ThreadConnection(parsed("mysql://h/d"), now)
        connection.socket, connection.conn = sock, SimpleNamespace(close=sock.close)
        ((_, amount, _),) = connection.call(Execute("DO 1"), now() + 10.0)
        assert amount == 7
        with pytest.raises(OutcomeUnknown, match="did not answer in time"):
            connection.call(Execute("DO 1"), now() + 0.2)
        assert not connection.usable
        connection.close()
        thread.join()
