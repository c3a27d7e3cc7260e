"""What comes over a connection, byte by byte: an answer in time or an error of ours, and no grant
that the server did not give to the very claim.
"""

from __future__ import annotations

import asyncio
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import strategies as st
from verification.fuzz.hostile import BUSY, HELLO, POLITE, Hostile, Piece, pushed
from verification.fuzz.properties import holds
from verification.fuzz.test_replies import FORMS

from leaselock._backends.redis.blocking import BlockingConnection
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.keys import owner_of
from leaselock._backends.redis.multiplexed import MultiplexedConnection
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.backend import Acquire, Claim, Doctor, Grant, Inspect, Renew
from leaselock._drivers.aio import Aio
from leaselock._drivers.threads import Threads
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._backends.redis.backend import RedisBackend


class AwaitWakeup(NamedTuple):
    """Wait until a message for the claim has arrived since its last acquire request."""

    claim: Claim


TIMEOUT = 0.15
# How much later an answer may come on a machine with much else to do.
SLACK = 5.0
CLAIMS = [Claim("a", f"{n:032x}:{n}", f"{n:032x}", 1.0, "{}", 1.0) for n in range(1, 4)]
WAITS = (Acquire(CLAIMS[0], True), AwaitWakeup(CLAIMS[0]))
RESP = st.sampled_from(
    [
        *(b"*2\r\n", b":1\r\n", b"$4\r\n1000\r\n", b"+OK\r\n", b"-ERR no\r\n", b"-MOVED 1 :1\r\n"),
        *(b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"%1\r\n", b"~1\r\n", b"|1\r\n", b">3\r\n", b"\r\n"),
        *(b"(9999999999999999999999\r\n", b"#t\r\n", b"=5\r\ntxt:a\r\n", b"*100000\r\n"),
        *(b"$7\r\nmessage\r\n", b"$9\r\nsubscribe\r\n", b"$11\r\nunsubscribe\r\n", b",nan\r\n"),
        *(b"$99999999999\r\n", b"*1\r\n" * 50, b"-LOADING\r\n", b"-NOSCRIPT\r\n", BUSY, b"\0"),
    ]
)
MUTATED = st.builds(
    lambda at, cut, put: BUSY[:at] + put + BUSY[at + cut :],
    st.integers(0, len(BUSY)),
    st.integers(0, 6),
    st.binary(max_size=4) | RESP,
)
WORD = st.binary(max_size=9) | RESP
MESSAGE = st.builds(pushed, st.just(b"message"), WORD, WORD)
BYTES = st.lists(RESP | MUTATED | MESSAGE | st.binary(max_size=6), max_size=5).map(b"".join)
RAW = st.builds(Piece, st.sampled_from(["raw", "raw", "end"]), BYTES)
# Sound answers at the wrong time, twice, in halves, or behind a message.
KINDS = st.sampled_from(["grant", "grant", "busy", "busy", "half", "twice", "late", "end"])
SOUND = st.builds(Piece, KINDS, st.just(b"") | MESSAGE)
REQUESTS = st.lists(
    st.sampled_from([*WAITS, *WAITS, Acquire(CLAIMS[1], False), Renew(CLAIMS), Inspect(None, "*")])
    | st.just(Doctor()),
    min_size=1,
    max_size=4,
)


@cache
def server() -> Hostile:
    """The one of this process."""
    return Hostile()


async def carried_out(backend: RedisBackend, request: Any, until: float) -> object:
    """The answer to any request."""
    if isinstance(request, AwaitWakeup):
        return await backend.await_wakeup(request.claim, until)
    return await backend.request(request, until)


def asked(form: str, requests: Sequence[object]) -> list[object]:
    """What each request comes to: an answer, or an error of ours."""
    store = RedisStore(settings_of(server().url), monotonic, BlockingConnection)
    driver, backend = Threads((store,)), store.backend(form)
    answers: list[object] = []
    for request in requests:
        began = monotonic()
        try:
            answers.append(driver.run(carried_out(backend, request, began + TIMEOUT)))
        except StoreError as error:
            answers.append(error)
        assert monotonic() < began + TIMEOUT + SLACK
    driver.close()
    return answers


