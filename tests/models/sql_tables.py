"""A model of the tables of protocol "lease", and of what each statement does to them.

Each method `do_…` is the statement of that name in `statements/postgres/lease.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.statements import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.statements import Part, Script

HOLD = ("id", "client", "lifetime", "expires", "metadata", "since")
HELD = ("id", "client", "lifetime", "token", "expires", "metadata", "since")
CLAIM = ("id", "client", "lease", "metadata", "since")


class Tables:
    """The rows."""

    def __init__(
        self, micros: Callable[[], int], lives: Callable[[Any], bool], *, makes: bool = True
    ) -> None:
        self.micros = micros
        # The fast path of PostgreSQL creates a missing row; that of MySQL does not.
        self.makes = makes
        self.lives = lives
        # How often anything may have changed.
        self.changes = 0
        self.locks: dict[str, dict[str, Any]] = {}
        self.waiters: dict[str, list[dict[str, Any]]] = {}
        self.tombstones: dict[str, dict[str, int]] = {}
        self.notifications: list[tuple[str, str]] = []
        self.wakeups: set[tuple[str, str]] = set()

    def saved(self, names: tuple[str, ...]) -> Any:
        """A copy of what a transaction may change."""
        return (
            {name: dict(self.locks[name]) for name in names if name in self.locks},
            {n: [dict(w) for w in self.waiters[n]] for n in names if n in self.waiters},
            {name: dict(self.tombstones[name]) for name in names if name in self.tombstones},
        )

    def restore(self, names: tuple[str, ...], saved: Any) -> None:
        """Roll a transaction back."""
        self.changes += 1
        for table, rows in zip((self.locks, self.waiters, self.tombstones), saved, strict=True):
            for name in names:
                table.pop(name, None)  # type: ignore[attr-defined]
            table.update(rows)  # type: ignore[attr-defined]

    def do(self, part: Part) -> Result:
        """One statement."""
        self.changes += 1
        title, values = (part, {}) if isinstance(part, str) else part
        rows = getattr(self, "do_" + title.replace(" ", "_"), _nothing)(dict(values))
        return rows if isinstance(rows, Result) else Result(rows, len(rows))

    def do_now(self, values: dict[str, Any]) -> list[Any]:
        """The clock of the server."""
        return [(self.micros(),)]

    def do_acquire_free(self, values: dict[str, Any]) -> list[Any]:
        """The fast path of acquire."""
        row = self.locks.get(values["name"])
        now = self.micros()
        if row is None and not self.makes:
            return []
        if row is not None and (row["id"] is not None or row["pending"]):
            return []
        token = max(now, row["token"] + 1 if row is not None else 0)
        self.locks[values["name"]] = {
            **{"token": token, "pending": 0, "lifetime": "either", "since": now},
            **{column: values[column] for column in ("id", "client", "metadata")},
            "expires": now + values["lease"],
        }
        return [(token,)]

    def _held_by(self, values: dict[str, Any]) -> dict[str, Any] | None:
        row = self.locks.get(values["name"])
        return row if row is not None and row["id"] == values["id"] else None

    def do_confirm(self, values: dict[str, Any]) -> list[Any]:
        """The fast path from a hand-off to a whole lease."""
        row = self._held_by(values)
        if row is None or row["expires"] <= self.micros():
            return []
        return self.do_renew(values)

    def do_renew(self, values: dict[str, Any]) -> list[Any]:
        """End no sooner than a lease from now."""
        row = self._held_by(values)
        if row is None:
            return []
        row["expires"] = max(row["expires"], self.micros() + values["lease"])
        return [(row["token"],)]

    def do_release_uncontended(self, values: dict[str, Any]) -> list[Any]:
        """The fast path of release."""
        row = self._held_by(values)
        if row is None or row["pending"]:
            return []
        row["id"] = None
        return [()]

    def do_create_lock(self, values: dict[str, Any]) -> list[Any]:
        """Create the row."""
        free = dict.fromkeys(HOLD)
        return [self.locks.setdefault(values["name"], {"token": 0, "pending": 0, **free})]

    def do_lock(self, values: dict[str, Any]) -> list[Any]:
        """The row, which the transaction has locked."""
        row = self.locks.get(values["name"])
        return [(row["token"], row["pending"], *(row[w] for w in HOLD))] if row else []

    def do_expire_waiters(self, values: dict[str, Any]) -> list[Any]:
        """Of one name."""
        queue = self.waiters.get(values["name"], [])
        gone = [waiter for waiter in queue if waiter["expires"] <= self.micros()]
        self.waiters[values["name"]] = [waiter for waiter in queue if waiter not in gone]
        return gone

    def do_expire_tombstones(self, values: dict[str, Any]) -> list[Any]:
        """Of one name."""
        graves = self.tombstones.get(values["name"], {})
        gone = [holder for holder, expires in graves.items() if expires <= self.micros()]
        return [graves.pop(holder) for holder in gone]

    def do_tombstone(self, values: dict[str, Any]) -> list[Any]:
        """Whether the claim has one."""
        holder = values["id"]
        return [(holder,)] if holder in self.tombstones.get(values["name"], {}) else []

    def do_waiters(self, values: dict[str, Any]) -> list[Any]:
        """All waiters; the real statement returns the head, the tail and the neighbours only."""
        queue = self.waiters.get(values["name"], [])
        return [
            (
                *(w["ticket"], *(w[column] for column in CLAIM), w["polls"], w["liveness_key"]),
                w["liveness_key"] is not None and not self.lives(w["liveness_key"]),
            )
            for w in queue
        ]

    def do_update_lock(self, values: dict[str, Any]) -> list[Any]:
        """The lock as the rules left it."""
        self.locks[values.pop("name")] = values
        return [()]

    def do_enqueue(self, values: dict[str, Any]) -> list[Any]:
        """Append to the queue."""
        self.waiters.setdefault(values.pop("name"), []).append(values)
        return [()]

    def do_refresh_waiter(self, values: dict[str, Any]) -> list[Any]:
        """Refresh the waiter."""
        for waiter in self.waiters.get(values["name"], []):
            if waiter["id"] == values["id"]:
                waiter.update(
                    {column: values[column] for column in ("expires", "polls", "liveness_key")}
                )
        return [()]

    def do_dequeue(self, values: dict[str, Any]) -> list[Any]:
        """Remove from the queue."""
        queue = self.waiters.get(values["name"], [])
        self.waiters[values["name"]] = [w for w in queue if w["id"] != values["id"]]
        return [()]

    def do_add_tombstone(self, values: dict[str, Any]) -> list[Any]:
        """Record a tombstone."""
        self.tombstones.setdefault(values["name"], {})[values["id"]] = values["expires"]
        return [()]

    def do_notify(self, values: dict[str, Any]) -> list[Any]:
        """Delivered when the transaction is committed."""
        self.notifications.append((values["channel"], values["id"]))
        return [()]

    def do_store_wakeup(self, values: dict[str, Any]) -> list[Any]:
        """For a client that polls."""
        self.wakeups.add((values["client"], values["id"]))
        return [()]

    # --- looking --------------------------------------------------------------------------------

    def do_one(self, values: dict[str, Any]) -> list[Any]:
        """The hold of one lock."""
        row, now = self.locks.get(values["name"]), self.micros()
        if row is None or row["id"] is None or row["expires"] <= now:
            return []
        return [(values["name"], *(row[column] for column in HELD))]

    def do_all(self, values: dict[str, Any]) -> list[Any]:
        """All holds."""
        return [row for name in sorted(self.locks) for row in self.do_one({"name": name})]

    def do_queue(self, values: dict[str, Any]) -> list[Any]:
        """The queue of one lock."""
        return [
            (values["name"], *(waiter[column] for column in CLAIM))
            for waiter in sorted(self.waiters.get(values["name"], []), key=_ticket)
            if waiter["expires"] > self.micros()
        ]

    def do_queues(self, values: dict[str, Any]) -> list[Any]:
        """All queues."""
        return [row for name in sorted(self.waiters) for row in self.do_queue({"name": name})]


def _ticket(waiter: dict[str, Any]) -> int:
    ticket: int = waiter["ticket"]
    return ticket


def _nothing(values: dict[str, Any]) -> list[Any]:
    return []


def names_of(script: Script) -> tuple[str, ...]:
    """The rows that a script locks."""
    values = [part[1] for part in script if not isinstance(part, str)]
    return tuple(dict.fromkeys(str(each["name"]) for each in values if "name" in each))
