"""A process that forks while another of its threads connects to a server."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from testkit.servers.process import HOST, eventually

import leaselock


def connected_to(port: int) -> int:
    """How many descriptors of this process are connected to *port*."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                found += one.getpeername() == (HOST, port)
        except OSError:
            continue
    return found


def in_a_child(port: int) -> int:
    """The same in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(connected_to(port)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        counted = int(answer.read())
    os.waitpid(child, 0)
    return counted


@pytest.mark.parametrize("scheme", ["redis", "postgresql", "mysql"])
def test_a_forked_child_does_not_keep_a_connection_that_was_being_made(scheme: str) -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        port = silent.getsockname()[1]
        path = f"user@{HOST}:{port}/db" if scheme != "redis" else f"{HOST}:{port}/0"
        client = leaselock.Client(f"{scheme}://{path}", op_timeout=600.0)

        def connect() -> None:
            with pytest.raises(leaselock.StoreError):
                client.locks()

        thread = threading.Thread(target=connect)
        thread.start()
        accepted, _ = silent.accept()
        assert connected_to(port) == 1
        eventually(lambda: in_a_child(port) == 0)
        silent.close()
        accepted.close()
        client.close()
        thread.join()
