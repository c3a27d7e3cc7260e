"""What viewers of the page receive: the state of all locks once, then what has changed.

The state has a row for each lock. A row has the lock's oldest holder and counts the rest, so that
its size does not depend on the number of waiters. Each text is made once for all viewers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leaselock._core.client.deadlocks import owner_of
from leaselock._core.client.deadlocks import waits as edges_of
from leaselock.documents import deadlock_document, lock_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock import Holder, LockInfo, Waiter
    from leaselock._core.client.deadlocks import WaitEdge
    from leaselock.live import Change, Monitor, View

    Document = dict[str, object]

# How many recent changes a viewer receives at first.
RECENT = 100
# Seconds: the end of a lease is computed from the time left, which is read with a delay: at some
# moment of the read.
END_TOLERANCE = 0.5
# What a picture can show.
MOST_EDGES = 60
MOST_WAITERS_OF_A_HOLD = 6


class Feed:
    """Turns the views of a monitor into texts, for any number of viewers."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.view: View = monitor.view
        self.rows: dict[str, Document] = {}
        self._keys: dict[str, object] = {}
        self._before = -1
        self._change = ""
        self._state = ""
        self._graphs: dict[str | None, Document] = {}

    async def next(self, seen: int = 0) -> View:
        """The newest view with a number greater than *seen*; not older than the interval."""
        self._take(await self.monitor.next(seen))
        return self.view

    def text(self, seen: int) -> str:
        """The event for a viewer that has seen the view *seen*: what has changed, or the state."""
        if seen and seen == self._before:
            return self._change
        if not self._state:
            rows = {"locks": list(self.rows.values())}
            changes = [change_document(change) for change in self.view.recent[-RECENT:]]
            self._state = _event("state", self._head() | rows | {"changes": changes})
        return self._state

    def graph(self, name: str | None) -> Document:
        """The waits-for graph, of the owners around one lock if it is given."""
        if name is not None and name not in self.rows:
            return graph(self.view, name)  # there is no end of names that can be asked for
        if name not in self._graphs:
            self._graphs[name] = graph(self.view, name)
        return self._graphs[name]

    def _take(self, view: View) -> None:
        if view.number <= self.view.number:
            return
        # The changes of a view that was never taken are in no text: its viewers get the state.
        self._before = self.view.number if view.number == self.view.number + 1 else -1
        before, keys, self.view, self._state = self.rows, self._keys, view, ""
        self._graphs = {}
        self.rows = {lock.name: row(lock, view, before.get(lock.name, {})) for lock in view.locks}
        self._keys = {lock.name: _key_of(lock) for lock in view.locks}
        changed = [
            document
            for name, document in self.rows.items()
            if document != before.get(name) or self._keys[name] != keys[name]
        ]
        gone = [name for name in before if name not in self.rows]
        changes = [change_document(change) for change in view.changes]
        self._change = _event(
            "change", self._head() | {"locks": changed, "gone": gone, "changes": changes}
        )

    def _head(self) -> Document:
        view = self.view
        return {
            "number": view.number,
            "at": view.at,
            "took": view.took,
            "error": view.error,
            "grants_per_second": view.grants_per_second,
            "losses": view.losses,
            "deadlocks": [deadlock_document(deadlock) for deadlock in view.deadlocks],
        }


