"""What comes over a connection to a database, byte by byte: an answer in time or an error of ours,
and no grant that the server did not give to the very claim.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import strategies as st
from verification.fuzz.hostile import Piece
from verification.fuzz.hostile_sql import (
    HELLO,
    POLITE,
    READY,
    WELCOME,
    Database,
    MysqlLike,
    PostgresLike,
    cell,
    column,
    done,
    field,
    message,
    packet,
)
from verification.fuzz.properties import holds

from leaselock._backends.sql import notification_listener
from leaselock._backends.sql.store import SqlStore, store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import (
    Acquire,
    Claim,
    Doctor,
    Grant,
    Inspect,
    Listen,
    Release,
    Renew,
)
from leaselock._core.contract.effects import Signal
from leaselock._drivers.aio import Aio
from leaselock._drivers.threads import Threads
from leaselock.errors import OutcomeUnknown, StoreError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class By(NamedTuple):
    """A request by protocol "row" or "advisory"."""

    protocol: str
    request: Any


class Await(NamedTuple):
    """Let the claim wait in the server."""

    claim: Claim


TIMEOUT = 0.1
# How much later an answer may come on a machine with much else to do.
SLACK = 5.0
CLAIMS = [Claim("a", f"{n:032x}:{n}", f"{n:032x}", 1.0, "{}", 1.0) for n in range(1, 4)]
KINDS = ("postgres", "mysql")
LEASE: list[Any] = [
    *(Acquire(CLAIMS[0], True), Acquire(CLAIMS[1], False), Renew(CLAIMS), Release(CLAIMS[0], True)),
    *(Inspect(None, "*"), Doctor(), Listen(CLAIMS[0].client, Signal())),
]
SEATED = (Acquire(CLAIMS[0], True), Await(CLAIMS[0]), Acquire(CLAIMS[0], False), Renew(CLAIMS[:1]))
SEATS = [
    By(protocol, request)
    for protocol in ("row", "advisory")
    for request in (*SEATED, Release(CLAIMS[0], False), Inspect(None, "*"))
]
LENGTHS = st.sampled_from([0, 1, 3, 4, 5, 255, 2**16, 2**31 - 1, -1]) | st.integers(-9, 99)
WORDS = st.binary(max_size=12) | st.sampled_from(
    [b"a\0", b"\0" * 8, b"\0\1" + b"\xff" * 4, b"UPDATE 1\0", b"SC57P01\0Mx\0\0", b"\0\0\0\x0a"]
)
POSTGRES = st.one_of(
    st.builds(message, st.sampled_from([bytes([n]) for n in b"TDCZENARSKGHWdcIVtnv1"]), WORDS),
    st.builds(lambda kind, size: kind + struct.pack("!i", size), st.binary(min_size=1), LENGTHS),
    st.sampled_from([b"S", b"N", message(b"Z", b"T"), message(b"G", b"\0\0\0")]),
)
FIRST = st.sampled_from(
    [b"\0", b"\xff\x15\x04#42000no", b"\xfe", b"\xfb/etc/passwd", b"\x01", b"\xfc"]
)
MYSQL = st.one_of(
    st.builds(lambda n, first, word: packet(n, first + word), st.integers(0, 4), FIRST, WORDS),
    st.builds(
        lambda size, n: struct.pack("<I", size)[:3] + bytes([n]),
        st.integers(0, 2**24 - 1),
        st.integers(0, 3),
    ),
    st.sampled_from([packet(1, b"\xfe\0\0\x0a\0"), packet(1, b"\xfe" + b"\xff" * 8)]),
)
BYTES = st.lists(POSTGRES | MYSQL | st.binary(max_size=6), max_size=5).map(b"".join)
RAW = st.builds(Piece, st.sampled_from(["raw", "end", "end"]), BYTES)
CHANGED = st.builds(Piece, st.just("changed"), st.binary(min_size=3, max_size=9))
# Sound answers at the wrong time, twice, or in halves.
SOUND = st.sampled_from(["grant", "grant", "busy", "busy", "half", "twice", "late", "end"]).map(
    Piece
)
MANNERS = st.sampled_from([POLITE, POLITE, POLITE, ("START",), ()])

# What a word is to PostgreSQL's client, and to MySQL's, at which theirs or ours once failed.
ROW = message(b"T", b"\0\1" + field(20)) + message(b"D", b"\0\1" + cell("x"))
NONSENSE = (
    [message(b"G", b"\0\0\0"), message(b"H", b"\0\0\0"), ROW + message(b"C", b"S\0") + READY],
    [
        packet(1, b"\xfb/etc/passwd"),
        packet(9, done()),
        packet(1, b"\1") + packet(2, column(int)) + packet(3, b"x"),
        packet(1, b"\1") + packet(2, column(int)) + packet(3, b"\xfe\0\0\2\0") + packet(4, b"\1x"),
    ],
)
WELCOMES = {"postgres": WELCOME, "mysql": packet(0, HELLO)}


@cache
def server(kind: str) -> Database:
    """The one of this process."""
    made = PostgresLike() if kind == "postgres" else MysqlLike()
    made.holders = [claim.id for claim in CLAIMS]
    return made


def process_of(store: SqlStore, request: Any, until: float) -> Any:
    """The process that carries out a request."""
    if isinstance(request, Listen):
        return store.listener.listen(request.client)
    if not isinstance(request, By):
        return store.request(request, until)
    sessions, (protocol, asked) = store.sessions, request
    if isinstance(asked, Acquire):
        return sessions.acquire(protocol, asked, until)
    if isinstance(asked, Await):
        return sessions.wait(asked.claim, until)
    if isinstance(asked, Release):
        return sessions.release(asked.claim, until)
    if isinstance(asked, Renew):
        return sessions.renew(asked.claims, until)
    return sessions.inspect(protocol, asked, until)


def asked(kind: str, requests: Sequence[object], timeout: float) -> list[object]:
    """The result of each request in a thread: an answer, or an error of the library."""
    store = store_of(parsed(server(kind).url + "/d"), monotonic)
    driver = Threads((store,))
    answers: list[object] = []
    for request in requests:
        began = monotonic()
        # Listening has no deadline of its own.
        timer = threading.Timer(timeout, driver.run_step, (store.listener.wake,))
        timer.start()
        try:
            answers.append(driver.run(process_of(store, request, began + timeout)))
        except StoreError as error:
            answers.append(error)
        finally:
            timer.cancel()
        assert monotonic() < began + timeout + SLACK
    driver.close()
    return answers


def awaited(kind: str, requests: Sequence[object], timeout: float) -> list[object]:
    """The same in tasks, at the same time; requests of one claim's connection one by one."""
    at_once = not any(isinstance(request, By) for request in requests)

    async def one(driver: Aio, store: SqlStore, request: object) -> object:
        began = monotonic()
        try:
            return await driver.run(process_of(store, request, began + timeout))
        except StoreError as error:
            return error
        finally:
            assert monotonic() < began + timeout + SLACK

    async def all_of_them() -> list[object]:
        store = store_of(parsed(server(kind).url + "/d"), monotonic, aio=True)
        driver = Aio((store,))
        asyncio.get_running_loop().call_later(timeout, store.listener.wake)
        try:
            asking = [one(driver, store, request) for request in requests]
            if at_once:
                return await asyncio.gather(*asking)
            return [await answer for answer in asking]
        finally:
            await driver.close()

    return asyncio.run(all_of_them())


