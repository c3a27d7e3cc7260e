"""A model of the tables of protocol "lease", and of what each statement does to them.

Each method `do_…` is the statement of that name in `_backends/sql/statements`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.sql.statements import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.statements import Part, Script

HOLD = ("id", "client", "lifetime", "expires", "metadata", "since", "free_from")
MORE = ("step", "offered", "permits", "lapsed_offer")
SHARED = (
    *("id", "client", "lifetime", "token", "expires", "metadata", "since", "mode", "permits"),
    *("step", "offered"),
)
HELD = ("id", "client", "lifetime", "token", "expires", "metadata", "since", "free_from")
CLAIM = ("id", "client", "lease", "metadata", "since")


class Tables:
    """The rows of all tables."""

    def __init__(
        self, micros: Callable[[], int], lives: Callable[[Any], bool], *, makes: bool = True
    ) -> None:
        self.micros = micros
        # The fast path of PostgreSQL creates a missing row; that of MySQL does not.
        self.makes = makes
        self.lives = lives
        # Incremented with each possible change.
        self.changes = 0
        self.locks: dict[str, dict[str, Any]] = {}
        self.waiters: dict[str, list[dict[str, Any]]] = {}
        self.tombstones: dict[str, dict[str, int]] = {}
        self.holds: dict[str, dict[str, dict[str, Any]]] = {}
        self.notifications: list[tuple[str, str]] = []
        self.wakeups: set[tuple[str, str]] = set()

    def saved(self, names: tuple[str, ...]) -> Any:
        """A copy of what a transaction may change."""
        return (
            {name: dict(self.locks[name]) for name in names if name in self.locks},
            {n: [dict(w) for w in self.waiters[n]] for n in names if n in self.waiters},
            {name: dict(self.tombstones[name]) for name in names if name in self.tombstones},
            {n: {i: dict(h) for i, h in self.holds[n].items()} for n in names if n in self.holds},
        )

    def restore(self, names: tuple[str, ...], saved: Any) -> None:
        """Roll a transaction back."""
        self.changes += 1
        tables = (self.locks, self.waiters, self.tombstones, self.holds)
        for table, rows in zip(tables, saved, strict=True):
            for name in names:
                table.pop(name, None)  # type: ignore[attr-defined]
            table.update(rows)  # type: ignore[attr-defined]

    def do(self, part: Part) -> Result:
        """Execute a statement."""
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
            "free_from": row["free_from"] if row is not None else None,
            **{"step": 0, "offered": 0},
            **{
                column: row[column] if row is not None else 0
                for column in ("permits", "lapsed_offer")
            },
            **{column: values[column] for column in ("id", "client", "metadata")},
            "expires": now + values["lease"],
        }
        return [(token,)]

    def _held_by(self, values: dict[str, Any]) -> dict[str, Any] | None:
        row = self.locks.get(values["name"])
        return row if row is not None and row["id"] == values["id"] else None

    def do_confirm(self, values: dict[str, Any]) -> list[Any]:
        """The fast path from a hand-off to a whole lease."""
        return self.do_renew(values)

    def do_renew(self, values: dict[str, Any]) -> list[Any]:
        """Renew: the hold ends at the end of a lease from now, or later, unless it has ended."""
        row = self._held_by(values)
        if row is None or row["expires"] <= self.micros():
            return []
        row["expires"] = max(row["expires"], self.micros() + values["lease"])
        row["offered"] = 0
        return [(row["token"],)]

    def do_release_uncontended(self, values: dict[str, Any]) -> list[Any]:
        """The fast path of release."""
        row = self._held_by(values)
        if row is None or row["pending"]:
            return []
        row["id"] = row["free_from"] = None
        return [()]

    def do_create_lock(self, values: dict[str, Any]) -> list[Any]:
        """Create the row."""
        free = dict.fromkeys(HOLD) | dict.fromkeys(MORE, 0)
        free |= {"token": 0, "pending": 0, "since": self.micros()}
        return [self.locks.setdefault(values["name"], free)]

    def do_lock(self, values: dict[str, Any]) -> list[Any]:
        """The row, which the transaction has locked."""
        row = self.locks.get(values["name"])
        return [(row["token"], row["pending"], *(row[w] for w in HOLD + MORE))] if row else []

    def do_expire_waiters(self, values: dict[str, Any]) -> list[Any]:
        """Delete the expired rows of one name."""
        queue = self.waiters.get(values["name"], [])
        gone = [waiter for waiter in queue if waiter["expires"] <= self.micros()]
        self.waiters[values["name"]] = [waiter for waiter in queue if waiter not in gone]
        return gone

    def do_expire_tombstones(self, values: dict[str, Any]) -> list[Any]:
        """Delete the expired rows of one name."""
        tombstones = self.tombstones.get(values["name"], {})
        gone = [holder for holder, expires in tombstones.items() if expires <= self.micros()]
        return [tombstones.pop(holder) for holder in gone]

    def do_tombstone(self, values: dict[str, Any]) -> list[Any]:
        """Whether the claim has one, and the watchers."""
        holder, marks = values["id"], self.tombstones.get(values["name"], {})
        return [(mark,) for mark in marks if mark == holder or mark.startswith("watch")]

    def do_waiters(self, values: dict[str, Any]) -> list[Any]:
        """The head of the queue, its tail, and the neighbours of the claim."""
        queue = sorted(self.waiters.get(values["name"], []), key=_ticket)
        exclusive = [w["ticket"] for w in queue if w["mode"] == "exclusive"]
        own = [
            w["ticket"] for each in self.waiters.values() for w in each if w["id"] == values["id"]
        ]
        read = {w["ticket"] for w in queue[-2:]}
        for place in own:
            read |= {w["ticket"] for w in [w for w in queue if w["ticket"] < place][-2:]}
            read |= {w["ticket"] for w in [w for w in queue if w["ticket"] >= place][:2]}
        ends = exclusive[values["exclusives"] :][:1]
        head = [w["ticket"] for w in queue if not ends or w["ticket"] <= ends[0]]
        read.update(head[: values["most"]])
        return [
            (
                *(w["ticket"], *(w[column] for column in CLAIM), w["polls"], w["liveness_key"]),
                *(w["mode"], w["permits"], w["expires"]),
                w["liveness_key"] is not None and not self.lives(w["liveness_key"]),
            )
            for w in queue
            if w["ticket"] in read
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

    def do_holds(self, values: dict[str, Any]) -> list[Any]:
        """The holds that are not exclusive."""
        found = sorted(self.holds.get(values["name"], {}).values(), key=lambda hold: hold["token"])
        return [tuple(hold[column] for column in SHARED) for hold in found]

    def do_one_holds(self, values: dict[str, Any]) -> list[Any]:
        """Those that have not ended, with the limit of the semaphore."""
        name = values["name"]
        limit = self.locks[name]["permits"] if name in self.locks else 0
        rows = self.do_holds(values)
        return [(name, *row, limit) for row in rows if row[4] > self.micros()]

    def do_all_holds(self, values: dict[str, Any]) -> list[Any]:
        """Of all locks."""
        return [row for name in sorted(self.holds) for row in self.do_one_holds({"name": name})]

    def do_put_hold(self, values: dict[str, Any]) -> list[Any]:
        """Record a hold, or changes of one."""
        name = values.pop("name")
        self.holds.setdefault(name, {}).setdefault(values["id"], values).update(values)
        return [()]

    def do_remove_hold(self, values: dict[str, Any]) -> list[Any]:
        """Delete a hold."""
        self.holds.get(values["name"], {}).pop(values["id"], None)
        return [()]

    def do_renew_hold(self, values: dict[str, Any]) -> list[Any]:
        """End no sooner than a lease from now."""
        hold = self.holds.get(values["name"], {}).get(values["id"])
        if hold is None or hold["expires"] <= self.micros():
            return []
        hold["expires"] = max(hold["expires"], self.micros() + values["lease"])
        hold["offered"] = 0
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
        """A notification is delivered when the transaction commits."""
        self.notifications.append((values["channel"], values["id"]))
        return [()]

    def do_store_wakeup(self, values: dict[str, Any]) -> list[Any]:
        """Store a wake-up for a client that polls."""
        self.wakeups.add((values["client"], values["id"]))
        return [()]

    # --- inspection -----------------------------------------------------------------------------

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
            (values["name"], *(waiter[column] for column in (*CLAIM, "mode", "permits")))
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