def awaited(form: str, requests: Sequence[object], *, at_once: bool = True) -> list[object]:
    """The same of tasks, which ask at the same time, or of one."""

    async def one(driver: Aio, backend: RedisBackend, request: object) -> object:
        began = monotonic()
        try:
            return await driver.run(carried_out(backend, request, began + TIMEOUT))
        except StoreError as error:
            return error
        finally:
            assert monotonic() < began + TIMEOUT + SLACK

    async def all_of_them() -> list[object]:
        store = RedisStore(settings_of(server().url), monotonic, MultiplexedConnection)
        driver, backend = Aio((store,)), store.backend(form)
        try:
            if at_once:
                return await asyncio.gather(*(one(driver, backend, each) for each in requests))
            return [await one(driver, backend, each) for each in requests]
        finally:
            await driver.close()

    return asyncio.run(all_of_them())


def awaited_by_one(form: str, requests: Sequence[object]) -> list[object]:
    """By one task."""
    return awaited(form, requests, at_once=False)


@holds(
    20,
    form=st.sampled_from(FORMS),
    requests=REQUESTS,
    pieces=st.lists(RAW | SOUND, min_size=1, max_size=4),
    polite=st.sampled_from([POLITE, POLITE, ("HELLO",), ()]),
)
def test_any_bytes_are_an_answer_or_an_error_of_ours_in_time(
    form: str, requests: list[object], pieces: list[Piece], polite: tuple[str, ...]
) -> None:
    for ask in asked, awaited, awaited_by_one:
        server().play(pieces, polite)
        ask(form, requests)


@holds(20, pieces=st.lists(SOUND, min_size=1, max_size=5), turns=st.integers(1, 2))
def test_only_a_grant_of_the_own_claim_is_accepted(pieces: list[Piece], turns: int) -> None:
    requests = [Acquire(claim, True) for claim in CLAIMS] * turns
    for ask in asked, awaited:
        if ask is awaited:
            # On the line that tasks share, what comes twice is the answer to the next question.
            pieces = [piece for piece in pieces if piece.kind != "twice"] or [Piece("busy")]
        server().play(pieces)
        for request, answer in zip(requests, ask("hash", requests), strict=True):
            if isinstance(answer, Grant):
                assert (owner_of(request.claim.id), answer.token) in server().granted


def await_wakeup(word: bytes) -> None:
    """Send that to a waiter, alone and as part of a message."""
    owner = owner_of(CLAIMS[0].id).encode()
    for said in (word, *(owner + b"\n" + rest for rest in (word, b"7\n" + word, word + b"\n7"))):
        for ask in asked, awaited_by_one:
            server().play([Piece("busy"), Piece("tell", pushed(b"message", b"a", said))])
            ask("hash", WAITS)


@holds(5, word=st.binary(max_size=9) | st.text(st.characters(categories=["N"])).map(str.encode))
def test_any_message_is_a_hint_or_nothing(word: bytes) -> None:
    await_wakeup(word)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_message_of_a_number_that_is_none(digits: int) -> None:
    await_wakeup(b"9" * digits)


@pytest.mark.parametrize("kind", ["*", "~", "%", ">"])
def test_a_reply_that_announces_millions_of_parts_is_none(kind: str) -> None:
    for ask in asked, awaited:
        server().play([Piece("raw", f"{kind}1000000000\r\n".encode())])
        (answer,) = ask("hash", WAITS[:1])
        assert isinstance(answer, StoreError)


@pytest.mark.parametrize("how", ["raw", "drip"])
def test_a_server_that_says_little_or_nothing_is_given_up_in_time(how: str) -> None:
    for ask in asked, awaited:
        server().play([Piece(how, HELLO[:6] if how == "drip" else b"")], polite=())
        (answer,) = ask("hash", WAITS[:1])
        assert isinstance(answer, StoreError)
