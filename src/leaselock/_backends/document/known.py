"""What a client knows of the documents: each as it was seen last, with the age of its entries.

Nothing is asked here. The engine hands in what it has read and written, and the backend what the
listener has reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.document.adapter import Found
from leaselock._backends.document.content import EMPTY, Content, decoded
from leaselock._backends.document.row import DRIFT, RowContext
from leaselock._core.contract.backend import Unreadable
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock._backends.document.waiting import Waiters

# How many documents a client remembers, at most, besides those that it waits for.
MOST_KNOWN = 2_000
# What an exchange with the store takes, until it was measured, and how fast that is adapted.
FIRST_TRIP, SMOOTHING = 0.002, 0.2


class View:
    """What this client knows of one document."""

    __slots__ = ("at", "changed", "content", "first_seen", "found", "stale")

    def __init__(self) -> None:
        self.found = Found(None, None)
        self.content = EMPTY
        self.at = -FOREVER
        """When it was seen."""
        self.changed = -FOREVER
        """When it was seen to be another one than before."""
        self.stale = False
        """It has changed, and was not seen since."""
        self.first_seen: dict[tuple[str, int], float] = {}


class Clock(NamedTuple):
    """The clock of the store: what it said, and when that was asked."""

    said: float
    sent: float


def _age(stamp: float | None, said: float | None) -> float:
    """For how many seconds an entry was there at least when the store said its time."""
    if said is None or stamp is None:
        return 0.0
    return max(0.0, said - stamp) * (1.0 - DRIFT)


class KnownDocuments:
    """The documents that one client has seen, and the clock of their store."""

    def __init__(
        self,
        waiters: Waiters,
        describe: Callable[[str], tuple[str, str]],
        now: Callable[[], float],
        wall: Callable[[], float],
        clock_uncertainty: float,
    ) -> None:
        self.waiters, self.describe = waiters, describe
        self.now, self.wall = now, wall
        self.clock_uncertainty = clock_uncertainty
        self.reset()

    def reset(self) -> None:
        """Know nothing."""
        self.views: dict[str, View] = {}
        self.trip = FIRST_TRIP
        self.clock: Clock | None = None

    # --- time

    def measure(self, sent: float, said: float | None) -> None:
        """Learn from a reply how long one takes, and the time of the store."""
        self.trip += SMOOTHING * (self.now() - sent - self.trip)
        if said is not None:
            self.clock = Clock(said, sent)

    def store_time(self) -> float | None:
        """The latest that the store's clock may show now."""
        if self.clock is None:
            return None
        since = (self.now() - self.clock.sent) * (1.0 + DRIFT)
        return round(self.clock.said + self.clock_uncertainty + since, 3)

    # --- what was seen

    def view(self, name: str) -> View:
        """The view of a document; a new one if it was never seen."""
        view = self.views.get(name)
        if view is None:
            if len(self.views) >= MOST_KNOWN:
                self._forget_some()
            view = self.views[name] = View()
        return view

    def _forget_some(self) -> None:
        waited = self.waiters.names()
        for name in [name for name in self.views if name not in waited][: MOST_KNOWN // 2]:
            del self.views[name]

    def versions(self, names: Iterable[str]) -> dict[str, Any]:
        """The versions of those documents that were seen as they are now."""
        views = {name: self.views[name] for name in names if name in self.views}
        return {name: view.found.version for name, view in views.items() if not view.stale}

    def decoded(self, name: str, found: Found) -> Content:
        """The content of what was found; Unreadable if it has none."""
        view = self.views.get(name)
        if view is not None and view.found is found:
            return view.content
        return decoded(found.value, name, *self.describe(name))

    def row_context(
        self, name: str, client: str, *, watches: bool, shown: bool = False
    ) -> RowContext:
        """What the rules need besides the document."""
        view = self.views.get(name)
        first_seen = view.first_seen if view is not None else {}
        stamp = self.store_time()
        return RowContext(first_seen, client, self.now(), self.wall(), stamp, watches, shown)

    def learn(self, name: str, found: Found, sent: float | None, asker: str = "") -> None:
        """A document was read by a request that was *sent* then, or reported, if none was."""
        try:
            content = decoded(found.value, name, *self.describe(name))
        except Unreadable:
            # Every waiter asks, and its request says so.
            self.views.pop(name, None)
            self.waiters.wake_all_of(name)
            return
        self.take_in(name, found, content, sent, self.now(), asker)

    def miss(self, name: str) -> None:
        """A document has changed in a way that is not known, or was deleted."""
        self.view(name).stale = True
        self.waiters.wake_all_of(name)

    def take_in(
        self,
        name: str,
        found: Found,
        content: Content,
        sent: float | None,
        since: float,
        asker: str,
    ) -> None:
        """Note what there is, *since* that time at least, and wake the claims of this client that
        may have something to do now.
        """
        view = self.view(name)
        before = view.content
        # The number of writes falls only when the document was deleted. A reply to a request that
        # was sent after the last look has seen that; another reply, and a report, may be late.
        if content.n < before.n and (sent is None or sent <= view.at):
            return
        if content.n != before.n:
            view.changed = self.now()
        view.first_seen = self._first_seen(view, content, since, found.now)
        view.found, view.content, view.at, view.stale = found, content, self.now(), False
        if content.n != before.n:
            self.waiters.wake_concerned(name, before, content, asker)

    def _first_seen(
        self, view: View, content: Content, since: float, said: float | None
    ) -> dict[tuple[str, int], float]:
        """Since when each entry of a document was there. If both the document and the reply have
        the time of the store, that was before it was seen.
        """
        first_seen: dict[tuple[str, int], float] = {}
        for held in content.holds:
            key = (held.record.id, held.beat)
            known = view.first_seen.get(key)
            if known is None:
                known = since - _age(held.stamp, said)
            first_seen[key] = known
        for claim in content.queue:
            key = (claim.id, int(claim.last_seen))
            known = view.first_seen.get(key)
            if known is None:
                known = since - _age(content.stamps.get(claim.id), said)
            first_seen[key] = known
        return first_seen
