"""The tables of protocol "lease" in memory, and what each of its statements does to them.

For the model alone. Each method is the statement of that title in `statements/postgres/lease.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.script import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.script import Part, Script

HOLD = ("holder", "client", "tie", "expires", "about", "since")
HELD = ("holder", "client", "tie", "token", "expires", "about", "since")
CLAIM = ("holder", "client", "lease", "about", "since")


class Tables:
    """The rows, and what each statement does to them."""

    def __init__(
        self, micros: Callable[[], int], lives: Callable[[Any], bool], *, makes: bool = True
    ) -> None:
        self.micros = micros
        # PostgreSQL's short way in makes the row where there is none; MySQL's does not.
        self.makes = makes
        self.lives = lives
        # How often anything may have changed.
        self.changes = 0
        self.locks: dict[str, dict[str, Any]] = {}
        self.waiters: dict[str, list[dict[str, Any]]] = {}
        self.graves: dict[str, dict[str, int]] = {}
        self.notices: list[tuple[str, str]] = []
        self.words: set[tuple[str, str]] = set()

    def saved(self, names: tuple[str, ...]) -> Any:
        """What a transaction may change, as it is."""
        return (
            {name: dict(self.locks[name]) for name in names if name in self.locks},
            {n: [dict(w) for w in self.waiters[n]] for n in names if n in self.waiters},
            {name: dict(self.graves[name]) for name in names if name in self.graves},
        )

    def restore(self, names: tuple[str, ...], saved: Any) -> None:
        """As if the transaction had not been."""
        self.changes += 1
        for table, rows in zip((self.locks, self.waiters, self.graves), saved, strict=True):
            for name in names:
                table.pop(name, None)  # type: ignore[attr-defined]
            table.update(rows)  # type: ignore[attr-defined]

    def do(self, part: Part) -> Result:
        """One statement."""
        self.changes += 1
        title, words = (part, {}) if isinstance(part, str) else part
        rows = getattr(self, "do_" + title.replace(" ", "_"), _nothing)(dict(words))
        return rows if isinstance(rows, Result) else Result(rows, len(rows))

    def do_now(self, words: dict[str, Any]) -> list[Any]:
        """The server's clock."""
        return [(self.micros(),)]

    def do_take(self, words: dict[str, Any]) -> list[Any]:
        """The short way in."""
        row = self.locks.get(words["name"])
        now = self.micros()
        if row is None and not self.makes:
            return []
        if row is not None and (row["holder"] is not None or row["beside"]):
            return []
        token = max(now, row["token"] + 1 if row is not None else 0)
        self.locks[words["name"]] = {
            **{"token": token, "beside": 0, "tie": "either", "since": now},
            **{word: words[word] for word in ("holder", "client", "about")},
            "expires": now + words["lease"],
        }
        return [(token,)]

    def _held_by(self, words: dict[str, Any]) -> dict[str, Any] | None:
        row = self.locks.get(words["name"])
        return row if row is not None and row["holder"] == words["holder"] else None

    def do_confirm(self, words: dict[str, Any]) -> list[Any]:
        """The short way from a hand-over to a whole lease."""
        row = self._held_by(words)
        if row is None or row["expires"] <= self.micros():
            return []
        return self.do_renew(words)

    def do_renew(self, words: dict[str, Any]) -> list[Any]:
        """Not sooner than a lease from now."""
        row = self._held_by(words)
        if row is None:
            return []
        row["expires"] = max(row["expires"], self.micros() + words["lease"])
        return [(row["token"],)]

    def do_drop(self, words: dict[str, Any]) -> list[Any]:
        """The short way out."""
        row = self._held_by(words)
        if row is None or row["beside"]:
            return []
        row["holder"] = None
        return [()]

    def do_make(self, words: dict[str, Any]) -> list[Any]:
        """A row to lock."""
        free = dict.fromkeys(HOLD)
        return [self.locks.setdefault(words["name"], {"token": 0, "beside": 0, **free})]

    def do_lock(self, words: dict[str, Any]) -> list[Any]:
        """The row, which its transaction has locked by now."""
        row = self.locks.get(words["name"])
        return [(row["token"], row["beside"], *(row[w] for w in HOLD))] if row else []

    def do_weed_waiters(self, words: dict[str, Any]) -> list[Any]:
        """Of one name."""
        queue = self.waiters.get(words["name"], [])
        gone = [waiter for waiter in queue if waiter["expires"] <= self.micros()]
        self.waiters[words["name"]] = [waiter for waiter in queue if waiter not in gone]
        return gone

    def do_weed_graves(self, words: dict[str, Any]) -> list[Any]:
        """Of one name."""
        graves = self.graves.get(words["name"], {})
        gone = [holder for holder, expires in graves.items() if expires <= self.micros()]
        return [graves.pop(holder) for holder in gone]

    def do_buried(self, words: dict[str, Any]) -> list[Any]:
        """Whether it is."""
        holder = words["holder"]
        return [(holder,)] if holder in self.graves.get(words["name"], {}) else []

    def do_waiters(self, words: dict[str, Any]) -> list[Any]:
        """Head, tail, and who is beside the one that asks: here they are few, so all of them."""
        queue = self.waiters.get(words["name"], [])
        return [
            (
                *(w["ticket"], *(w[word] for word in CLAIM), w["polls"], w["sign"]),
                w["sign"] is not None and not self.lives(w["sign"]),
            )
            for w in queue
        ]

    def do_store(self, words: dict[str, Any]) -> list[Any]:
        """The hold as the rules left it."""
        self.locks[words.pop("name")] = words
        return [()]

    def do_join(self, words: dict[str, Any]) -> list[Any]:
        """At the tail."""
        self.waiters.setdefault(words.pop("name"), []).append(words)
        return [()]

    def do_stay(self, words: dict[str, Any]) -> list[Any]:
        """It was seen."""
        for waiter in self.waiters.get(words["name"], []):
            if waiter["holder"] == words["holder"]:
                waiter.update({word: words[word] for word in ("expires", "polls", "sign")})
        return [()]

    def do_quit(self, words: dict[str, Any]) -> list[Any]:
        """Out of the queue."""
        queue = self.waiters.get(words["name"], [])
        self.waiters[words["name"]] = [w for w in queue if w["holder"] != words["holder"]]
        return [()]

    def do_bury(self, words: dict[str, Any]) -> list[Any]:
        """Given up for good."""
        self.graves.setdefault(words["name"], {})[words["holder"]] = words["expires"]
        return [()]

    def do_wake(self, words: dict[str, Any]) -> list[Any]:
        """Sent when the transaction is committed."""
        self.notices.append((words["channel"], words["holder"]))
        return [()]

    def do_leave_word(self, words: dict[str, Any]) -> list[Any]:
        """For a client that has to look."""
        self.words.add((words["client"], words["holder"]))
        return [()]

    # --- looking --------------------------------------------------------------------------------

    def do_one(self, words: dict[str, Any]) -> list[Any]:
        """Who holds one lock."""
        row, now = self.locks.get(words["name"]), self.micros()
        if row is None or row["holder"] is None or row["expires"] <= now:
            return []
        return [(words["name"], *(row[word] for word in HELD))]

    def do_all(self, words: dict[str, Any]) -> list[Any]:
        """Who holds what."""
        return [row for name in sorted(self.locks) for row in self.do_one({"name": name})]

    def do_queue(self, words: dict[str, Any]) -> list[Any]:
        """Who waits for one lock."""
        return [
            (words["name"], *(waiter[word] for word in CLAIM))
            for waiter in sorted(self.waiters.get(words["name"], []), key=_ticket)
            if waiter["expires"] > self.micros()
        ]

    def do_queues(self, words: dict[str, Any]) -> list[Any]:
        """Who waits for what."""
        return [row for name in sorted(self.waiters) for row in self.do_queue({"name": name})]


def _ticket(waiter: dict[str, Any]) -> int:
    ticket: int = waiter["ticket"]
    return ticket


def _nothing(words: dict[str, Any]) -> list[Any]:
    return []


def names_of(script: Script) -> tuple[str, ...]:
    """The rows that a script wants to have locked."""
    words = [part[1] for part in script if not isinstance(part, str)]
    return tuple(dict.fromkeys(str(each["name"]) for each in words if "name" in each))
