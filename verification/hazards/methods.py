"""The locking methods of the table: leaselock's protocols, and recipes from books and blogs.

A method is a name, the kind of store that it needs, and the program that uses it. The name of a
recipe lists its steps. leaselock's defaults are those used when no protocol is named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from verification.hazards.lock_program import LockProgram

HERE = "verification.hazards"
OURS = f"{HERE}.leaselock_program:LeaselockProgram"
# Seconds that each of many waiters waits for a reply of a busy store.
WAITER_REPLY_TIMEOUT = 10.0


class Method(NamedTuple):
    """One locking method."""

    name: str
    store: str
    """The kind of store: a key of `private_servers.MAKERS`."""
    program: str
    """Its class, as ``module:Class``, imported in the worker process."""
    protocol: str = ""
    default: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is a protocol of leaselock."""
        return self.program == OURS

    def new_program(self, url: str) -> LockProgram:
        """Create a program that uses this method on the store at *url*."""
        module, _, kind = self.program.partition(":")
        program: LockProgram = getattr(import_module(module), kind)(self.url(url))
        return program

    def new_waiter(self, url: str) -> LockProgram:
        """Create one of many such programs; leaselock's get a longer reply timeout."""
        if not self.ours:
            return self.new_program(url)
        from verification.hazards.leaselock_program import LeaselockProgram

        return LeaselockProgram(self.url(url), reply_timeout=WAITER_REPLY_TIMEOUT)

    def url(self, url: str) -> str:
        """Return the store's URL with the protocol added."""
        if not self.protocol:
            return url
        return f"{url}{'&' if '?' in url else '?'}protocol={self.protocol}"


def _ours() -> list[Method]:
    found = [Method("leaselock sqlite", "sqlite", OURS, default=True)]
    protocols = [
        ("redis", p) for p in ("hash", "string", "setnx-expire", "getset", "setnx", "incr")
    ]
    protocols += [("redlock of 3", "")]
    protocols += [("zookeeper", protocol) for protocol in ("queue", "single")]
    for store in ("postgresql", "mysql"):
        protocols += [(store, protocol) for protocol in ("lease", "row", "advisory")]
    # One protocol for every store that can compare and set a value.
    protocols += [(store, "document") for store in ("etcd", "kubernetes", "dynamodb", "s3")]
    defaults = ("hash", "", "queue", "lease", "document")
    for store, protocol in protocols:
        name = f"leaselock {store} {protocol}".rstrip()
        # DynamoDB and S3 report no changes, so their waiters poll: they fail that hazard, as their
        # pages say.
        default = protocol in defaults and store not in ("dynamodb", "s3")
        found.append(Method(name, store.split()[0], OURS, protocol, default))
    return found


NAIVE = [
    Method("Redis: SETNX; DEL", "redis", f"{HERE}.naive_redis:Setnx"),
    Method("Redis: SETNX, EXPIRE; DEL", "redis", f"{HERE}.naive_redis:SetnxExpire"),
    Method("Redis: SET NX PX; DEL", "redis", f"{HERE}.naive_redis:SetPx"),
    Method("Redis: SET NX PX; GET, DEL", "redis", f"{HERE}.naive_redis:SetPxGetDel"),
    Method("Redis: SETNX, GET, GETSET; GET, DEL", "redis", f"{HERE}.naive_redis:GetSet"),
    Method("Redis: INCR; DEL", "redis", f"{HERE}.naive_redis:Incr"),
    Method("ZooKeeper: one ephemeral node", "zookeeper", f"{HERE}.naive_zookeeper:OneNode"),
    Method("PostgreSQL: INSERT; DELETE", "postgresql", f"{HERE}.naive_sql:InsertDelete"),
    Method("PostgreSQL: SELECT, UPDATE", "postgresql", f"{HERE}.naive_sql:SelectUpdate"),
    Method("PostgreSQL: end by client's clock", "postgresql", f"{HERE}.naive_sql:ClientClock"),
    Method("MariaDB: INSERT; DELETE", "mysql", f"{HERE}.naive_sql:InsertDelete"),
    Method("SQLite: INSERT; DELETE", "sqlite", f"{HERE}.naive_sql:InsertDelete"),
    Method("SQLite: SELECT, UPDATE", "sqlite", f"{HERE}.naive_sql:SelectUpdate"),
    Method("SQLite: end by client's clock", "sqlite", f"{HERE}.naive_sql:ClientClock"),
    Method("file: O_EXCL; unlink", "sqlite", f"{HERE}.naive_files:Exclusive"),
    Method("file: flock; close", "sqlite", f"{HERE}.naive_files:Flock"),
]
METHODS = {method.name: method for method in [*_ours(), *NAIVE]}
