"""The errors by which servers answer: what each says of the lock, and that none is mistaken.

Invariant: an error reply means that nothing was done, and is `NotApplied`, unless it is the
end of the connection; what passes by itself is asked again, as long as there is time.
"""

from __future__ import annotations

import pytest
from verification.fuzz import test_database_lines as databases
from verification.fuzz import test_lines as lines
from verification.fuzz.hostile import Piece
from verification.fuzz.hostile_sql import READY, message, packet

from leaselock._backends.redis.blocking import BlockingConnection
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.executor import ADVICE, TEMPORARY
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.backend import Grant
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads
from leaselock.errors import NotApplied, OutcomeUnknown

TIMEOUT = 30.0
BRIEF = 1.0
# The exception for each state or number (hazard D14).
POSTGRES = {
    "42501": "lacks a right",
    "42P01": "run `leaselock setup",
    "53200": "has no memory",
    "25006": "is a standby",
    "40001": "was in the way of others, ten times",
    "XX000": "has failed",
}
MYSQL = {
    1142: "lacks a right",
    1146: "run `leaselock setup",
    1037: "has no memory",
    1290: "may not be written to",
    1213: "was in the way of others, ten times",
}
# The session, and whatever it had begun, is over.
ENDED_POSTGRES, ENDED_MYSQL = ("57P01", "57P02", "57P03"), (1053, 1927, 4031)


def asked_redis(pieces: list[Piece], timeout: float) -> tuple[object, int]:
    """What one question comes to, and how often the server was asked."""
    server = lines.server()
    server.play(pieces)
    store = RedisStore(settings_of(server.url), now, BlockingConnection)
    driver = Threads((store,))

    async def acquire() -> object:
        until = now() + timeout
        return await store.backend("hash").acquire(lines.CLAIMS[0], wait=True, until=until)

    try:
        return driver.run(acquire()), server.turn
    except NotApplied as error:
        return error, server.turn
    finally:
        driver.close()


def error(code: str) -> Piece:
    """As Redis says it."""
    return Piece("raw", f"-{code} it is so\r\n".encode())


# One server that only reads, or is part of a cluster, stays so: behind sentinels and in a cluster
# another one is asked.
LASTING = {"READONLY", "MASTERDOWN", "CLUSTERDOWN"}


@pytest.mark.parametrize("code", sorted(LASTING))
def test_what_does_not_pass_on_one_server_is_refused_at_once(code: str) -> None:
    answer, turns = asked_redis([error(code)], TIMEOUT)
    assert isinstance(answer, NotApplied)
    assert answer.reason == "misconfigured"
    assert turns <= 2


@pytest.mark.parametrize("code", sorted(TEMPORARY - {"MOVED", "ASK"} - LASTING))
def test_what_passes_in_redis_is_asked_again(code: str) -> None:
    answer, turns = asked_redis([error(code), error(code), Piece("grant")], TIMEOUT)
    assert isinstance(answer, Grant)
    assert turns == 3


@pytest.mark.parametrize("code", ["LOADING", "BUSY"])
def test_what_does_not_pass_in_time_is_refused(code: str) -> None:
    answer, turns = asked_redis([error(code)], BRIEF)
    assert isinstance(answer, NotApplied)
    assert code in str(answer)
    assert turns > 1


@pytest.mark.parametrize("code", [*sorted(ADVICE), "ERR", "EXECABORT", "NEWCODE", "READONL"])
def test_an_error_that_the_user_must_fix_is_raised_at_once(code: str) -> None:
    answer, turns = asked_redis([error(code)], TIMEOUT)
    assert isinstance(answer, NotApplied)
    assert code in str(answer)
    assert ADVICE.get(code, "") in str(answer)
    # Once in brief, and once in full.
    assert turns == 2


def said(kind: str, code: object) -> Piece:
    """As a database says it."""
    if kind == "postgres":
        return Piece("raw", message(b"E", f"SERROR\0C{code}\0Mso\0\0".encode()) + READY)
    assert isinstance(code, int)
    return Piece("raw", packet(1, b"\xff" + code.to_bytes(2, "little") + b"#HY000it is so"))


@pytest.mark.parametrize("protocol", ["lease", "row", "advisory"])
@pytest.mark.parametrize(
    ("kind", "code"), [*(("postgres", c) for c in POSTGRES), *(("mysql", c) for c in MYSQL)]
)
def test_what_a_database_refuses_was_not_done(kind: str, code: object, protocol: str) -> None:
    databases.server(kind).play([said(kind, code)])
    for answered in databases.answers(kind, databases.asking(protocol)[:1], TIMEOUT):
        (answer,) = answered
        assert isinstance(answer, NotApplied)
        assert str(code) in str(answer) or "leaselock setup" in str(answer)


@pytest.mark.parametrize(
    ("kind", "code"),
    [*(("postgres", c) for c in ENDED_POSTGRES), *(("mysql", c) for c in ENDED_MYSQL)],
)
def test_the_end_of_a_session_says_nothing_of_what_was_done(kind: str, code: object) -> None:
    databases.server(kind).play([said(kind, code)])
    for protocol in ("lease", "row", "advisory"):
        for answered in databases.answers(kind, databases.asking(protocol)[:1], TIMEOUT):
            assert [type(answer) for answer in answered] == [OutcomeUnknown]
