"""Records that cannot be read: what another program, or a failing disk, may leave in each store.

Each function lists the damages that it can do to one lock. None of them frees the lock, and each
must be shown. A lock has a kind: "held", "waited" (held, and waited for), "readers" or "permits".
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.document.adapter import Stored
from leaselock._backends.kubernetes.objects import DOCUMENT, object_name
from leaselock._backends.redis import keys as names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from leaselock._backends.document.adapter import DocumentStore
    from testkit.servers.cluster import Cluster
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres
    from testkit.servers.redis import Redis

# It only bounds a failure.
LIMIT = 60.0
# What stands in place of a number, and of any text.
NO_NUMBERS = ("", "junk", "-7", "1.5", "nan", "9" * 30, "1\n2", "\N{SNOWMAN}")
JUNK = ("", "junk", "{", "[]", "null", "\n\n\n", "x" * 5000, "\N{SNOWMAN}", "%s'\";--")


class Damage(NamedTuple):
    """One way to damage the records of a lock."""

    what: str
    kinds: tuple[str, ...]
    act: Callable[[str, Random], object]
    """Do it to the lock of this name."""
    refuses: bool = False
    """An acquire must read the record, so it must raise an error."""
    sees: bool = True
    """What is left shows who holds the lock."""


ALL = ("held", "waited", "readers", "permits")
ALONE = ("held", "waited")
SEVERAL = ("readers", "permits")


class OfCluster(NamedTuple):
    """A cluster as if it was one server: each command goes to the node that has its first key."""

    cluster: Cluster

    def ask(self, *words: str | int) -> Any:
        """The reply to a command."""
        return self.cluster.owner(self.cluster.slot(str(words[1]))).ask(*words)


def in_redis(
    server: Redis | OfCluster, form: str = "hash", prefix: str = names.PREFIX
) -> list[Damage]:
    """The damages of a lock in Redis, in one of its formats, or in that of a Redlock's server."""
    divided = isinstance(server, OfCluster)

    def keys(name: str) -> names.Keys:
        return names.keys_of(name, prefix, divided)

    def owner(name: str) -> str:
        fields = server.ask("HKEYS", keys(name).lock)
        return str(next(field for field in fields if "-" in field and field[:6] != "about:"))

    def put(key: str, field: str, values: Sequence[str]) -> Callable[[str, Random], object]:
        """Write one of these values into a field; `OWNER` stands for the owner of a hold."""

        def act(name: str, random: Random) -> None:
            named = field.replace("OWNER", owner(name)) if "OWNER" in field else field
            server.ask("HSET", getattr(keys(name), key), named, random.choice(values))

        return act

    def join(name: str, random: Random) -> None:
        server.ask("ZADD", keys(name).queue, random.choice((-1, 0, 2**60)), random.choice(JUNK))

    def retype(key: str) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            which = getattr(keys(name), key)
            server.ask("DEL", which)
            server.ask(*random.choice((("RPUSH", which, "junk"), ("SADD", which, "junk"))))

        return act

    def drop(field: str) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            server.ask("HDEL", keys(name).lock, field.replace("OWNER", owner(name)))

        return act

    queue = [
        Damage("a member of the queue", ALL, join),
        Damage("the type of the queue", ALL, retype("queue"), sees=False),
    ]
    if form != "hash":

        def record(name: str, random: Random) -> None:
            server.ask("SET", keys(name).record, random.choice(JUNK[1:]), "KEEPTTL")

        return [
            *(damage._replace(kinds=("held",)) for damage in queue if form in ("string", "vote")),
            Damage("the record", ("held",), record),
            Damage("the type of the record", ("held",), retype("record"), sees=False),
        ]
    return [
        *queue,
        Damage("the type of the lock", ALL, retype("lock"), refuses=True, sees=False),
        Damage("another field", ALL[:3], put("lock", "customer", JUNK), refuses=True, sees=False),
        # To count permits, no other field is read.
        Damage("another field of permits", ("permits",), put("lock", "customer", JUNK), sees=False),
        Damage("the owner's record", ALL, put("lock", "about:OWNER", JUNK[1:])),
        Damage("the owner", ALONE, drop("OWNER"), refuses=True, sees=False),
        Damage("the mode", ALONE, put("lock", "mode", ("shared", "permits")), sees=False),
        Damage("the mode of several", SEVERAL, put("lock", "mode", JUNK), refuses=True, sees=False),
        Damage("the end", SEVERAL, put("lock", "OWNER", ("", "junk", "x7")), refuses=True),
        *(
            Damage(field, SEVERAL, put("lock", field, NO_NUMBERS[:2]), refuses=True, sees=False)
            for field in ("used", "next_end")
        ),
        *(
            Damage(f"no {field}", SEVERAL, drop(field), refuses=True, sees=False)
            for field in ("used", "next_end")
        ),
        Damage("the limit", ("permits",), put("lock", "limit", NO_NUMBERS[:2]), True, sees=False),
        Damage("an upgrade", SEVERAL, put("lock", "upgrading", ("junk",)), True, sees=False),
    ]


