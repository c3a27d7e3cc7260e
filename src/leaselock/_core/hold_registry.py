"""The holds and claims of one client, for one protocol.

The registry knows holds weakly. A hold lives as long as the user keeps one of its leases, or the
lock object and the thread or task that acquired it. A hold that is garbage is not renewed any more
(hazards C6, F10).
"""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._core import validity
from leaselock._core.backend import Backend, Claim, Inspect, Walk
from leaselock._core.background import Background, uninterrupted
from leaselock._core.effects import FOREVER, Env, Owner, Signal, Wait
from leaselock._core.events import Listeners, hold_event
from leaselock._core.hold import Hold, State
from leaselock._core.inspection import metadata_of
from leaselock._core.pending_releases import PendingReleases
from leaselock._core.timing import TRY_TIMEOUT, Retry, concerning
from leaselock._core.validation import shortened
from leaselock.errors import ClientClosed, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._core.backend import LockState
    from leaselock._core.hold import Callback, QueueObserver

T = TypeVar("T")
# Seconds that a walk over all keys of a store may take.
WALK_TIMEOUT = 60.0
# How many events of renewals wait for their listeners.
MOST_EVENTS = 10_000


# Those of this process, by the identities of their clients.
REGISTRIES: weakref.WeakValueDictionary[str, HoldRegistry] = weakref.WeakValueDictionary()


def _key(claim: Claim) -> tuple[str, ...]:
    """The key of a hold among those of its owner."""
    if claim.mode == "permits":
        return claim.client, claim.name, claim.id
    return claim.client, claim.name


class HoldReference(weakref.ref["Hold"]):
    """Refers to a hold, and knows whose it is when that was dropped."""

    __slots__ = ("claim", "owner")
    claim: Claim
    owner: Callable[[], Owner | None]


class InFlight:
    """A count of the operations that use a claim. A closing client waits until it is zero."""

    def __init__(self) -> None:
        self.active = 0
        # Set when it is zero, as soon as a closing client waits for that.
        self.idle: Signal | None = None

    def exit(self) -> None:
        """Decrement the counter that was incremented, even if the client was reset since."""
        self.active -= 1
        if not self.active and self.idle is not None:
            self.idle.set()


