"""HTTP as the document stores use it: lines of replies that do not end, dates, broken servers."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import HOST, closed_port
from tests.backends.etcd.etcds import now, soon

from leaselock._backends.document.http import Lines, Pool, Stream, unix_time
from leaselock._backends.url import Host
from leaselock.errors import OutcomeUnknown, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNKED = b"5\r\nab\ncd\r\n1;x=y\r\n\n\r\n9\r\n\xc3\xa4\nlast\ne\r\n0\r\n\r\n"
EXPECTED = [b"ab", b"cd", b"\xc3\xa4", b"last"]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: Mon, 23 Nov 2026 19:18:10 GMT\r\n\r\nhi"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_found_however_they_are_cut(size: int) -> None:
    lines = Lines()
    lines.chunked = True
    found = []
    for start in range(0, len(CHUNKED), size):
        found += lines.feed(CHUNKED[start : start + size])
    assert found == EXPECTED
    assert lines.ended


def test_lines_without_chunks() -> None:
    lines = Lines()
    assert lines.feed(b"ab\nc") == [b"ab"]
    assert lines.feed(b"d\n\n") == [b"cd"]
    assert not lines.ended


def test_the_last_line_of_a_reply_of_known_length_needs_no_end() -> None:
    lines = Lines()
    lines.remaining = 5
    assert lines.feed(b"ab\n") == [b"ab"]
    assert not lines.ended
    assert lines.feed(b"cd") == [b"cd"]
    assert lines.ended


def test_dates() -> None:
    assert unix_time("Thu, 01 Jan 1970 00:01:00 GMT") == 60.0
    assert unix_time("yesterday") is None
    assert unix_time(None) is None


@pytest.fixture
def scripted() -> Iterator[Callable[..., Host]]:
    """Makes a server that sends one of *replies* to each request, and then closes."""
    listeners: list[socket.socket] = []

    def make(*replies: bytes) -> Host:
        listener = socket.create_server((HOST, 0))
        listeners.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for reply in replies:
                    if not connection.recv(65536):
                        return
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        return Host(HOST, listener.getsockname()[1])

    yield make
    for listener in listeners:
        listener.close()


def ask(pool: Pool) -> bytes:
    return pool.request("GET", "/", b"", {}, soon()).body


def test_a_connection_is_kept(scripted: Callable[..., Host]) -> None:
    pool = Pool([scripted(OK, OK)], now)
    reply = pool.request("GET", "/", b"", {}, soon())
    assert reply[:2] == (200, b"hi")
    assert reply.date == unix_time("Mon, 23 Nov 2026 19:18:10 GMT")
    assert ask(pool) == b"hi"
    assert len(pool.open) == 1
    pool.close()
    assert not pool.open


@pytest.mark.parametrize(
    "broken", [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"]
)
def test_a_reply_that_breaks_off_leaves_the_outcome_unknown(
    scripted: Callable[..., Host], broken: bytes
) -> None:
    pool = Pool([scripted(broken)], now)
    with pytest.raises(OutcomeUnknown):
        ask(pool)
    assert not pool.open


def test_after_a_failure_another_server_is_used(scripted: Callable[..., Host]) -> None:
    with closed_port() as port:
        pool = Pool([scripted(b""), Host(HOST, port), scripted(OK)], now)
        pool.current = 0
        with pytest.raises(OutcomeUnknown):
            ask(pool)
        assert ask(pool) == b"hi"
        assert pool.current == 2
        pool.close()
        alone = Pool([Host(HOST, port)], now)
        with pytest.raises(StoreUnreachable, match=f"{HOST}:{port}: Connection refused"):
            ask(alone)


def test_the_end_of_a_stream_is_an_error(scripted: Callable[..., Host]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pool = Pool([scripted(head + CHUNKED)], now)
    stream = Stream(pool, "GET", "/", b"", {}, soon())
    found: list[bytes] = []

    def read_all() -> None:
        while True:
            found.extend(stream.read())

    with pytest.raises(OutcomeUnknown, match="the stream has ended"):
        read_all()
    assert found == EXPECTED
    assert stream.status == 200
    assert not pool.open


def test_a_stream_that_is_an_error_ends_with_its_text(scripted: Callable[..., Host]) -> None:
    reply = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nlost"
    stream = Stream(Pool([scripted(reply, b"")], now), "GET", "/", b"", {}, soon())
    found: list[bytes] = []
    while not found:
        found += stream.read()
    assert (stream.status, found) == (502, [b"lost"])
    with pytest.raises(OutcomeUnknown, match="the stream has ended"):
        stream.read()


def test_an_error_without_a_text_ends_its_stream(scripted: Callable[..., Host]) -> None:
    reply = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    stream = Stream(Pool([scripted(reply, OK)], now), "GET", "/", b"", {}, soon())

    def read_until_the_end() -> None:
        deadline = now() + 5.0
        while now() < deadline:
            stream.read()

    with pytest.raises(OutcomeUnknown, match="the stream has ended"):
        read_until_the_end()


def test_a_host_that_is_not_known(scripted: Callable[..., Host]) -> None:
    pool = Pool([Host("no-such-host.invalid", 1)], now)
    with pytest.raises(StoreUnreachable, match="no-such-host"):
        ask(pool)


def test_a_request_whose_time_is_over_is_not_sent(scripted: Callable[..., Host]) -> None:
    pool = Pool([scripted(OK, OK)], now)
    assert ask(pool) == b"hi"
    with pytest.raises(StoreUnreachable, match="before it was sent"):
        pool.request("GET", "/", b"", {}, now() - 1.0)
    assert len(pool.open) == 1
    pool.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
# The reply up to what arrives byte by byte.
BEGINNINGS = {
    "status": b"HTTP/1.1 200 ",
    "header": HEAD + b"Server: ",
    "body": HEAD + b"Content-Length: 100000\r\n\r\n",
    "size of a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n",
    "trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nDate: ",
}


@pytest.mark.parametrize("part", BEGINNINGS)
def test_a_reply_that_arrives_byte_by_byte_ends_with_the_deadline(part: str) -> None:
    """Each byte must not get the whole time again. The server closes the connection in the end."""
    ended = threading.Event()
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(BEGINNINGS[part])
                for _ in range(100):
                    if ended.wait(0.02):
                        break
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        pool = Pool([Host(HOST, listener.getsockname()[1])], now)
        try:
            with pytest.raises(OutcomeUnknown, match="no answer in time"):
                pool.request("GET", "/", b"", {}, now() + 0.3)
        finally:
            ended.set()
            thread.join()


def test_a_stream_that_is_not_http_is_an_error_of_the_store(scripted: Callable[..., Host]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pool = Pool([scripted(head + b"zz\r\nab\r\n")], now)
    stream = Stream(pool, "GET", "/", b"", {}, soon())

    def read_all() -> None:
        while True:
            stream.read()

    with pytest.raises(OutcomeUnknown, match="no valid reply of HTTP"):
        read_all()
    assert not pool.open
