"""The protocol `document`: locks in a store that can compare and set one value.

Each lock is one document. A request decides by the `rules` on the document that this client knows,
and writes the result, if no other client was faster: then it decides again on what that one has
left. An answer without a write needs a document that was read for it, or seen after the last answer
to the same claim.

Waiters learn of changes from a listener, if the store has one; otherwise they read at intervals.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.document.adapter import (
    Changes,
    Delete,
    Found,
    Get,
)
from leaselock._backends.document.engine import Engine
from leaselock._backends.document.known import KnownDocuments
from leaselock._backends.document.row import DRIFT, MARGIN, DocumentRow
from leaselock._backends.document.waiting import Turns, Waiters
from leaselock._core.client import timing
from leaselock._core.contract.backend import (
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
from leaselock._core.contract.effects import Call, Request, Signal, Wait
from leaselock._core.rows import rules
from leaselock._core.rows.maintenance import half_way
from leaselock._core.rows.queue import QueueBackend
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.document.adapter import Changed, Traits

T = TypeVar("T")
R = TypeVar("R")
# How a waiter polls: after this part of the time since the last change, within bounds.
PATIENCE = 0.15
# The answer to an acquire that other clients outran until its time was over: the lock was in use
# each time, and the store does answer. One that waits asks again at once.
OUTRUN: Any = Busy(None, 0.0, ())

CAPABILITIES = Capabilities(
    clock_drift=DRIFT,
    clock_margin=MARGIN,
    detects_death=False,
    inheritable=False,
    min_hold=True,
    modes=ALL_MODES,
)


class DocumentBackend(QueueBackend):
    """Locks in documents. *store* is the node that has them, *listener* the node that reports
    changes, or None.
    """

    engine_type = Engine

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
        self.now, self.wall, self.random, self.random_id = now, wall, random, random_id
        listens = listener is not None
        self.waiters, self.turns = Waiters(self.wake, now, listens=listens), Turns(now)
        self.known = KnownDocuments(self.waiters, describe, now, wall, traits.clock_uncertainty)
        self.engine = self.engine_type(
            store,
            self.known,
            writer=random_id(),
            random=random,
            token_ttl=token_ttl,
            parallel=traits.parallel,
            watches=listens,
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
        reply = await self.engine.apply(
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
        self.waiters.listen_to(claim_id)
        return reply

    async def _acquire(self, request: Acquire, until: float) -> Any:
        claim = request.claim
        # Only from a view that is newer may it be answered without reading (`Engine.apply`).
        since = self.waiters.answered(claim.id)
        position, roll_call = 0, rules.NEVER

        def work(row: DocumentRow) -> Any:
            nonlocal position, roll_call
            reply = rules.acquire(row, request)
            position, roll_call = row.position(claim.id), row.roll_call(claim.id)
            return reply

        if not await self.turns.take(claim.name, until, self._seen_at):
            return OUTRUN
        try:
            reply = await self.engine.apply(
                claim.name,
                claim.client,
                work,
                until,
                asker=claim.id,
                newer_than=since,
                outrun=OUTRUN,
            )
        finally:
            self.turns.pass_on(claim.name)
        if isinstance(reply, Busy) and request.wait and reply is not OUTRUN:
            self.waiters.note_answer(claim.id)
            again = min(reply.retry_after, max(0.0, roll_call))
            reply = reply._replace(retry_after=self._look_again(claim.name, position, again))
            self.waiters.listen_to(claim.id)
        return reply

    def _seen_at(self, name: str) -> float:
        """When the document was last seen."""
        return self.known.view(name).at

    def _look_again(self, name: str, position: int, at_most: float) -> float:
        """After how many seconds a waiter looks again: when the reply says, if changes are
        reported; otherwise sooner, the first waiters soonest.
        """
        if self.listener is not None:
            return at_most
        traits, view = self.traits, self.known.views.get(name)
        quiet = self.now() - view.changed if view is not None else 0.0
        soonest = max(traits.soonest_poll, self.known.trip)
        pause = min(traits.latest_poll, max(soonest, PATIENCE * quiet)) * (1 + position)
        return max(traits.soonest_poll, min(at_most, pause * (0.8 + 0.4 * self.random())))

    async def _renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """One write for each name, several at a time."""
        names: dict[str, list[Claim]] = {}
        for claim in claims:
            names.setdefault(claim.name, []).append(claim)

        async def renew(name: str) -> dict[str, bool]:
            mine = names[name]
            return await self.engine.apply(
                name,
                mine[0].client,
                lambda row: {claim.id: rules.renew(row, claim) for claim in mine},
                until,
                urgent=True,
            )

        batch = await self.engine.together(renew, names, until)
        answers = {
            claim_id: held for each in batch.answers.values() for claim_id, held in each.items()
        }
        if batch.failure is not None and not answers:
            raise batch.failure
        return [answers.get(claim.id) for claim in claims]

    # --- all documents

    async def _inspect(self, request: Inspect, until: float) -> Sequence[LockState]:
        if request.name is not None:
            return (await self._inspect_name(request.name, until),)
        states: list[LockState] = []
        position: Any = None
        while True:
            page, sent = await self.engine.list(position, until)
            unread: list[str] = []
            documents = dict(page.documents)
            for name in matching(documents, request.pattern):
                if (found := documents[name]) is None:
                    unread.append(name)
                else:
                    self.known.learn(name, found, sent)
                    states.append(self._state(name, found))
            if unread:
                states += await self._inspect_names(unread, until)
            position = page.position
            if position is None:
                return tuple(sorted([s for s in states if s.in_use], key=lambda state: state.name))

    async def _inspect_name(self, name: str, until: float) -> LockState:
        return self._state(name, await self.engine.read(name, until, ""))

    async def _inspect_names(self, names: Sequence[str], until: float) -> Iterable[LockState]:
        batch = await self.engine.together(partial(self._inspect_name, until=until), names, until)
        if batch.failure is not None:
            raise batch.failure
        if batch.open:
            raise NotApplied("reading all documents takes too long", "unreachable")
        return batch.answers.values()

    def _state(self, name: str, found: Found) -> LockState:
        try:
            content = self.known.decoded(name, found)
        except Unreadable as error:
            return LockState(name, (), (), unreadable=str(error))
        context = self.engine.row_context(name, "", shown=True)
        return rules.state(DocumentRow(content, context), name)

    async def _collect(self, position: Any, until: float) -> Collected:
        """Delete the documents of one page that are not needed any more. The position is that of a
        page, and what is left of the page before it.
        """
        enough = half_way(self.now(), until)
        following, unexamined = position or (None, ())
        documents: list[tuple[str, Found | None]] = [(name, None) for name in unexamined]
        if not documents:
            page, _ = await self.engine.list(following, until)
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
            unused_after = self.engine.unused_after(self.known.decoded(name, found))
        except Unreadable:
            return False
        if found.value is None or unused_after is None or unused_after > self.wall():
            return False
        return await Call(self.store, Delete(name, found.version), until)

    # --- waiting

    def expect_wakeup(self, claim: Claim) -> None:
        """Arm the claim's signal, and remember what it waits for."""
        super().expect_wakeup(claim)
        self.waiters.expect(claim)

    async def request(self, request: Request[R], until: float) -> R:
        """Send one request. A claim that watches is woken by every change of the holds."""
        reply = await super().request(request, until)
        if isinstance(reply, Watched):
            self.waiters.watch(request.expects().id)
        return reply

    async def start_listening(self, client: str) -> None:
        """Nothing is to be done yet: `Waiters.listen_to` notes each name after its first answer,
        and the renewer tells the listener (`wait_and_listen`).
        """

    def forget(self, claim: Claim) -> None:
        """Stop waiting."""
        super().forget(claim)
        self.waiters.forget(claim.id)

    async def wait_and_listen(self, changed: Signal, until: float) -> None:
        """Wait for *changed*, at most until *until*; take in what the listener reports."""
        self.waiters.changed = changed
        while self.listener is not None and not changed.is_set:
            versions = self.known.versions(self.waiters.to_report())
            self.waiters.told_listener = versions
            if not versions:
                break
            try:
                changes = await Call(self.listener, Changes(versions, changed), until)
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
            self.known.learn(change.name, change.found, None)
        else:
            self.known.miss(change.name)

    def after_fork(self) -> None:
        """Drop the waiters, and be another writer."""
        super().after_fork()
        self.waiters.reset()
        self.turns.reset()
        self.known.reset()
        self.engine.reset(self.random_id())