def in_sql(server: Postgres | MariaDB) -> list[Damage]:
    """The damages of a lock by protocol "lease"."""
    from testkit.servers.mariadb import MariaDB

    bytes_allowed = isinstance(server, MariaDB)
    schema = "locks." if bytes_allowed else ""

    def do(statement: str) -> None:
        if isinstance(server, MariaDB):
            server.do(statement)
        else:
            server.query(statement)

    def put(table: str, column: str, *values: str) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            value = random.choice(values)
            # The row of a waiter ends soon after its last request: not during the test.
            more = ", expires = expires + 3600000000" if table == "waiter" else ""
            change = f"{column} = {value}{more}"
            do(f"UPDATE {schema}leaselock_{table} SET {change} WHERE name = '{name}'")

        return act

    texts = ["'junk'", "''", "'\N{SNOWMAN}'", *(["X'FF00FE'"] if bytes_allowed else [])]
    short = ["'zzz'", "''", *(["X'FF00FE'"] if bytes_allowed else [])]
    huge = ["9223372036854775807", "9223372036854000000"]
    low = ["-1", "-9223372036854775807"]
    return [
        Damage("expires", ALONE, put("lock", "expires", "NULL", *huge), True, sees=False),
        Damage("since", ALONE, put("lock", "since", "NULL", *huge), True, sees=False),
        Damage("client", ALONE, put("lock", "client", "NULL", *texts), True, sees=False),
        Damage("lifetime", ALONE, put("lock", "lifetime", "NULL", *short), True, sees=False),
        Damage("token", ALONE, put("lock", "token", *low, *huge), True, sees=False),
        Damage("no metadata", ALONE, put("lock", "metadata", "NULL"), True, sees=False),
        Damage("metadata", ALONE, put("lock", "metadata", "'junk'", "'[1]'", "'{}'", "'{'")),
        Damage("free_from", ALONE, put("lock", "free_from", *huge), True, sees=False),
        Damage("mode", SEVERAL, put("hold", "mode", *short), True, sees=False),
        Damage("permits", SEVERAL, put("hold", "permits", "0", *low, *huge), True, sees=False),
        Damage("end", SEVERAL, put("hold", "expires", *huge), True, sees=False),
        Damage("client of a hold", SEVERAL, put("hold", "client", *texts), True, sees=False),
        Damage("lifetime of a hold", SEVERAL, put("hold", "lifetime", *short), True, sees=False),
        Damage("token of a hold", SEVERAL, put("hold", "token", *low), True, sees=False),
        Damage("metadata of a hold", SEVERAL, put("hold", "metadata", "'junk'", "'[1]'")),
        Damage("limit", ("permits",), put("lock", "permits", *low, *huge), True),
        Damage("mode of a waiter", ("waited",), put("waiter", "mode", *short), True),
        Damage("permits of a waiter", ("waited",), put("waiter", "permits", "0", *low), True),
        Damage("client of a waiter", ("waited",), put("waiter", "client", *texts), True),
        Damage("metadata of a waiter", ("waited",), put("waiter", "metadata", "'junk'", "'{'")),
        Damage("lease of a waiter", ("waited",), put("waiter", "lease", *huge), True),
    ]


