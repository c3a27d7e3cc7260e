"""How long a connection may take."""

from __future__ import annotations

import socket
import time

import pytest

import leaselock
from leaselock._backends.addresses import time_per_address

OP_TIMEOUT = 1.0


def unanswered() -> tuple[socket.socket, list[socket.socket]]:
    """A socket that accepts no connection: its queue is full."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    queued = []
    for _ in range(3):
        queued.append(socket.socket())
        queued[-1].setblocking(False)
        queued[-1].connect_ex(listening.getsockname())
    return listening, queued


@pytest.mark.timing
@pytest.mark.parametrize("scheme", ["redis", "mysql"])
def test_connect_to_a_host_with_several_addresses_keeps_its_time(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, queued = unanswered()
    port = listening.getsockname()[1]
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [address] * 5)
    url = f"{scheme}://several.example:{port}/0"
    with leaselock.Client(url, op_timeout=OP_TIMEOUT) as client:
        began = time.monotonic()
        with pytest.raises(leaselock.StoreError):
            client.lock("a").acquire(timeout=0)
        assert time.monotonic() - began < 5 * OP_TIMEOUT / 2
    for each in (listening, *queued):
        each.close()


def test_addresses_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [None] * 5)
    assert time_per_address("several.example", 1, 1.0) == 0.2


def test_a_host_that_cannot_be_found_is_left_to_the_client_library() -> None:
    assert time_per_address("no.such.host.invalid", 1, 1.0) == 1.0
