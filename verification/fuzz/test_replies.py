"""Any replies of servers: each request ends with an answer or with an error of the library."""

from __future__ import annotations

import contextlib
import json
import math
import zlib
from typing import TYPE_CHECKING, Any

import hiredis
from hypothesis import strategies as st
from verification.fuzz.properties import holds
from verification.fuzz.test_text import JSON
from verification.models.redis_runner import Runner

from leaselock._backends.redis.records import held_of, waiter_of
from leaselock._backends.redlock.master import RaiseToken, ReleaseGrant
from leaselock._backends.zookeeper.data import read
from leaselock._backends.zookeeper.paths import decoded, encoded
from leaselock._backends.zookeeper.queue_order import (
    KAZOO,
    entries_of,
    in_order,
    incompatible,
    position_of,
)
from leaselock._core.client.inspection import holder_of
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Claim,
    Doctor,
    HoldRecord,
    Inspect,
    Release,
    Renew,
    SetLifetime,
)
from leaselock.errors import OutcomeUnknown, StoreError
from leaselock.testing.record_format import RECORD_SIZE, CorruptHistory, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.redis.messages import Address, Send

TIME = st.floats(0, 2**32)
# Ours, kazoo's and Curator's, and what is nearly that.
MARK = st.sampled_from(
    ["__lock__", "-lock-", "lock-", "-lock--", "_c_", "%2E", "%ff", "%", "/", ""]
)
DIGITS = st.sampled_from(["0000000007", "2147483647", "-2147483648", "9999999999", "7"])
NODE = st.tuples(st.text(max_size=4), MARK, DIGITS | st.text(max_size=4)).map("".join)
UTF16 = (JSON | st.just({"since": 1, "id": "a"})).map(json.dumps).map(lambda t: t.encode("utf-16"))
CLAIM = Claim("a", "0" * 32 + ":1", "0" * 32, 1.0, "{}", 1.0)
REQUESTS = (
    Acquire(CLAIM, False),
    Acquire(CLAIM, True),
    Renew((CLAIM,)),
    Release(CLAIM, True),
    ReleaseGrant(CLAIM, 1),
    RaiseToken(CLAIM, 1),
    SetLifetime(CLAIM, "lease"),
    Inspect(None, "*"),
    Inspect("a", "*"),
    BreakLock("a", 1),
    Doctor(),
)
URLS = ("redis://h", "redis+sentinel://h/main", "redis+cluster://h", "redis://h?replicas=1")
FORMS = ("hash", "string", "vote", "setnx-expire", "getset", "setnx", "incr")
# What these replies are made of when they make sense, and what is nearly that.
WORD = st.sampled_from(
    [
        *(b"", b"0", b"1", b"-1", b"master", b"localhost", b"7000", b"\xff", "\xb2".encode()),
        *(
            b"1" * 20,
            b"9" * 400,
            b"9" * 5000,
            b"nan",
            b"inf",
            b"OK",
            b"a:1",
            b"leaselock:queue:{lock:a}",
        ),
        *(b"1\nlease\n9\n0:1\n\n5\n1\n{}", b"1\nboth\n\xc2\xb2\n\n\n\n\n", b"0:1\n\n5\n1e999\n{}"),
        *(b"redis_version:7.\xc2\xb2\nrole:master", b"a:\n:b\nmaxmemory:x"),
    ]
)
ERROR = st.sampled_from(
    [
        "ERR",
        "",
        "MOVED",
        "MOVED 1",
        "MOVED x h:1",
        "MOVED 1 h:x",
        "ASK 1 [::1]:1",
        "ASK",
        "NOSCRIPT",
    ]
).map(hiredis.ReplyError)
NUMBER = st.sampled_from([0, 1, -1, 2, 3, 16383, 2**62, 10**30]) | st.integers()
ATOM = st.none() | st.booleans() | NUMBER | st.floats() | WORD | st.binary(max_size=8) | ERROR
REPLY = st.recursive(
    ATOM,
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(WORD, inner, max_size=2),
    max_leaves=12,
)
PLACE = st.tuples(WORD | st.none(), NUMBER).map(list)
SLOTS = st.lists(st.tuples(NUMBER, NUMBER, PLACE | REPLY).map(list), max_size=3)
SHAPED = st.tuples(NUMBER, NUMBER, NUMBER, WORD, WORD, WORD).map(list)
ROLE = st.lists(WORD, min_size=1, max_size=3)
REPLIES = st.lists(REPLY | SLOTS | SHAPED | ROLE | WORD, min_size=1, max_size=12)


def answering(replies: list[Any]) -> Callable[[Address, Send], list[Any]]:
    """Answers without a server: these are the replies, over and over, until enough is asked."""
    turn = 0

    def answer(address: Address, message: Send) -> list[Any]:
        nonlocal turn
        if turn > 100:
            raise OutcomeUnknown("no more")
        turn += message.count
        return [replies[(turn + i) % len(replies)] for i in range(message.count)]

    return answer


@holds(
    url=st.sampled_from(URLS),
    form=st.sampled_from(FORMS),
    request=st.sampled_from(REQUESTS),
    replies=REPLIES,
)
def test_any_reply_of_redis_is_understood_or_is_an_error_of_ours(
    url: str, form: str, request: Any, replies: list[Any]
) -> None:
    if isinstance(request, (RaiseToken, ReleaseGrant)) and form not in ("hash", "string", "vote"):
        return
    for shared in (False, True):
        runner = Runner(url, answering(replies), shared=shared)
        backend = runner.store.backend(form)
        with contextlib.suppress(StoreError):
            runner.run(backend.request(request, 0.0))


@holds(owner=WORD, record=WORD | st.binary(), left=NUMBER)
def test_any_record_of_redis_is_a_holder_or_a_stranger(
    owner: bytes, record: bytes, left: int
) -> None:
    held = held_of(owner, record, left)
    assert held is None or held.token >= 0
    waiter = waiter_of("a", record)
    assert waiter is None or (waiter.lease >= 0 and math.isfinite(waiter.since))


@holds(data=st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode) | UTF16, created=TIME)
def test_any_data_of_a_node_is_a_holder(data: bytes, created: float) -> None:
    record = read(data, created)
    held = HoldRecord("h", "c", "client", 1, 0.0, record.metadata, record.since)
    assert math.isfinite(record.since)
    assert holder_of(held, None) is not None


@holds(nodes=st.lists(NODE, max_size=6), owner=NODE)
def test_any_names_of_nodes_are_a_queue(nodes: list[str], owner: str) -> None:
    queue = in_order(nodes)
    assert {one.node for one in queue} <= {*nodes}
    assert {one.node for one in entries_of(nodes, owner)} <= {*nodes}
    position = position_of(nodes, owner)
    assert position is None or position.entry.owner == owner
    incompatible(nodes, KAZOO)
    for node in nodes:
        name = decoded(node)
        assert name is None or encoded(name) == node


@holds(data=st.binary(min_size=RECORD_SIZE, max_size=RECORD_SIZE), valid=st.booleans())
def test_any_history_record_is_an_event_or_corrupt(data: bytes, valid: bool) -> None:
    if valid:
        data = data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")
    with contextlib.suppress(CorruptHistory):
        assert unpack(data).pack() == data