def in_sessions(server: Postgres | MariaDB) -> list[Damage]:
    """The damages of a lock by protocol "row" or "advisory": the row of the session that holds it,
    or waits for it. The server itself has the lock, so an acquire need not read that row.
    """
    from testkit.servers.mariadb import MariaDB

    def put(column: str, *values: str, waiter: bool = False) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            of = f"name = '{name}' AND token IS {'' if waiter else 'NOT '}NULL"
            change = f"{column} = {random.choice(values)}"
            if isinstance(server, MariaDB):
                server.do(f"UPDATE locks.leaselock_session SET {change} WHERE {of}")
            else:
                server.query(f"UPDATE leaselock_session SET {change} WHERE {of}")

        return act

    short = ["'zzz'", "''", "'\N{SNOWMAN}'"]
    if isinstance(server, MariaDB):
        short.append("X'FF00FE'")
    huge = ["9223372036854775807", "9223372036854000000", "-1", "-9223372036854775807"]
    metadata = ["'junk'", "'[1]'", "'{}'", "''", *short[3:]]
    keys = ["'junk'", "''", "'\N{SNOWMAN}'"] if short[3:] else ["0", "-1", huge[0]]
    kinds = ("held", "waited", "readers")
    return [
        *(
            Damage(f"{column} of {who}", of, put(column, *values, waiter=waiter), sees=sees)
            for who, of, waiter in (("a holder", kinds, False), ("a waiter", ("waited",), True))
            for column, values, sees in (
                ("mode", short, False),
                ("since", huge, False),
                ("client", short[2:], False),
                ("id", short[2:], False),
                ("metadata", metadata, False),
                ("backend", ["0", "-1", "2147483647", *huge], False),
                ("liveness_key", keys, False),
            )
        ),
        Damage("token", kinds, put("token", *huge), sees=False),
        Damage("protocol", kinds, put("protocol", *short), sees=False),
    ]


