"""The claims of one client, for one protocol, in one table (`ClaimRegistry.table`), and what all of
them share: the identity of the client, its settings, its backend.

A row (`hold.Hold`) enters the table before the first request of its claim and leaves it when the
store has certainly forgotten the claim. Everything else that is known of the claims of a client is
read from the table: what is held, what is in flight, what must still be released.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leaselock._core.client import validity
from leaselock._core.client.events import Listeners
from leaselock._core.client.hold import Hold, State
from leaselock._core.client.inspection import metadata_of
from leaselock._core.client.lease_reference import UnderWay
from leaselock._core.client.notices import Notices
from leaselock._core.client.timing import RELEASE_GRACE, TRY_TIMEOUT, Retry, concerning
from leaselock._core.client.validation import shortened
from leaselock._core.contract.backend import Backend, Claim, Inspect, Walk
from leaselock._core.contract.background import Background, uninterrupted
from leaselock._core.contract.effects import FOREVER, Env, Owner, Signal, Wait
from leaselock.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._core.client.hold import QueueObserver
    from leaselock._core.contract.backend import LockState

T = TypeVar("T")
# Seconds that a walk over all keys of a store may take.
WALK_TIMEOUT = 60.0
# For how many seconds the release of a lost hold waits for the callbacks that report the loss.
REPORT_TIME = 0.5
# After how many seconds a hold that was handed over is renewed for the first time.
CONFIRM_AFTER = 0.02
# How often a closing client looks whether the operations that it waits for were interrupted.
LOOK = 0.05

# Those of this process, by the identities of their clients.
REGISTRIES: weakref.WeakValueDictionary[str, ClaimRegistry] = weakref.WeakValueDictionary()


def _key(claim: Claim) -> tuple[str, ...]:
    """The key of a hold among those of its owner."""
    if claim.mode == "permits":
        return claim.client, claim.name, claim.id
    return claim.client, claim.name


class ClaimRegistry:
    """The claims of one client."""

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
        # A function of an integration, which raises where this thread or task must not acquire.
        self.check_acquire: Callable[[], None] | None = None
        backend.lose = self.on_store_loss
        self.begin()

    def begin(self) -> None:
        """Start empty and with a new identity: for a new client, or its copy in a forked child."""
        self.client = self.env.random_id()
        REGISTRIES[self.client] = self
        self.serial = 0
        # Whether the store was asked for anything else than a lock.
        self.used_store = False
        # The claims by their ids.
        self.table: dict[str, Hold] = {}
        # Those that have, or had, callbacks for a lease in danger: few of a hundred thousand.
        self.with_danger_callbacks: weakref.WeakSet[Hold] = weakref.WeakSet()
        self.notices = Notices(self)
        # The operations that watch a lock, and what follows the queues of holds.
        self.watching: weakref.WeakSet[UnderWay] = weakref.WeakSet()
        self.observers: set[QueueObserver] = set()
        # Wakes the renewer before `planned`, the time it sleeps until.
        self.changed = Signal()
        self.planned = FOREVER
        self.renewing = Background()
        # Set when the client closes.
        self.ending = Signal()
        # Set when an operation has ended, as soon as a closing client waits for that.
        self.idle: Signal | None = None

    def abandon(self, reason: str, ours: bool) -> None:
        """Lose every hold: in a forked child, or after the event loop of the tasks was closed.

        In a child the holds are the parent's. Holds that are *ours* are released.
        """
        left = [hold for hold in self.table.values() if hold.state is not State.LOST]
        for hold in left:
            hold.lose(reason)
        self.begin()
        self.backend.after_fork()
        for hold in left:
            if ours and hold.owned:
                self.table[hold.claim.id] = hold
                self.release_later(hold)

    # --- new claims -------------------------------------------------------------------------------

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

    def closed_error(self, name: str) -> ClientClosed:
        """The error for an acquire whose client was closed meanwhile."""
        return ClientClosed(f"the client was closed while it waited for {name!r}")

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

    # --- the table: what becomes of a row ---------------------------------------------------------

    def enter(self, hold: Hold, sent_at: float) -> None:
        """The first request of a claim is about to be sent. From now on the renewer releases it,
        unless it is in hand.
        """
        hold.began = sent_at
        self.table[hold.claim.id] = hold

    def grant(
        self,
        hold: Hold,
        token: int,
        valid_until: float,
        sent_at: float,
        lasts: float,
        renew: bool,
        max_hold: float,
        owner: Owner | None,
    ) -> None:
        """A claim was granted, by a request that was sent at *sent_at*. The store has it for
        *lasts* seconds if that is less than its lease. It is renewed for *max_hold* seconds at
        most. A hold without an owner is one that was adopted.
        """
        claim = hold.claim
        hold.began = sent_at
        if lasts < claim.lease:
            hold.provisional = True
        longest, end = max_hold if renew else claim.lease, FOREVER
        if longest < FOREVER:
            # A provisional hold is prolonged to the end of its fixed lease.
            begin = self.env.now() if hold.provisional else sent_at
            end = validity.lease_end(self.backend.capabilities, begin, longest)
        if owner is None:
            hold.owned = False
        else:
            hold.owner = owner.reference
            owner.holds[_key(claim)] = hold
        hold.grant(token, valid_until, renew=renew, max_valid_until=end)
        self.schedule(hold, sent_at)

    def end(self, hold: Hold) -> None:
        """A hold ends for its owner; the row stays. Its loss is reported now."""
        if hold.state is State.LOST:
            self.notify_lost(hold)
        if hold.contention is not None:
            hold.contention.stop()
        owner = hold.owner()
        if owner is not None and owner.holds.get(key := _key(hold.claim)) is hold:
            del owner.holds[key]

    def release_later(self, hold: Hold, *, lost: bool = False) -> None:
        """Have the renewer release the claim; that of a *lost* hold, after the loss was reported:
        it lets the next owner in.
        """
        now = self.env.now()
        # A hold that ends with its session alone must be released, however long that takes.
        expires = self.backend.capabilities.holds_expire
        hold.release_from = now + REPORT_TIME if lost else 0.0
        hold.release_until = now + hold.claim.lease + RELEASE_GRACE if expires else FOREVER
        self.backend.forget(hold.claim)
        self.wake_renewer(0.0)

    def forget(self, hold: Hold) -> None:
        """The store does not have a claim that was not granted."""
        hold.state = State.ENDED
        self.backend.forget(hold.claim)
        self.end(hold)  # it was granted, if the operation was interrupted after that
        self.remove(hold)

    def remove(self, hold: Hold) -> None:
        """The store does not have the claim any more."""
        if self.table.get(hold.claim.id) is hold:  # not another one that has adopted the same grant
            del self.table[hold.claim.id]
        if self.idle is not None:
            self.idle.set()

    # --- the table: what is read from it ----------------------------------------------------------

    def of(self, owner: Owner, name: str) -> Hold | None:
        """The hold that *owner* has on *name*, if any."""
        hold: Hold | None = owner.holds.get((self.client, name))
        return hold if hold is not None and hold.has_lease() else None

    def held(self) -> list[Hold]:
        """The holds that have a lease."""
        table = list(self.table.values())
        return [hold for hold in table if hold.state is State.HELD and hold.has_lease()]

    def pending(self) -> list[Hold]:
        """The claims that the renewer has yet to release."""
        return [hold for hold in list(self.table.values()) if hold.release_until]

    def unreleased(self) -> set[str]:
        """The names of the claims that the store may have, and that end with this client."""
        table = list(self.table.values())
        lost = State.LOST
        return {
            hold.claim.name
            for hold in table
            if hold.owned and (hold.release_until or hold.state is not lost)
        }

    def left(self, holds: Iterable[Hold]) -> str:
        """What to say of the claims that the store has not forgotten; empty if there are none."""
        names = ", ".join(repr(h.claim.name) for h in holds if h.claim.id in self.table)
        return names and f"the store has not confirmed yet that the claim to {names} has left it"

    # --- the renewer ------------------------------------------------------------------------------

    def schedule(self, hold: Hold, sent_at: float) -> None:
        """Plan when the renewer looks at the hold. Wake it only if it would sleep longer.

        A hold that the store has for a shorter time than its lease is renewed at once, unless it
        ends within CONFIRM_AFTER seconds.
        """
        until = hold.valid_until
        if until < hold.max_valid_until:
            due = validity.renew_at(self.backend.capabilities, sent_at, hold.claim.lease)
            if hold.provisional:
                due = min(due, self.env.now() + CONFIRM_AFTER)
            until = due if due < until else until
        hold.next_check = until
        if until < self.planned:
            self.wake_renewer(until)

    def wake_renewer(self, when: float) -> None:
        """Wake the renewer, which has work to do at *when*."""
        # In this order: if this is interrupted in between, the next call wakes it again.
        self.changed.set()
        self.planned = when

    # --- losses -----------------------------------------------------------------------------------

    def on_store_loss(self, claim_id: str, reason: str) -> None:
        """The store reports that the hold of *claim_id* has ended."""
        hold = self.table.get(claim_id)
        if hold is not None and hold.lose(reason):
            self.wake_renewer(0.0)

    def notify_lost(self, hold: Hold) -> None:
        """Have the renewer call the callbacks of a lost hold, even if the row is gone."""
        if self.notices.add_loss(hold):
            self.wake_renewer(0.0)

    # --- the store --------------------------------------------------------------------------------

    def answer_by(self) -> float:
        """The time until which the store may take to answer a request that is sent now."""
        if self.closed:
            raise ClientClosed("the client was closed")
        self.used_store = True
        return self.env.now() + self.op_timeout

    def withdraw_by(self) -> float:
        """Until when an interrupted thread or task waits for the store to release its claims."""
        return self.env.now() + min(self.op_timeout, TRY_TIMEOUT)

    async def about_hold(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a request about a hold for its owner, who may be interrupted meanwhile."""
        if self.backend.capabilities.fragile_holds:
            return await uninterrupted(send, "request")
        return await send()

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

    # --- the end of the client --------------------------------------------------------------------

    def begin_watching(self) -> UnderWay:
        """An operation begins to watch a lock. A closing client waits for its end."""
        watching = UnderWay()
        self.watching.add(watching)
        return watching

    def end_watching(self, watching: UnderWay) -> None:
        """It has ended."""
        self.watching.discard(watching)
        if self.idle is not None:
            self.idle.set()

    async def close(self, until: float) -> None:
        """Refuse new claims and end all waits; the operations in flight have until *until*."""
        self.closed = True
        self.changed.set()
        self.ending.set()
        self.backend.close()
        for observer in list(self.observers):
            observer.stop()
        while self._is_busy() and (now := self.env.now()) < until:
            self.idle = Signal()
            await Wait(self.idle, min(until, now + LOOK))

    def _is_busy(self) -> bool:
        """Whether an operation of a thread or task runs."""
        return bool(self.watching) or any(map(Hold.has_operation, list(self.table.values())))
