"""The protocol `document`: locks in a store that can compare and set one value.

Each lock is one document. A request decides by the `rules` on the document that this client knows,
and writes the result, if no other client was faster: then it decides again on what that one has
left. An answer without a write needs a document that was read for it, or seen after the last answer
to the same claim.

Waiters learn of changes from a listener, if the store has one; otherwise they read at intervals.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from leaselock._backends.document.adapter import (
    Changes,
    Delete,
    Found,
    Get,
    List,
    Page,
    Put,
    Stored,
)
from leaselock._backends.document.content import EMPTY, Content, Held, decoded, encoded
from leaselock._backends.document.row import DRIFT, MARGIN, ROLL_POSITIONS, DocumentRow, RowContext
from leaselock._core import rules, timing
from leaselock._core.backend import (
    ALL_MODES,
    Acquire,
    Busy,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Converted,
    Doctor,
    Inspect,
    LockState,
    Renew,
    Setup,
    Unreadable,
    Watch,
    Watched,
    matching,
)
from leaselock._core.effects import FOREVER, Call, Request, Signal, Sleep, Spawn, Wait
from leaselock._core.maintenance import half_way
from leaselock._core.queue import QueueBackend
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.document.adapter import Changed, Traits
    from leaselock._core.effects import Operation

T = TypeVar("T")
R = TypeVar("R")
# How many documents a client remembers, at most, besides those that it waits for.
MOST_KNOWN = 10_000
# For how many seconds a listener goes on reporting a name after its last waiter: that one holds the
# lock now, and a client that knows the present document releases it with one request.
LINGER = 5.0
# How a waiter polls: after this part of the time since the last change, within bounds.
PATIENCE = 0.15
# After a conflict, who ends or keeps a hold comes back sooner than others: they wait for that.
URGENT = 0.1
# What an exchange with the store takes, until it was measured, and how fast that is adapted.
FIRST_TRIP, SMOOTHING = 0.002, 0.2
# The answer to an acquire that other clients outran until its time was over: the lock was in use
# each time, and the store does answer. One that waits asks again at once.
OUTRUN: Any = Busy(None, 0.0, ())
# For how many seconds longer than others a document is kept whose holds were never released.
ABANDONED = 86400.0


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


def _holders(content: Content) -> list[tuple[str, str, int]]:
    """Who holds the lock, and how."""
    return [(held.record.id, held.record.mode, held.record.token) for held in content.holds]


class Batch(Generic[T]):
    """One request for each of many names, several of which are under way at the same time."""

    def __init__(self, ask: Callable[[str], Operation[T]], names: Iterable[str]) -> None:
        self.ask = ask
        self.names = list(names)
        self.open = len(self.names)
        self.answers: dict[str, T] = {}
        self.failure: StoreError | None = None
        self.done = Signal()

    async def work(self) -> None:
        """Ask about one name after the other, as long as there are any."""
        while self.names:
            name = self.names.pop()
            try:
                self.answers[name] = await self.ask(name)
            except StoreError as error:
                self.failure = error
            self.open -= 1
        if not self.open:
            self.done.set()


CAPABILITIES = Capabilities(
    clock_drift=DRIFT,
    clock_margin=MARGIN,
    detects_death=False,
    inheritable=False,
    token_ranges=True,
    min_hold=True,
    modes=ALL_MODES,
)


class DocumentBackend(QueueBackend):
    """Locks in documents. *store* is the node that has them, *listener* the node that reports
    changes, or None.
    """

    def __init__(
        self,
        store: Any,
        listener: Any,
        traits: Traits,
        *,
        describe: Callable[[str], tuple[str, str]],
        now: Callable[[], float],
        wall: Callable[[], float],
        random: Callable[[], float],
        random_id: Callable[[], str],
        token_ttl: float,
    ) -> None:
        super().__init__(CAPABILITIES._replace(notifies_changes=listener is not None))
        self.store, self.listener, self.traits = store, listener, traits
        self.describe, self.now, self.wall = describe, now, wall
        self.random, self.random_id, self.token_ttl = random, random_id, token_ttl
        self._forget_all()

    def _forget_all(self) -> None:
        # Each write has an id of its own.
        self.nonce, self.writes = self.random_id(), 0
        self.views: dict[str, View] = {}
        # The names that the claims which may be woken wait for, and those of them that watch.
        self.claims: dict[str, str] = {}
        self.watchers: set[str] = set()
        # The names of the claims that wait: those that were answered, and not granted.
        self.waiting: dict[str, str] = {}
        # When each waiting claim was last answered.
        self.answered: dict[str, float] = {}
        # Until when each name is to be reported, and the names that the listener was told.
        self.listened: dict[str, float] = {}
        self.reported: dict[str, Any] = {}
        # What interrupts the renewer, once it has begun to wait.
        self.changed: Signal | None = None
        # Claims of this client that wait for their turn to ask, by the names that one asks for.
        self.turns: dict[str, list[Signal]] = {}
        self.trip = FIRST_TRIP
        self.clock: Clock | None = None

    # --- one request

    async def _apply(
        self,
        name: str,
        client: str,
        work: Callable[[DocumentRow], T],
        until: float,
        *,
        asker: str = "",
        since: float = FOREVER,
        urgent: bool = False,
        shown: bool = False,
        outrun: T | None = None,
    ) -> T:
        """Carry out *work* on the document. What was seen after *since* is new enough to answer
        without a write. To write, everything is: the store compares. If others change the document
        until the time is over, the answer is *outrun*; NotApplied without one.
        """
        view = self.views.get(name)
        found = None if view is None else view.found
        fresh = view is not None and view.at > since and not view.stale
        began, slowest = self.now(), 0.0
        conflicts, hurry_at = 0, half_way(began, until)
        while True:
            if found is None:
                found, fresh = await self._read(name, until, asker), True
            content = self._decoded(name, found)
            row = DocumentRow(content, self._row_context(name, client, shown=shown))
            result = work(row)
            changed = row.changed()
            if changed is None:
                if fresh:
                    return result
                found = None
                continue
            found, done = await self._write(name, changed, found.version, until, asker)
            if done:
                return result
            conflicts, fresh = conflicts + 1, True
            slowest = max(slowest, self.now() - began)
            # A write without time for its reply would leave the claim in doubt.
            last = until if outrun is None else until - slowest
            if self.now() >= last:
                if outrun is not None:
                    return outrun
                raise NotApplied(f"other clients change the lock {name!r} all the time")
            if conflicts > 1:
                pause = self.trip * self.random() * 2.0 ** min(conflicts - 1, 5)
                # One that was outrun for half of its time waits for the others no more.
                hurries = urgent or self.now() >= hurry_at
                await Sleep(min(last, self.now() + pause * (URGENT if hurries else 1.0)))
                if conflicts > 2 and not hurries:
                    found = None  # it has changed meanwhile
            began = self.now()

    async def _read(self, name: str, until: float, asker: str) -> Found:
        sent = self.now()
        found = await Call(self.store, Get(name), until)
        self._measure(sent, found.now)
        self._learn(name, found, sent, asker)
        return found

    async def _write(
        self, name: str, content: Content, version: Any, until: float, asker: str
    ) -> tuple[Found | None, bool]:
        """Write, and return whether that was done; else what there is, if the store says so."""
        self.writes += 1
        content = content._replace(by=f"{self.nonce}.{self.writes}")
        value, sent = encoded(content), self.now()
        reply = await Call(
            self.store, Put(name, value, version, self._unused_after(content)), until
        )
        if isinstance(reply, Stored):
            self._measure(sent, reply.now)
            found = Found(value, reply.version)
            # What this client has written lasts from before it was sent.
            self._take_in(name, found, content, sent, sent, asker)
            return found, True
        present = reply.found
        if present is None:
            return None, False
        self._measure(sent, present.now)
        self._learn(name, present, sent, asker)
        # A write that was repeated on its way finds itself.
        return present, present.value == value

    def _decoded(self, name: str, found: Found) -> Content:
        view = self.views.get(name)
        if view is not None and view.found is found:
            return view.content
        return decoded(found.value, name, *self.describe(name))

    def _row_context(self, name: str, client: str, *, shown: bool = False) -> RowContext:
        view = self.views.get(name)
        first_seen = view.first_seen if view is not None else {}
        listens = self.listener is not None
        stamp = self._store_time()
        return RowContext(first_seen, client, self.now(), self.wall(), stamp, listens, shown)

    def _unused_after(self, content: Content) -> float | None:
        """From which Unix time on a document, as it is now, is not needed any more."""
        if not self.token_ttl:
            return None
        if content.idle:
            return content.at + self.token_ttl
        longest = max([max(held.lasts, held.free or 0.0) for held in content.holds], default=0.0)
        return content.at + longest + max(self.token_ttl, ABANDONED)

    # --- time

    def _measure(self, sent: float, said: float | None) -> None:
        """Learn from a reply how long one takes, and the time of the store."""
        self.trip += SMOOTHING * (self.now() - sent - self.trip)
        if said is not None:
            self.clock = Clock(said, sent)

    def _store_time(self) -> float | None:
        """The latest that the store's clock may show now."""
        if self.clock is None:
            return None
        since = (self.now() - self.clock.sent) * (1.0 + DRIFT)
        return round(self.clock.said + self.traits.clock_uncertainty + since, 3)

    # --- what is known of the documents

    def _view(self, name: str) -> View:
        view = self.views.get(name)
        if view is None:
            if len(self.views) >= MOST_KNOWN:
                self._forget_some()
            view = self.views[name] = View()
        return view

    def _forget_some(self) -> None:
        waited = set(self.claims.values())
        for name in [name for name in self.views if name not in waited][: MOST_KNOWN // 2]:
            del self.views[name]

    def _learn(self, name: str, found: Found, sent: float | None, asker: str = "") -> None:
        """A document was read by a request that was *sent* then, or reported, if none was."""
        try:
            content = decoded(found.value, name, *self.describe(name))
        except Unreadable:
            # Every waiter asks, and its request says so.
            self.views.pop(name, None)
            self.wake([claim_id for claim_id, of in self.claims.items() if of == name])
            return
        self._take_in(name, found, content, sent, self.now(), asker)

    def _take_in(
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
        view = self._view(name)
        before = view.content
        # A reply may be older than what was seen after its request was sent, and so may a report.
        if content.n < before.n and (sent is None or sent <= view.at):
            return
        if content.n != before.n:
            view.changed = self.now()
        view.first_seen = self._first_seen(view, content, since, found.now)
        view.found, view.content, view.at, view.stale = found, content, self.now(), False
        if content.n != before.n and self.claims:
            self._wake_concerned(name, before, content, asker)

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
                known = since - self._age(held, said)
            first_seen[key] = known
        for claim in content.queue:
            waiter = (claim.id, int(claim.last_seen))
            first_seen[waiter] = view.first_seen.get(waiter, since)
        return first_seen

    def _age(self, held: Held, said: float | None) -> float:
        """For how many seconds a hold was there at least when the store said its time."""
        if said is None or held.stamp is None:
            return 0.0
        return max(0.0, said - held.stamp) * (1.0 - DRIFT)

    def _wake_concerned(self, name: str, before: Content, content: Content, asker: str) -> None:
        """Wake the claims that were granted the lock, that are not in the queue any more, and the
        first waiter, when the holds or the first waiter have changed; of an offer those that may
        have to show that they are alive; and those that watch, when the holds have changed or the
        first waiter has come.
        """
        holders, holds = _holders(before), _holders(content)
        queue = [claim.id for claim in content.queue]
        head_changed = queue[:1] != [claim.id for claim in before.queue[:1]]
        concerned: set[str] = set()
        if holds != holders:
            concerned |= self.watchers
            concerned |= {hold_id for hold_id, _, _ in holds}
            offered = any(held.record.offered for held in content.holds)
            concerned |= set(queue[: ROLL_POSITIONS if offered else 1])
        if head_changed:
            concerned |= set(queue[:1])
            if not before.queue:
                concerned |= self.watchers
        known = {*queue, *(hold_id for hold_id, _, _ in holds)}
        self.wake(
            [
                claim_id
                for claim_id, of in self.claims.items()
                if of == name and claim_id != asker
                if claim_id in concerned
                or (claim_id not in known and claim_id not in self.watchers)
            ]
        )

    # --- the requests

    def send(self, request: Request[R], until: float) -> Awaitable[R]:
        """Carry out one request."""
        answer: Any = self._answer(request, until)
        return answer  # type: ignore[no-any-return]

    async def _answer(self, request: Any, until: float) -> Any:
        kind = type(request)
        if kind is Acquire:
            return await self._acquire(request, until)
        if kind is Renew:
            return await self._renew(request.claims, until)
        if kind is Inspect:
            return await self._inspect(request, until)
        if kind is CollectGarbage:
            return await self._collect(request.position, until)
        if kind is Doctor or kind is Setup:
            return await Call(self.store, request, until)
        claim: Claim | None = getattr(request, "claim", None)
        name = request.name if claim is None else claim.name
        claim_id, client = ("", "") if claim is None else (claim.id, claim.client)
        reply = await self._apply(
            name,
            client,
            lambda row: rules.answer(lambda _: row, request),
            until,
            asker=claim_id,
            urgent=True,
            shown=kind is Watch,
        )
        if isinstance(reply, Converted) and reply.retry_after < rules.NEVER:
            reply = reply._replace(retry_after=self._look_again(name, 0, reply.retry_after))
        self._listen_to(name, claim_id)
        return reply

    async def _acquire(self, request: Acquire, until: float) -> Any:
        claim = request.claim
        since = self.answered.get(claim.id, FOREVER)
        position, roll_call = 0, rules.NEVER

        def work(row: DocumentRow) -> Any:
            nonlocal position, roll_call
            reply = rules.acquire(row, request)
            position, roll_call = row.position(claim.id), row.roll_call(claim.id)
            return reply

        if not await self._take_turn(claim.name, until):
            return OUTRUN
        try:
            reply = await self._apply(
                claim.name, claim.client, work, until, asker=claim.id, since=since, outrun=OUTRUN
            )
        finally:
            self._pass_turn(claim.name)
        if isinstance(reply, Busy) and request.wait and reply is not OUTRUN:
            self.answered[claim.id] = self.now()
            again = min(reply.retry_after, max(0.0, roll_call))
            reply = reply._replace(retry_after=self._look_again(claim.name, position, again))
            self._listen_to(claim.name, claim.id)
        return reply

    async def _take_turn(self, name: str, until: float) -> bool:
        """Let one claim of this client ask at a time for each name: they would only be in the way
        of one another. What ends or keeps a hold does not wait for its turn. False if the turn did
        not come in time because others outrun the claims before.
        """
        turns = self.turns.get(name)
        if turns is None:
            self.turns[name] = []
            return True
        turn, began = Signal(), self.now()
        turns.append(turn)
        try:
            await Wait(turn, until)
            # In the short time that a last request may have, no other one may have been answered.
            since = min(began, until - timing.TRY_TIMEOUT)
            if not turn.is_set and self._view(name).at <= since:
                raise NotApplied(f"earlier requests for {name!r} were not answered in time")
        except BaseException:
            if turn.is_set:
                self._pass_turn(name)
            elif turn in turns:
                turns.remove(turn)
            raise
        if not turn.is_set:
            turns.remove(turn)
        return turn.is_set

    def _pass_turn(self, name: str) -> None:
        turns = self.turns.get(name)
        if turns:
            turns.pop(0).set()
        else:
            self.turns.pop(name, None)

    def _look_again(self, name: str, position: int, at_most: float) -> float:
        """After how many seconds a waiter looks again: when the reply says, if changes are
        reported; otherwise sooner, the first waiters soonest.
        """
        if self.listener is not None:
            return at_most
        traits, view = self.traits, self.views.get(name)
        quiet = self.now() - view.changed if view is not None else 0.0
        soonest = max(traits.soonest_poll, self.trip)
        pause = min(traits.latest_poll, max(soonest, PATIENCE * quiet)) * (1 + position)
        return max(traits.soonest_poll, min(at_most, pause * (0.8 + 0.4 * self.random())))

    async def _renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """One write for each name, several at a time."""
        names: dict[str, list[Claim]] = {}
        for claim in claims:
            names.setdefault(claim.name, []).append(claim)

        async def renew(name: str) -> dict[str, bool]:
            mine = names[name]
            return await self._apply(
                name,
                mine[0].client,
                lambda row: {claim.id: rules.renew(row, claim) for claim in mine},
                until,
                urgent=True,
            )

        batch = await self._together(renew, names, until)
        answers = {
            claim_id: held for each in batch.answers.values() for claim_id, held in each.items()
        }
        if batch.failure is not None and not answers:
            raise batch.failure
        return [answers.get(claim.id) for claim in claims]

    async def _together(
        self, ask: Callable[[str], Operation[T]], names: Iterable[str], until: float
    ) -> Batch[T]:
        """Ask about each name, about several at a time; what was answered before *until*."""
        batch = Batch(ask, names)
        with suppress(RuntimeError):  # no thread can be started: one after the other, then
            for _ in range(min(self.traits.parallel, batch.open) - 1):
                await Spawn(batch.work(), "requests")
        await batch.work()
        if batch.open:
            await Wait(batch.done, until)
        return batch

    # --- all documents

    async def _inspect(self, request: Inspect, until: float) -> Sequence[LockState]:
        if request.name is not None:
            return (await self._inspect_name(request.name, until),)
        states: list[LockState] = []
        position: Any = None
        while True:
            page, sent = await self._list(position, until)
            unread: list[str] = []
            documents = dict(page.documents)
            for name in matching(documents, request.pattern):
                if (found := documents[name]) is None:
                    unread.append(name)
                else:
                    self._learn(name, found, sent)
                    states.append(self._state(name, found))
            if unread:
                states += await self._inspect_names(unread, until)
            position = page.position
            if position is None:
                return tuple(sorted([s for s in states if s.in_use], key=lambda state: state.name))

    async def _inspect_name(self, name: str, until: float) -> LockState:
        return self._state(name, await self._read(name, until, ""))

    async def _inspect_names(self, names: Sequence[str], until: float) -> Iterable[LockState]:
        batch = await self._together(partial(self._inspect_name, until=until), names, until)
        if batch.failure is not None:
            raise batch.failure
        if batch.open:
            raise NotApplied("reading all documents takes too long")
        return batch.answers.values()

    async def _list(self, position: Any, until: float) -> tuple[Page, float]:
        sent = self.now()
        return await Call(self.store, List(position), until), sent

    def _state(self, name: str, found: Found) -> LockState:
        try:
            content = self._decoded(name, found)
        except Unreadable as error:
            return LockState(name, (), (), unreadable=str(error))
        return rules.state(DocumentRow(content, self._row_context(name, "", shown=True)), name)

    async def _collect(self, position: Any, until: float) -> Collected:
        """Delete the documents of one page that are not needed any more. The position is that of a
        page, and what is left of the page before it.
        """
        enough = half_way(self.now(), until)
        following, unexamined = position or (None, ())
        documents: list[tuple[str, Found | None]] = [(name, None) for name in unexamined]
        if not documents:
            page, _ = await self._list(following, until)
            documents, following = list(page.documents), page.position
        removed = 0
        while documents and self.now() < enough:
            removed += await self._remove_unused(*documents.pop(), until)
        unexamined = tuple([name for name, _ in documents])
        return Collected(
            removed, (following, unexamined) if unexamined or following is not None else None
        )

    async def _remove_unused(self, name: str, found: Found | None, until: float) -> bool:
        if found is None:
            found = await Call(self.store, Get(name), until)
        try:
            unused_after = self._unused_after(self._decoded(name, found))
        except Unreadable:
            return False
        if found.value is None or unused_after is None or unused_after > self.wall():
            return False
        return await Call(self.store, Delete(name, found.version), until)

    # --- waiting

    def expect_wakeup(self, claim: Claim) -> None:
        """Arm the claim's signal, and remember what it waits for."""
        super().expect_wakeup(claim)
        self.claims[claim.id] = claim.name

    async def request(self, request: Request[R], until: float) -> R:
        """Send one request. A claim that watches is woken by every change of the holds."""
        reply = await super().request(request, until)
        if isinstance(reply, Watched):
            self.watchers.add(request.expects().id)
        return reply

    async def start_listening(self, client: str) -> None:
        """Have the names reported that are waited for, once their documents were seen."""

    def forget(self, claim: Claim) -> None:
        """Stop waiting."""
        super().forget(claim)
        self.answered.pop(claim.id, None)
        self.watchers.discard(claim.id)
        self.claims.pop(claim.id, None)
        name = self.waiting.pop(claim.id, None)
        if name is not None and self.listener is not None:
            self.listened[name] = self.now() + LINGER

    def _listen_to(self, name: str, claim_id: str) -> None:
        """Have the name reported from now on, if the claim waits for it."""
        if claim_id not in self.claims:
            return
        self.waiting[claim_id] = name
        new = name not in self.reported
        if new and self.listener is not None and self.changed is not None:
            self.changed.set()

    def _versions(self) -> dict[str, Any]:
        """The names to listen to, and what was seen of each."""
        now = self.now()
        # In the order of the claims, as no set of texts is: a run can be repeated.
        waited = dict.fromkeys(self.waiting.values(), FOREVER)
        self.listened = {
            name: until
            for name, until in self.listened.items()
            if until > now and name not in waited
        }
        self.listened |= waited
        views = {name: self.views[name] for name in self.listened if name in self.views}
        return {name: view.found.version for name, view in views.items() if not view.stale}

    async def wait_and_listen(self, changed: Signal, until: float) -> None:
        """Wait for *changed*, at most until *until*; take in what the listener reports."""
        self.changed = changed
        while self.listener is not None and not changed.is_set:
            self.reported = self._versions()
            if not self.reported:
                break
            try:
                changes = await Call(self.listener, Changes(self.reported, changed), until)
            except StoreError:
                # Every wait also looks again by itself.
                await Wait(changed, min(until, self.now() + timing.LONGEST_PAUSE))
                if self.now() >= until:
                    return  # the renewer has something to do
                continue
            if not changes:
                return
            for change in changes:
                self._report(change)
        await Wait(changed, until)

    def _report(self, change: Changed) -> None:
        if change.found is not None and change.found.value is not None:
            self._learn(change.name, change.found, None)
        else:
            # Deleted, or what is there is not known.
            self._view(change.name).stale = True
            self.wake([claim_id for claim_id, of in self.claims.items() if of == change.name])

    def after_fork(self) -> None:
        """Drop the waiters, and be another writer."""
        super().after_fork()
        self._forget_all()