def in_sqlite(path: str) -> list[Damage]:
    """The damages of a lock in a file, where a column has values of any type."""

    def put(table: str, column: str, *values: str) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            database = sqlite3.connect(path, timeout=30)
            try:
                change = f"{column} = {random.choice(values)}"
                if table == "waiter" and column != "last_seen":
                    change += ", last_seen = last_seen + 3600"  # it is not dropped during the test
                with database:
                    database.execute(f"UPDATE {table} SET {change} WHERE name = ?", (name,))
            finally:
                database.close()

        return act

    text = ["'junk'", "''", "CAST(X'FF00FE' AS TEXT)", "X'FF00FE'", "'\N{SNOWMAN}'"]
    texts = [*text, "'../../x'", "'a' || char(0)"]
    number = ["'junk'", "X'00'", "9e999", "-9e999", "1e300", "''"]
    count = ["'junk'", "X'00'", "1.5", "-1", "9223372036854775807", "''"]
    short = ["'zzz'", "''", "X'FF'", "7", "CAST(X'FF00FE' AS TEXT)"]
    held = ("lock", ALONE)
    several = ("hold", SEVERAL)
    return [
        *(
            damage
            for table, kinds in (held, several)
            for damage in (
                Damage(f"expires of {table}", kinds, put(table, "expires", *number), True, False),
                Damage(f"since of {table}", kinds, put(table, "since", *number), True, False),
                Damage(f"client of {table}", kinds, put(table, "client", *texts), True, False),
                Damage(f"lifetime of {table}", kinds, put(table, "lifetime", *short), True, False),
                Damage(f"token of {table}", kinds, put(table, "token", *count), True, False),
                Damage(f"step of {table}", kinds, put(table, "step", *count), True, False),
                Damage(f"bytes of {table}", kinds, put(table, "metadata", "X'FF'"), True, False),
                Damage(f"metadata of {table}", kinds, put(table, "metadata", "'junk'", "'[1]'")),
            )
        ),
        Damage("id", ALONE, put("lock", "id", "X'FF'", "'junk'", "char(233)"), True, False),
        Damage("free_from", ALONE, put("lock", "free_from", *number), True, False),
        Damage("limit", ALL, put("lock", "permits", *count), True, False),
        Damage("lapsed_offer", ALL, put("lock", "lapsed_offer", *number), True, False),
        Damage("mode", SEVERAL, put("hold", "mode", *short), True, False),
        Damage("permits", SEVERAL, put("hold", "permits", "0", *count), True, False),
        Damage("mode of a waiter", ("waited",), put("waiter", "mode", *short), True, False),
        Damage("permits of a waiter", ("waited",), put("waiter", "permits", *count), True, False),
        Damage("client of a waiter", ("waited",), put("waiter", "client", *texts), True, False),
        Damage("lease of a waiter", ("waited",), put("waiter", "lease", *number), True, False),
        Damage(
            "last_seen of a waiter", ("waited",), put("waiter", "last_seen", *number), True, False
        ),
        Damage("metadata of a waiter", ("waited",), put("waiter", "metadata", "'junk'", "'{'")),
    ]


def in_zookeeper(client: Any, root: str) -> list[Damage]:
    """The damages of a lock below this node. *client* is one of kazoo."""

    def child(name: str, random: Random) -> None:
        client.create(f"{root}/{name}/{random.choice(JUNK[1:3])}", b"", ephemeral=True)

    def limit(name: str, random: Random) -> None:
        client.set(f"{root}/{name}", random.choice(JUNK[1:]).encode())

    return [
        Damage("another child", ALONE, child),
        Damage("the limit", ("permits",), limit, refuses=True, sees=False),
    ]