def answers(
    kind: str, requests: Sequence[object], timeout: float = TIMEOUT
) -> Iterator[list[object]]:
    """What they come to, by threads and by tasks."""
    with pytest.MonkeyPatch.context() as patch:
        # The listener connects with a timeout of its own.
        patch.setattr(notification_listener, "CONNECT_TIMEOUT", timeout)
        yield from (ask(kind, requests, timeout) for ask in (asked, awaited))


def asking(protocol: str) -> list[Any]:
    """Each claim asks."""
    asks = [Acquire(claim, True) for claim in CLAIMS]
    return asks if protocol == "lease" else [By(protocol, ask) for ask in asks]


@holds(
    12,
    kind=st.sampled_from(KINDS),
    requests=st.lists(st.sampled_from(LEASE) | st.sampled_from(SEATS), min_size=1, max_size=3),
    pieces=st.lists(RAW | CHANGED | SOUND, min_size=1, max_size=4),
    polite=MANNERS,
)
def test_any_bytes_are_an_answer_or_an_error_of_ours_in_time(
    kind: str, requests: list[object], pieces: list[Piece], polite: tuple[str, ...]
) -> None:
    server(kind).play(pieces, polite)
    for answered in answers(kind, requests):
        assert len(answered) == len(requests)


@holds(
    12,
    kind=st.sampled_from(KINDS),
    protocol=st.sampled_from(["lease", "lease", "row", "advisory"]),
    pieces=st.lists(SOUND, min_size=1, max_size=5),
)
def test_only_a_grant_of_the_own_claim_is_accepted(
    kind: str, protocol: str, pieces: list[Piece]
) -> None:
    server(kind).play(pieces)
    for answered in answers(kind, asking(protocol)):
        for claim, answer in zip(CLAIMS, answered, strict=True):
            if isinstance(answer, Grant):
                assert (claim.id, answer.token) in server(kind).granted


@pytest.mark.parametrize("protocol", ["lease", "row", "advisory"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_twice_is_the_answer_to_one(kind: str, protocol: str) -> None:
    requests = asking(protocol)
    server(kind).play([Piece("twice")])
    for answered in answers(kind, requests, SLACK):
        granted = [answer.token for answer in answered if isinstance(answer, Grant)]
        assert granted
        assert len(set(granted)) == len(granted)


@pytest.mark.parametrize("word", NONSENSE[0] + NONSENSE[1])
def test_what_no_server_says_is_not_understood(word: bytes) -> None:
    kind = KINDS[word in NONSENSE[1]]
    for requests in [LEASE[:1], SEATS[:1], SEATS[-1:]]:
        server(kind).play([Piece("raw", word)])
        for answered in answers(kind, requests, SLACK):
            assert [type(answer) for answer in answered] == [OutcomeUnknown]


@pytest.mark.parametrize("how", ["raw", "drip"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_says_little_or_nothing_is_given_up_in_time(kind: str, how: str) -> None:
    server(kind).play([Piece(how, WELCOMES[kind][:40] if how == "drip" else b"")], polite=())
    for answered in answers(kind, LEASE[:1]):
        assert [type(answer) for answer in answered] == [StoreUnreachable]
