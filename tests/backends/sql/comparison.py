"""Comparison of a real database with the model of its tables: the same scripts, the same rows.

Every script of the library is executed on both, and the library sees the real results. Both use
the time of the server: it is read before each script, no script is sent while a row is about to
expire, and where the two wrote times that differ a little, the model takes those of the server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from testkit.servers.databases import emptied
from tests.backends.sql.sessions import Direct, finished
from verification.models.sql_tables import Tables

from leaselock._backends.sql.lease import Lease, client_of
from leaselock._backends.sql.lock_row import Head, Requester
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._drivers import system_env

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.statements import Part, Result, Script
    from leaselock._core.contract.backend import Claim

# So few waiters are read at once that often more are needed.
HEAD = Head(1, 2)
# Microseconds by which two clock readings may differ on a busy machine.
APART = 30_000
# Of AMOUNTS and TOKENS the row count is compared, of ROWS the rows, of all others only the tables.
AMOUNTS = {"release uncontended", "renew", "renew hold", "expire waiters", "expire tombstones"}
TOKENS = {"acquire free", "confirm"}
ROWS = {"now", "lock", "tombstone", "one", "all", "queue", "queues", "holds", "one holds"}
COLUMNS = {
    "lock": (
        *("name", "token", "pending", "id", "client", "lifetime", "expires", "metadata", "since"),
    ),
    "waiter": (
        *("name", "ticket", "id", "client", "lease", "metadata", "since", "expires"),
        *("polls", "liveness_key", "mode", "permits"),
    ),
    "hold": (
        *("name", "id", "client", "lifetime", "token", "expires", "metadata", "since", "mode"),
        *("permits", "step", "offered"),
    ),
    "tombstone": ("name", "id", "expires"),
    "wake": ("client", "id"),
}


class Unlucky(Exception):
    """The machine was too slow to decide whether a row had expired."""


class SqlComparison:
    """Both databases, and their clients."""

    queues, votes = True, False
    leases: tuple[float, ...] = (0.09, 0.15, 30.0)
    pause = 0.1

    def __init__(self, server: Postgres | MariaDB) -> None:
        self.direct = Direct(store_of(parsed(emptied(server)), system_env.now))
        self.connection, self.witness = self.direct.connect(), self.direct.connect()
        self.dialect = self.direct.dialect
        self.micros = 0
        self.apart = APART
        interrupts = self.dialect.interrupts
        self.tables = Tables(lambda: self.micros, lambda key: False, makes=not interrupts)
        self.clients: dict[str, Lease] = {}
        self.notified = 0

    def ask(self, request: object) -> object:
        """Execute a request with the library's text, and return the answer."""
        client = client_of(request)
        lease = self.clients.setdefault(client, Lease(self.dialect))
        lease.head = HEAD
        requester = Requester(client, polls=self.dialect.interrupts, liveness_key=None)
        return finished(lease.answer(request, requester, self))  # type: ignore[arg-type]

    def forget(self, claim: Claim) -> None:
        """Do nothing: no state is kept of a claim."""

    def die(self, client: str) -> None:
        """Do nothing: no client listens, so no death is noticed."""

    def stranger(self, name: str) -> None:
        """Do nothing: no other program uses these locks."""

    def heard(self) -> int:
        """Return the number of notifications."""
        return self.notified

    # --- execution on both sides -----------------------------------------------------------------

    async def execute(self, script: Script) -> list[Result]:
        """Execute a script on both sides, compare, and return the real results."""
        opens = "begin" not in script and self._in_transaction
        now = self.micros = self.micros if opens else self._moment()
        ends = self._ends()
        real = self.direct.execute(self.connection, script)
        model = [self.tables.do(part) for part in script]
        self.notified += len(self.tables.notifications) + sum(
            _title(p) == "store wakeup" for p in script
        )
        self.tables.notifications.clear()
        over = "commit" in script or "rollback" in script
        self._in_transaction = not over and ("begin" in script or self._in_transaction)
        self._check_moment(now, ends + self._ends())
        for part, one, other in zip(script, real, model, strict=True):
            self._compare(part, one, other)
        if not self._in_transaction:
            self._compare_tables()
        return real

    _in_transaction = False

    def _time(self) -> int:
        (result,) = self.direct.execute(self.witness, ("now",))
        return int(result.rows[0][0])

    def _moment(self) -> int:
        """Return a time at which no row expires during the next two scripts."""
        while True:
            now = self._time()
            if not any(now - APART <= end <= now + 2 * APART for end in self._ends()):
                return now
            # Only the server's clock can end this, and it sends no notification.
            time.sleep(0.005)

    def _check_moment(self, began: int, ends: list[int]) -> None:
        """Set the permitted difference of times; raise `Unlucky` if a row has expired meanwhile."""
        since, until = began - 2000, self._time() + 2000
        if any(since <= end <= until for end in ends):
            raise Unlucky
        self.apart = max(APART, until - since)

    def _alike(self, real: Any, model: Any) -> bool:
        return alike(real, model, self.apart)

    def _ends(self) -> list[int]:
        tables = self.tables
        ends = [row["expires"] for row in tables.locks.values() if row["expires"] is not None]
        ends += [waiter["expires"] for queue in tables.waiters.values() for waiter in queue]
        ends += [hold["expires"] for its in tables.holds.values() for hold in its.values()]
        return ends + [end for its in tables.tombstones.values() for end in its.values()]

    def _compare(self, part: Part, real: Result, model: Result) -> None:
        title = _title(part)
        if title in AMOUNTS | TOKENS:
            assert real.amount == model.amount, (part, real, model)
        if title in TOKENS and real.amount:
            token = real.number or int(real.rows[0][0])
            assert self._alike(token, model.rows[0][0]), (part, real, model)
        if title in ("all", "queues"):
            # The order of the locks is undefined.
            real.rows.sort()
            model.rows.sort()
        if title in ROWS:
            assert self._alike(real.rows, model.rows), (part, real, model)
        if title == "waiters":
            theirs, ours = (
                sorted((*r[:6], bool(r[6]), *r[7:11], bool(r[11])) for r in result.rows)
                for result in (real, model)
            )
            assert self._alike(theirs, ours), (part, real, model)

    def _compare_tables(self) -> None:
        """Compare all rows; times that differ a little are taken from the server."""
        for table, columns in COLUMNS.items():
            text = f"SELECT {', '.join(columns)} FROM leaselock_{table}"
            script: Script = (("raw", {"text": text}),)
            (found,) = self.direct.execute(self.witness, script)
            rows = sorted(([*map(_plain, row)] for row in found.rows), key=repr)
            ours = sorted(([*map(_plain, row)] for row in getattr(self, f"_{table}")()), key=repr)
            assert self._alike(sorted(rows, key=_key), sorted(ours, key=_key)), (table, rows, ours)
            getattr(self, f"_take_{table}")([dict(zip(columns, row, strict=True)) for row in rows])

    def _lock(self) -> list[list[Any]]:
        return [
            [name, *(row.get(column) for column in COLUMNS["lock"][1:])]
            for name, row in self.tables.locks.items()
        ]

    def _waiter(self) -> list[list[Any]]:
        columns = COLUMNS["waiter"][1:]
        queues = self.tables.waiters.items()
        return [[name, *(w[column] for column in columns)] for name, queue in queues for w in queue]

    def _hold(self) -> list[list[Any]]:
        columns = COLUMNS["hold"][1:]
        holds = [(name, hold) for name, its in self.tables.holds.items() for hold in its.values()]
        return [[name, *(hold[column] for column in columns)] for name, hold in holds]

    def _take_hold(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.tables.holds[row.pop("name")][row["id"]].update(row)

    def _tombstone(self) -> list[list[Any]]:
        found = self.tables.tombstones.items()
        return [[name, claim, end] for name, its in found for claim, end in its.items()]

    def _wake(self) -> list[list[Any]]:
        return [[*word] for word in self.tables.wakeups]

    def _take_lock(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.tables.locks[row.pop("name")].update(row)

    def _take_waiter(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            queue = self.tables.waiters[row.pop("name")]
            next(w for w in queue if w["id"] == row["id"]).update(row)

    def _take_tombstone(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.tables.tombstones[row["name"]][row["id"]] = row["expires"]

    def _take_wake(self, rows: list[dict[str, Any]]) -> None:
        """Do nothing: the rows contain no times."""

    def close(self) -> None:
        """Close the connections."""
        self.direct.close()


def _title(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _key(row: list[Any]) -> tuple[str, ...]:
    """The sort key of a row, without times."""
    return tuple("" if isinstance(v, int) and v > 10**14 else repr(v) for v in row)


def alike(real: Any, model: Any, apart: int) -> bool:
    """Compare two values; times are equal if they differ by at most *apart* microseconds."""
    if isinstance(real, (list, tuple)) and isinstance(model, (list, tuple)):
        pairs = zip(real, model, strict=True)
        return len(real) == len(model) and all(alike(one, other, apart) for one, other in pairs)
    if isinstance(real, int) and isinstance(model, int) and min(real, model) > 10**14:
        return abs(real - model) <= apart
    return bool(real == model)