def in_documents(
    read: Callable[[str], bytes],
    write: Callable[[str, bytes], object],
    others: Sequence[Damage] = (),
) -> list[Damage]:
    """The damages of a lock in a store of documents. *read* and *write* go around the protocol, and
    *others* are what the store itself can do to a document besides.
    """

    def junk(name: str, random: Random) -> None:
        write(name, random.choice(JUNK).encode())

    def put(part: str, field: str, *values: object) -> Callable[[str, Random], object]:
        """Write one of these values into a field of the document, its first hold or waiter."""

        def act(name: str, random: Random) -> None:
            document = json.loads(read(name))
            (document[part][0] if part else document)[field] = random.choice(values)
            write(name, json.dumps(document).encode())

        return act

    def twice(name: str, random: Random) -> None:
        document = json.loads(read(name))
        document["holds"] *= 2
        write(name, json.dumps(document).encode())

    def drop(part: str, field: str) -> Callable[[str, Random], object]:
        def act(name: str, random: Random) -> None:
            document = json.loads(read(name))
            del (document[part][0] if part else document)[field]
            write(name, json.dumps(document).encode())

        return act

    counts: tuple[object, ...] = (None, -1, "7", 1.5, True, 2**63, [])
    texts: tuple[object, ...] = (None, 7, True, [], {}, "\ud800")
    times: tuple[object, ...] = (None, "1", True, 1e300, float("nan"), [])
    lengths = (*times, -1.0, -1e9)
    header = {
        **dict.fromkeys(("n", "token", "limit", "lapsed_offer"), counts),
        **{"by": texts, "at": times, "v": (*texts, "", "9 8", "1 0")},
        **{"holds": ("x", 7, None, {"a": 1}, [None], [[]]), "queue": (7, None, [1], ["x"])},
    }
    both = {
        **{"id": (*texts, "x", "x:1"), "client": (*texts, "", "../x"), "since": times},
        **{"metadata": texts, "beat": counts, "mode": (*texts, "", "both"), "permits": counts},
    }
    held = {
        **both,
        **{"token": counts, "lasts": lengths, "free": lengths, "stamp": times},
        **{"lifetime": (*texts, "", "long"), "step": counts, "offered": (1, None, "yes")},
    }
    queued = {**both, "lease": lengths, "min_hold": lengths, "aligned": (1, None, "yes")}
    needed = {
        "": ("v", "n", "by", "at", "token", "limit", "lapsed_offer", "holds", "queue"),
        "holds": ("id", "client", "token", "beat", "lasts", "since", "metadata"),
        "queue": ("id", "client", "beat", "lease", "since", "metadata"),
    }
    parts = (("", header, ALL), ("holds", held, ALL), ("queue", queued, ("waited",)))
    metadata = ("junk", "", "{", "[1]", "null", "\N{SNOWMAN}")
    return [
        Damage("the document", ALL, junk, refuses=True, sees=False),
        Damage("a hold twice", ALL, twice, refuses=True, sees=False),
        Damage("metadata", ALL, put("holds", "metadata", *metadata)),
        Damage("metadata of a waiter", ("waited",), put("queue", "metadata", *metadata)),
        *(
            Damage(f"{part} {field}", kinds, put(part, field, *values), refuses=True, sees=False)
            for part, fields, kinds in parts
            for field, values in fields.items()
        ),
        *(
            Damage(f"{part} no {field}", kinds, drop(part, field), refuses=True, sees=False)
            for part, _, kinds in parts
            for field in needed[part]
        ),
        *others,
    ]


def in_store(store: DocumentStore) -> list[Damage]:
    """The damages of a lock in a store that keeps any bytes as documents."""

    def read(name: str) -> bytes:
        value = store.get(name, _soon()).value
        assert value is not None
        return value

    def write(name: str, value: bytes) -> None:
        while True:  # a waiter may write meanwhile
            version = store.get(name, _soon()).version
            if isinstance(store.put(name, value, version, None, _soon()), Stored):
                return

    return in_documents(read, write)


def _soon() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) + LIMIT


def in_dynamodb(client: Any, table: str, prefix: str) -> list[Damage]:
    """The damages of a lock in a table. *client* is one of boto3."""

    def item(name: str) -> Any:
        key = {"id": {"S": prefix + name}}
        return client.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]

    def write(name: str, value: bytes) -> None:
        put(name, "doc", {"S": value.decode()})

    def put(name: str, attribute: str, value: dict[str, Any]) -> None:
        # With the same revision a waiter would not notice, and write its own document.
        revision = {"rev": {"S": os.urandom(9).hex()}}
        client.put_item(TableName=table, Item=item(name) | {attribute: value} | revision)

    def retype(name: str, random: Random) -> None:
        put(name, "doc", random.choice(({"N": "7"}, {"B": b"junk"}, {"NULL": True}, {"L": []})))

    others = [Damage("the type of the document", ALL, retype, refuses=True, sees=False)]
    return in_documents(lambda name: str(item(name)["doc"]["S"]).encode(), write, others)


def in_kubernetes(api: Any, namespace: str) -> list[Damage]:
    """The damages of the documents in the annotations of Lease objects."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/"

    def read(name: str) -> bytes:
        annotations = api.lease(namespace, object_name(name))["metadata"]["annotations"]
        return str(annotations[DOCUMENT]).encode()

    def write(name: str, value: bytes) -> None:
        lease = api.lease(namespace, object_name(name))
        lease["metadata"]["annotations"][DOCUMENT] = value.decode()
        api.must("PUT", f"{leases}{object_name(name)}", lease)

    return in_documents(read, write)
