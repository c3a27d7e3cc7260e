"""Every way of locking that is played: leaselock's, and the recipes of the literature.

Law: a way is a name, the kind of store that it needs, and the program that uses it. Its name is
what it does. Those of leaselock that one gets without asking for any are the defaults.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leaselock.testing.hazards.party import Party

HERE = "leaselock.testing.hazards"
OURS = f"{HERE}.ours:Ours"
PATIENT = 10.0


class Way(NamedTuple):
    """One way of locking."""

    name: str
    store: str
    """The kind of store: sqlite, redis, redlock, zookeeper, postgresql or mysql."""
    program: str
    """Its class, as ``module:Class``, loaded where it is played."""
    protocol: str = ""
    default: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is leaselock's."""
        return self.program == OURS

    def party(self, url: str) -> Party:
        """A program that uses it on the store at *url*."""
        module, _, kind = self.program.partition(":")
        party: Party = getattr(import_module(module), kind)(self.url(url))
        return party

    def patient(self, url: str) -> Party:
        """The same for one of many: ours are told to be patient with a store that is busy."""
        if not self.ours:
            return self.party(url)
        from leaselock.testing.hazards.ours import Ours

        return Ours(self.url(url), answer=PATIENT)

    def url(self, url: str) -> str:
        """The store's URL, with the protocol."""
        if not self.protocol:
            return url
        return f"{url}{'&' if '?' in url else '?'}protocol={self.protocol}"


def _ours() -> list[Way]:
    found = [Way("leaselock sqlite", "sqlite", OURS, default=True)]
    forms = ("hash", "string", "setnx-expire", "getset", "setnx", "incr")
    found += [Way(f"leaselock redis {form}", "redis", OURS, form, form == "hash") for form in forms]
    found.append(Way("leaselock redlock of 3", "redlock", OURS, default=True))
    for form in ("queue", "single"):
        found.append(Way(f"leaselock zookeeper {form}", "zookeeper", OURS, form, form == "queue"))
    for store in ("postgresql", "mysql"):
        for form in ("lease", "row", "advisory"):
            found.append(Way(f"leaselock {store} {form}", store, OURS, form, form == "lease"))
    return found


NAIVE = [
    Way("Redis: SETNX; DEL", "redis", f"{HERE}.naive_redis:Setnx"),
    Way("Redis: SETNX, EXPIRE; DEL", "redis", f"{HERE}.naive_redis:SetnxExpire"),
    Way("Redis: SET NX PX; DEL", "redis", f"{HERE}.naive_redis:SetPx"),
    Way("Redis: SET NX PX; GET, DEL", "redis", f"{HERE}.naive_redis:SetPxGetDel"),
    Way("Redis: SETNX, GET, GETSET; GET, DEL", "redis", f"{HERE}.naive_redis:GetSet"),
    Way("Redis: INCR; DEL", "redis", f"{HERE}.naive_redis:Incr"),
    Way("ZooKeeper: one ephemeral node", "zookeeper", f"{HERE}.naive_zookeeper:OneNode"),
    Way("PostgreSQL: INSERT; DELETE", "postgresql", f"{HERE}.naive_sql:InsertDelete"),
    Way("PostgreSQL: SELECT, UPDATE", "postgresql", f"{HERE}.naive_sql:SelectUpdate"),
    Way("PostgreSQL: end by client's clock", "postgresql", f"{HERE}.naive_sql:ClientClock"),
    Way("MariaDB: INSERT; DELETE", "mysql", f"{HERE}.naive_sql:InsertDelete"),
    Way("SQLite: INSERT; DELETE", "sqlite", f"{HERE}.naive_sql:InsertDelete"),
    Way("SQLite: SELECT, UPDATE", "sqlite", f"{HERE}.naive_sql:SelectUpdate"),
    Way("SQLite: end by client's clock", "sqlite", f"{HERE}.naive_sql:ClientClock"),
    Way("file: O_EXCL; unlink", "sqlite", f"{HERE}.naive_files:Exclusive"),
    Way("file: flock; close", "sqlite", f"{HERE}.naive_files:Flock"),
]
WAYS = {way.name: way for way in [*_ours(), *NAIVE]}