def _event(kind: str, data: Document) -> str:
    """An event of a stream: JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _key_of(lock: LockInfo) -> object:
    """What differs whenever the detail of a lock does, but for the time left."""
    holds = tuple((hold.token, hold.mode, hold.cooling_down) for hold in lock.holders)
    waits = ((one.host, one.pid, one.owner, one.since, one.mode) for one in lock.waiters)
    return holds, tuple(waits), lock.unreadable


def row(lock: LockInfo, view: View, before: Document) -> Document:
    """One lock in the table, as the viewers have it. *before* is its row in the view before."""
    hold = lock.holder
    waiting = [waiter.since for waiter in lock.waiters if waiter.since]
    document: Document = {
        "name": lock.name,
        "deadlocked": lock.name in view.deadlocked,
        "unreadable": lock.unreadable,
        "holders": len(lock.holders),
        "permits": lock.permits or None,
        "held_permits": sum(one.permits for one in lock.holders) if lock.permits else None,
        "waiters": len(lock.waiters),
        "waiting_since": min(waiting, default=None),
        "holder": None,
    }
    if hold is not None:
        visible = before.get("holder")
        known = visible.get("ends") if isinstance(visible, dict) else None
        document["holder"] = {
            **_person(hold),
            "since": hold.since or None,
            "token": hold.token,
            "ends": _end_of(hold, view, known),
            "mode": hold.mode,
            "detached": hold.detached,
            "cooling_down": hold.cooling_down,
        }
    return document


def _end_of(hold: Holder, view: View, known: float | None) -> float | None:
    """When a hold ends; the time that is known already if it differs by a delay only."""
    if hold.remaining is None:
        return None
    end = round(view.at + hold.remaining, 1)
    return known if known is not None and abs(known - end) < END_TOLERANCE + view.took else end


def _person(one: Holder | Waiter) -> Document:
    return {"host": one.host, "pid": one.pid, "thread": one.thread, "label": one.label}


def change_document(change: Change) -> Document:
    """A recent change as a JSON document."""
    return {
        "kind": change.kind,
        "name": change.name,
        "at": change.at,
        "seconds": change.seconds,
        "token": getattr(change.who, "token", None),
        **_person(change.who),
    }


def detail(view: View, name: str, most: int) -> Document | None:
    """One lock with its queue, of which at most *most* waiters are listed, and what happened to it;
    None if it is free.
    """
    lock = next((lock for lock in view.locks if lock.name == name), None)
    changes = [change_document(change) for change in view.recent if change.name == name]
    if lock is None and not changes:
        return None
    document = None
    if lock is not None:
        visible = lock._replace(waiters=lock.waiters[:most])
        document = lock_document(visible, deadlocked=name in view.deadlocked)
        document["waiter_count"] = len(lock.waiters)
    return {"at": view.at, "lock": document, "changes": changes}


# --- the waits-for graph ------------------------------------------------------------------------


def graph(view: View, name: str | None = None) -> Document:
    """The waits-for graph: owners, and who of them waits for which. Of a lock *name* only the part
    that leads to it or from it. Deadlocks come first, then owners that both hold and wait, then the
    longest waits; what is too much for a picture is counted.
    """
    stuck = {wait for deadlock in view.deadlocks for wait in deadlock}
    edges = [wait for each in edges_of(view.locks).values() for wait in each]
    if name is not None:
        edges = _around(edges, name)
    holding = {owner_of(wait.waiter) for wait in edges} & {owner_of(wait.holder) for wait in edges}

    def rank(wait: WaitEdge) -> tuple[bool, bool, float]:
        return wait not in stuck, owner_of(wait.waiter) not in holding, wait.waiter.since

    kept: list[WaitEdge] = []
    counted: dict[tuple[object, ...], int] = {}
    for wait in sorted(edges, key=rank):
        key = (wait.name, wait.holder.token, owner_of(wait.holder))
        few = counted.get(key, 0) < MOST_WAITERS_OF_A_HOLD
        if len(kept) < MOST_EDGES and (few or wait in stuck):
            kept.append(wait)
            counted[key] = counted.get(key, 0) + 1
    return {
        "at": view.at,
        "owners": _owners(kept, stuck),
        "waits": [
            {
                "name": wait.name,
                "waiter": _id(wait.waiter),
                "holder": _id(wait.holder),
                "since": wait.waiter.since,
                "deadlocked": wait in stuck,
            }
            for wait in kept
        ],
        "left_out": len(edges) - len(kept),
    }


def _around(edges: Sequence[WaitEdge], name: str) -> list[WaitEdge]:
    """The waits for a lock, those of its holders and so on, and those for what its waiters hold."""
    ahead: dict[object, list[WaitEdge]] = {}
    behind: dict[object, list[WaitEdge]] = {}
    for wait in edges:
        ahead.setdefault(owner_of(wait.waiter), []).append(wait)
        behind.setdefault(owner_of(wait.holder), []).append(wait)
    start = [wait for wait in edges if wait.name == name]
    waits = dict.fromkeys(start)
    for following, end in ((ahead, "holder"), (behind, "waiter")):
        pending = {owner_of(getattr(wait, end)) for wait in start}
        seen = set(pending)
        while pending:
            for wait in following.get(pending.pop(), ()):
                waits[wait] = None
                owner = owner_of(getattr(wait, end))
                if owner not in seen:
                    seen.add(owner)
                    pending.add(owner)
    return list(waits)


def _owners(edges: Sequence[WaitEdge], stuck: set[WaitEdge]) -> list[Document]:
    people = {_id(one): one for wait in edges for one in (wait.waiter, wait.holder)}
    deadlocked = {_id(wait.waiter) for wait in stuck}
    return [
        {"id": key, **_person(one), "deadlocked": key in deadlocked} for key, one in people.items()
    ]


def _id(one: Holder | Waiter) -> str:
    return json.dumps(owner_of(one))
