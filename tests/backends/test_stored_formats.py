"""The shape of what each store keeps: a change of it raises the number of the layout.

The tables of SQL and SQLite are in tests/core/test_layout.py. A line is a key, or a field, with
numbers as N, ids as ID, and the metadata of a claim, which is for people, left out.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from verification.models.sides import claim_of

import leaselock
from leaselock._backends.document.content import LAYOUT as DOCUMENT
from leaselock._backends.document.content import Content, Held, encoded
from leaselock._backends.redis.layout_marker import LAYOUT as REDIS
from leaselock._backends.zookeeper.data import written
from leaselock._backends.zookeeper.layout_marker import LAYOUT as ZOOKEEPER
from leaselock._backends.zookeeper.paths import QUEUE, owner_of, path_of
from leaselock._backends.zookeeper.queue_order import KAZOO, KAZOO_READ
from leaselock._core.contract.backend import HoldRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

ADVICE = "what is stored has changed: raise the number of the layout, and write the new shape here"
SHAPES: dict[str, Any] = {
    "redis hash 1": [
        "leaselock:active::lock: has lock:a",
        "leaselock:active::lock: has lock:r",
        "leaselock:active::lock: has lock:s",
        "leaselock:layout:{lock:} = N",
        "leaselock:limit:{lock:s} = N",
        "leaselock:queue:{lock:a} has OWNER|ID|N|N|METADATA",
        "lock:a OWNER = N",
        "lock:a about:OWNER = N|either|N|OWNER|ID|N|N|METADATA",
        "lock:a mode = exclusive",
        "lock:r OWNER = N",
        "lock:r about:OWNER = N|either|N|OWNER|ID|N N shared N N|N|METADATA",
        "lock:r mode = shared",
        "lock:r next_end = N",
        "lock:r used = N",
        "lock:s OWNER = N",
        "lock:s about:OWNER = N|either|N|OWNER|ID|N N permits N N|N|METADATA",
        "lock:s limit = N",
        "lock:s mode = permits",
        "lock:s next_end = N",
        "lock:s used = N",
        "redisson_lock_token:{lock:a} = N",
        "redisson_lock_token:{lock:r} = N",
        "redisson_lock_token:{lock:s} = N",
    ],
    "redis string 1": [
        "leaselock:active::lock: has lock:a",
        "leaselock:holder:{lock:a} = N|either|N|OWNER|ID|N|N|METADATA",
        "leaselock:layout:{lock:} = N",
        "leaselock:queue:{lock:a} has OWNER|ID|N|N|METADATA",
        "lock:a = OWNER",
        "redisson_lock_token:{lock:a} = N",
    ],
    "document 1": {
        "v": "str",
        "n": "int",
        "by": "str",
        "at": "float",
        "token": "int",
        "limit": "int",
        "lapsed_offer": "int",
        "holds": [
            {
                "id": "str",
                "client": "str",
                "token": "int",
                "beat": "int",
                "lasts": "float",
                "since": "float",
                "metadata": "str",
                "free": "float",
                "stamp": "float",
                "mode": "str",
                "permits": "int",
                "lifetime": "str",
                "step": "int",
                "offered": "bool",
            }
        ],
        "queue": [
            {
                "id": "str",
                "client": "str",
                "beat": "int",
                "lease": "float",
                "since": "float",
                "metadata": "str",
                "mode": "str",
                "permits": "int",
                "min_hold": "float",
                "aligned": "bool",
            }
        ],
    },
    "zookeeper 1": [
        "/leaselock/a%2Fb",
        "-__lock__",
        "__lock__",
        "__rlock__",
        "00000000000000000000000000000000-1",
        "host",
        "since",
        "id",
        "token",
        "waits_for",
        "permits",
    ],
}


def shape(text: str) -> str:
    """A text without what differs from one run to the next."""
    text = re.sub(r'\{".*\}', "METADATA", text, flags=re.DOTALL)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+", "OWNER", text)
    text = re.sub(r"[0-9a-f]{32}[:-]?\d*", "ID", text)
    return re.sub(r"\d+(\.\d+)?", "N", text).replace("\n", "|")


def lines_of(server: Redis) -> Iterator[str]:
    """What a server keeps."""
    for key in sorted(server.ask("KEYS", "*")):
        kind = server.ask("TYPE", key)
        name = shape(key)
        if kind == "hash":
            fields = server.ask("HGETALL", key)
            for field, value in sorted(zip(fields[::2], fields[1::2], strict=True)):
                yield f"{name} {shape(field)} = {shape(value)}"
        elif kind == "zset":
            for member in server.ask("ZRANGE", key, 0, -1):
                yield f"{name} has {shape(member)}"
        else:
            yield f"{name} = {shape(server.ask('GET', key))}"


@pytest.mark.parametrize("form", ["hash", "string"])
def test_redis(form: str) -> None:
    with Redis() as server, leaselock.Client(f"{server.url}?protocol={form}") as client:
        waiter = threading.Thread(target=lambda: client.lock("a", timeout=60).acquire().release())
        with client.lock("a"):
            waiter.start()
            eventually(lambda: client.lock("a").waiters())
            if form == "hash":
                client.rwlock("r").read.acquire()
                client.semaphore("s", 3, numbered=True).acquire()
            found = sorted(lines_of(server))
        waiter.join()
    assert found == SHAPES[f"redis {form} {REDIS.version}"], ADVICE


def fields_of(value: Any) -> Any:
    """The names of the fields of a document."""
    if isinstance(value, dict):
        return {field: fields_of(content) for field, content in value.items()}
    return [fields_of(each) for each in value] if isinstance(value, list) else type(value).__name__


def test_documents() -> None:
    claim = claim_of("0" * 32, "a", 1, 30.0)._replace(
        mode="permits", permits=2, min_hold=1.0, aligned=True, last_seen=7
    )
    record = HoldRecord(claim.id, claim.client, "lease", 5, 0.0, "{}", 1.0)
    record = record._replace(mode="permits", permits=2, step=1, offered=True)
    content = Content(1, "x", 1.0, 5, 3, 2, (Held(record, 7, 30.0, 1.0, 2.0),), (claim,))
    found = fields_of(json.loads(encoded(content)))
    assert found == SHAPES[f"document {DOCUMENT.version}"], ADVICE


def test_zookeeper() -> None:
    claim = claim_of("0" * 32, "a/b", 1, 30.0)._replace(metadata='{"host": "x"}')
    data = written(claim, owner_of(claim.id), token=1, waits_for=2, permits=3)
    found = [path_of("/leaselock", claim.name), QUEUE, KAZOO, KAZOO_READ]
    found += [owner_of(claim.id), *json.loads(data)]
    assert found == SHAPES[f"zookeeper {ZOOKEEPER.version}"], ADVICE