class HoldRegistry:
    """The holds of one client, its claims in flight, and its pending releases."""

    def __init__(self, env: Env, backend: Backend, op_timeout: float, label: str | None) -> None:
        self.env = env
        self.backend = backend
        self.op_timeout = op_timeout
        self.label = label
        # The URL of the store, for people.
        self.store = ""
        self.closed = False
        self.listeners = Listeners()
        # Seconds of waiting after which an acquire looks for a deadlock; None: never.
        self.deadlock_timeout: float | None = None
        # Whether labels say which line of the user's program acquires the lock.
        self.label_from_caller = False
        # A function of the user: a text to store with each claim.
        self.note: Callable[[], str] | None = None
        backend.lose = self.on_store_loss
        self.begin()

    def begin(self) -> None:
        """Start empty and with a new identity: for a new client, or its copy in a forked child."""
        self.client = self.env.random_id()
        REGISTRIES[self.client] = self
        self.serial = 0
        # Whether the store was asked for anything else than a lock.
        self.used_store = False
        self.in_flight = InFlight()
        self.holds: dict[str, HoldReference] = {}
        # Of holds that were dropped, and not released. Any thread may append one, at any moment;
        # the next hold that begins removes their entries from the tables.
        self.dropped: list[Any] = []
        # Those that have, or had, callbacks for a lease in danger: few of a hundred thousand.
        self.with_danger_callbacks: weakref.WeakSet[Hold] = weakref.WeakSet()
        self.pending_releases = PendingReleases(self.env, self.op_timeout)
        # Callbacks of lost holds, which the renewer has yet to call.
        self.due_callbacks: list[Callback] = []
        # The events of renewals, each with a listener, which are yet to be reported: the oldest are
        # dropped if a listener takes too long.
        self.due_events: deque[Callback] = deque(maxlen=MOST_EVENTS)
        self.reporting = Background()
        # What is to follow the queues of holds, and was not started yet.
        self.due_observers: list[QueueObserver] = []
        # What follows the queues of holds.
        self.observers: set[QueueObserver] = set()
        # Wakes the renewer before `planned`, the time it sleeps until.
        self.changed = Signal()
        self.planned = FOREVER
        self.renewing = Background()
        # Set when the client closes.
        self.ending = Signal()

    def abandon(self, reason: str, ours: bool) -> None:
        """Lose every hold: in a forked child, or after the event loop of the tasks was closed.

        In a child the holds are the parent's. Holds that are *ours* are released.
        """
        held = self.held()
        left = [hold.claim for hold in held if ours and hold.owned]
        if ours:
            left += [pending.claim for pending in self.pending_releases]
        for hold in held:
            hold.lose(reason)
        self.begin()
        self.backend.after_fork()
        for claim in left:
            self.release_later(claim)

    # --- claims -----------------------------------------------------------------------------------

    def claim(self, name: str, lease: float) -> Claim:
        """A new claim of the calling thread or task, which does not acquire the lock."""
        metadata = self.metadata(self.env.owner(), None)
        return Claim(name, self.new_id(name), self.client, lease, metadata, self.env.wall())

    def new_id(self, name: str) -> str:
        """The id of a claim to *name*, which was never used."""
        if self.closed:
            raise ClientClosed(f"the client was closed; {name!r} cannot be locked with it any more")
        self.serial += 1
        return f"{self.client}:{self.serial}"

    def metadata(
        self, owner: Owner, label: str | None, note: str = "", *, owned_by_lock: bool = False
    ) -> str:
        """What is stored with a claim of *owner*, to be shown."""
        env, label = self.env, label or self.label
        if self.label_from_caller:
            caller = env.caller()
            label = shortened(f"{label}, {caller}" if label else caller)
        known, metadata = owner.metadata
        # Who searches for deadlocks lets others follow what waits for its locks.
        holds = None
        if self.deadlock_timeout is not None and not owned_by_lock:
            holds = owner.held()
        # It is kept: to make it each time takes 11 % of a pair.
        key = label, holds is None
        if note or owned_by_lock or holds or not metadata or known != key:
            host, pid = env.host_and_pid()
            process = env.process_identity()
            # Another thread or task may release what is owned by a lock object.
            identity = "" if owned_by_lock else owner.identity
            metadata = metadata_of(host, pid, owner.title, label, identity, note, process, holds)
            owner.metadata = key, "" if note or owned_by_lock or holds else metadata
        return metadata

    def with_new_id(self, claim: Claim) -> Claim:
        """The same claim with an id that was never used."""
        self.serial += 1
        return claim._replace(id=f"{self.client}:{self.serial}")

    def withdraw_by(self) -> float:
        """Until when an interrupted thread or task waits for the store to release its claims."""
        return self.env.now() + min(self.op_timeout, TRY_TIMEOUT)

    async def withdraw(self, claim: Claim, *, tombstone: bool, until: float) -> None:
        """Release *claim*, which its caller does not want any more. If the store does not answer
        before *until*, or if this is interrupted, the renewer releases it.
        """
        in_flight = self.in_flight
        in_flight.active += 1
        try:
            await self.backend.release(claim, tombstone=tombstone, until=until)
        except StoreError:
            self.release_later(claim)
        except BaseException:
            self.release_later(claim)
            raise
        finally:
            in_flight.exit()

    async def about_hold(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request about a hold for its owner, who may be interrupted meanwhile."""
        if self.backend.capabilities.fragile_holds:
            return await uninterrupted(send, "request")
        return await send()

    def release_later(self, claim: Claim, *, lost: bool = False) -> None:
        """Have the renewer release *claim*; that of a *lost* hold, after the loss was reported."""
        # A hold that ends with its session alone must be released, however long that takes.
        lease_ends = self.backend.capabilities.session_timeout == FOREVER
        self.pending_releases.add(claim, ends_by_itself=lease_ends, lost=lost)
        self.backend.forget(claim)
        self.wake_renewer(0.0)

    # --- holds ------------------------------------------------------------------------------------

    def add(
        self,
        claim: Claim,
        token: int,
        valid_until: float,
        *,
        sent_at: float,
        lasts: float = FOREVER,
        renew: bool,
        max_hold: float = FOREVER,
        owner: Owner | None,
    ) -> Hold:
        """A hold begins; the renewer learns about it in the same step.

        The request that confirmed it was sent at *sent_at*. The store has it for *lasts* seconds if
        that is less than its lease. It is renewed for *max_hold* seconds at most. A hold without an
        owner is one that was adopted.
        """
        hold = Hold(claim, token, valid_until, renew=renew)
        hold.began = sent_at
        if lasts < claim.lease:
            hold.provisional = True
        longest = max_hold if renew else claim.lease
        if longest < FOREVER:
            # A provisional hold is prolonged to the end of its fixed lease.
            begin = self.env.now() if hold.provisional else sent_at
            hold.max_valid_until = validity.lease_end(self.backend.capabilities, begin, longest)
        if self.dropped:
            self._remove_dropped()
        if owner is None:
            hold.owned = False
        else:
            hold.owner = owner.reference
        # Complete before it is in a table: a signal may interrupt this thread at any line.
        reference = HoldReference(hold, self.dropped.append)
        reference.claim = claim
        reference.owner = hold.owner
        self.holds[claim.id] = reference
        if owner is not None:
            owner.holds[_key(claim)] = reference
        self.schedule(hold, sent_at, lasts)
        return hold

    def schedule(self, hold: Hold, sent_at: float, lasts: float = FOREVER) -> None:
        """Plan when the renewer looks at the hold. Wake it only if it would sleep longer.

        A hold that the store has for *lasts* seconds only is renewed in the first half of them.
        """
        until = hold.valid_until
        if until < hold.max_valid_until:
            due = validity.renew_at(self.backend.capabilities, sent_at, hold.claim.lease)
            if hold.provisional:
                due = min(due, until - lasts / 2)
            until = due if due < until else until
        hold.next_check = until
        if until < self.planned:
            self.wake_renewer(until)

    def wake_renewer(self, when: float) -> None:
        """Wake the renewer, which has work to do at *when*."""
        self.planned = when
        self.changed.set()

    def stop_renewing(self, hold: Hold) -> None:
        """Stop renewing this hold; its owner has not released it yet."""
        self.holds.pop(hold.claim.id, None)

    def remove(self, hold: Hold) -> None:
        """A hold ends. The renewer does not look at it any more, so its loss is reported now."""
        if hold.state is State.LOST:
            self.notify_lost(hold)
        if hold.contention is not None:
            hold.contention.stop()
        self._remove_entries(hold.claim, hold.owner(), hold)

    def _remove_dropped(self) -> None:
        """Remove the entries of the holds that were dropped, and not released."""
        while self.dropped:
            reference: HoldReference = self.dropped.pop()
            # One that was interrupted before it was complete is in no table.
            if hasattr(reference, "owner"):
                self._remove_entries(reference.claim, reference.owner(), None)

    def _remove_entries(self, claim: Claim, owner: Owner | None, hold: Hold | None) -> None:
        known = self.holds.get(claim.id)
        if known is not None and known() in (hold, None):
            # Not that of another hold, which has adopted the same grant.
            del self.holds[claim.id]
        if owner is None:
            return
        key = _key(claim)
        reference = owner.holds.get(key)
        if reference is not None and (reference is known or reference() in (hold, None)):
            del owner.holds[key]

    def of(self, owner: Owner, name: str) -> Hold | None:
        """The hold that *owner* has on *name*, if any."""
        reference = owner.holds.get((self.client, name))
        return reference() if reference is not None else None

    def held(self) -> list[Hold]:
        """All holds that are not garbage."""
        return [hold for ref in list(self.holds.values()) if (hold := ref()) is not None]

    # --- loss -------------------------------------------------------------------------------------

    def on_store_loss(self, claim_id: str, reason: str) -> None:
        """The store reports that the hold of *claim_id* has ended."""
        reference = self.holds.get(claim_id)
        hold = reference() if reference is not None else None
        if hold is not None and hold.lose(reason):
            self.wake_renewer(0.0)

    def notify_lost(self, hold: Hold) -> None:
        """Have the renewer call the callbacks of a lost hold, even if it does not know the hold
        any more.
        """
        if self.collect_callbacks(hold):
            self.wake_renewer(0.0)

    def collect_callbacks(self, hold: Hold) -> bool:
        """Schedule the callbacks of a lost hold, and the report of its loss; return whether there
        are any.
        """
        callbacks = hold.take_callbacks()
        listeners = self.listeners.of_rare()
        if listeners and hold.state is State.LOST and not hold.reported:
            hold.reported = True
            now = self.env.now()
            event = hold_event("lost", hold, now, now - hold.began, hold.reason)
            callbacks += [(listener, event) for listener in listeners]
        self.due_callbacks += callbacks
        return bool(callbacks)

    # --- the store --------------------------------------------------------------------------------

    def answer_by(self) -> float:
        """The time until which the store may take to answer a request that is sent now."""
        if self.closed:
            raise ClientClosed("the client was closed")
        self.used_store = True
        return self.env.now() + self.op_timeout

    async def inspect(self, name: str | None, pattern: str) -> Sequence[LockState]:
        """The state of one lock, or of all whose names match *pattern*."""
        retry = Retry(self.env, self.op_timeout, self.answer_by())
        with concerning(name):
            return await retry.until_answered(partial(self.backend.request, Inspect(name, pattern)))

    async def walk(self, pattern: str) -> Sequence[LockState]:
        """The state of all locks whose names match, those that are in no index as well."""
        if not self.backend.capabilities.indexed:
            return await self.inspect(None, pattern)
        retry = Retry(self.env, WALK_TIMEOUT, self.answer_by() + WALK_TIMEOUT)
        return await retry.until_answered(partial(self.backend.request, Walk(pattern)))

    async def close(self, until: float) -> None:
        """Refuse new claims and end all waits; the operations in flight have until *until*."""
        self.closed = True
        self.changed.set()
        self.ending.set()
        self.backend.close()
        for observer in list(self.observers):
            observer.stop()
        in_flight = self.in_flight
        while in_flight.active and self.env.now() < until:
            in_flight.idle = Signal()
            await Wait(in_flight.idle, until)
