"""Connections that wait: how many, and for how long."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from testkit.servers.process import eventually
from tests.web.serving import served

import leaselock
from leaselock._web import connections
from leaselock._web.sparse_log import PAUSE, SparseLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 120.0
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """A connection to the page."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), LIMIT) as one:
        yield one


def status(one: socket.socket) -> bytes:
    """The status of a response, as it begins."""
    return one.recv(12, socket.MSG_WAITALL)[-3:]


def was_closed(one: socket.socket) -> bool:
    """Read until the server closes it."""
    try:
        while one.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_the_limit_of_viewers_is_exact(tmp_path: Path) -> None:
    most, asked = 5, 20
    store = f"sqlite:///{tmp_path}/locks.db"
    with (
        served(lambda: leaselock.AsyncClient(store), most_viewers=most) as url,
        contextlib.ExitStack() as stack,
    ):
        viewers = [stack.enter_context(connected(url)) for _ in range(asked)]
        for one in viewers:
            one.sendall(GET % b"/api/events")
        found = [status(one) for one in viewers]
        assert (found.count(b"200"), found.count(b"503")) == (most, asked - most)
        # The place of one that left is free again.
        viewers[found.index(b"200")].close()

        def accepted() -> bool:
            with connected(url) as one:
                one.sendall(GET % b"/api/events")
                return status(one) == b"200"

        eventually(accepted)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nX-",
        GET % b"/healthz" + b"G",  # after a response
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
        b"POST /api/break HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer the-token\r\n"
        b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_end_is_closed(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT", 0.2)
    monkeypatch.setattr("leaselock._web.application.BODY_TIMEOUT", 0.2)
    store = f"sqlite:///{tmp_path}/locks.db"
    with (
        served(lambda: leaselock.AsyncClient(store), break_token="the-token") as url,
        connected(url) as one,
    ):
        one.sendall(sent)
        assert was_closed(one)


def test_a_viewer_that_does_not_read_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_TIMEOUT", 0.2)
    store = f"sqlite:///{tmp_path}/locks.db"
    with served(lambda: leaselock.AsyncClient(store), interval=0.0) as url, connected(url) as one:
        one.sendall((GET % b"/page.js") * 2_000)  # more than the buffers of both ends hold
        ended = select.poll()
        ended.register(one, select.POLLHUP | select.POLLERR)
        assert ended.poll(LIMIT * 1000)


def test_warnings_that_others_cause_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = SparseLog(lambda: now[0])
    for _ in range(1_000):
        log.warning("refused %s", "a")
    now[0] = PAUSE
    log.warning("refused %s", "b")
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["refused a", "refused b (and 999 times before)"]
