"""One claim on its way to a grant.

Invariant 1: a claim exists before the first request is sent, and an acquisition either begins a
hold or releases the claim, immediately or through the pending releases.
Invariant 2: a grant is valid from the moment its request was sent (hazard B2).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from leaselock._core import shared_thread, timing, validity
from leaselock._core.backend import Busy, Grant, PoolExhausted
from leaselock._core.effects import FOREVER, Wait
from leaselock._core.events import LONG_WAIT, Event, ask_note
from leaselock._core.hold import Hold
from leaselock._core.inspection import holder_of, waiter_of
from leaselock._core.lease_handle import LeaseHandle
from leaselock._core.short_operation import UNFINISHED, ShortOperation
from leaselock._core.timing import Retry
from leaselock._named_tuple import NamedTuple
from leaselock.errors import (
    AcquireCancelled,
    ClientClosed,
    DeadlockDetected,
    NotApplied,
    OutcomeUnknown,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.backend import Claim, ErrorReason, HoldRecord, Mode
    from leaselock._core.effects import Call, Owner, OwnerThread
    from leaselock._core.events import EventKind
    from leaselock._core.hold_registry import HoldRegistry, InFlight
    from leaselock._core.renewer import Renewer
    from leaselock._core.short_operation import Unfinished
    from leaselock._core.timing import OnOutage
    from leaselock.errors import AcquireTimeout

T = TypeVar("T")
# What an acquisition does that is not granted in time.
IfBusy = Literal["raise", "none", "reply"]

# Why a request failed, where the store may be able to answer a later one.
OUTAGE: tuple[ErrorReason, ...] = ("unreachable", "refused")
# How many grants in a row may arrive too late to be valid.
MOST_LATE_GRANTS = 3


class LockOptions(NamedTuple):
    """How a lock is acquired, as the user said."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    label: str | None
    tokens: int = 1
    """How many tokens a grant reserves: its own, and one for each local hand-off."""
    owned_by_lock: bool = False
    """Whether the lock object is the owner, instead of the thread or task."""
    cached: bool = False
    """Whether the client keeps the lease after a release until another client waits."""
    min_hold: float = 0.0
    aligned: bool = False
    mode: Mode = "exclusive"
    limit: int = 0
    """How many permits the semaphore has; 0 takes what the store has."""
    numbered: bool = False
    """Whether each permit that is held has a number."""
    of_rwlock: bool = False
    """Whether it is one lock of a read/write lock."""
    max_hold: float = FOREVER
    """For how long a hold is renewed at most, from its grant on."""
    on_outage: OnOutage = "fail"
    outage_timeout: float = 0.0
    """For how long a request is repeated at least while the store is out of reach."""


class LockObject(Protocol):
    """What an acquisition needs of the lock object (`Mutex`)."""

    registry: HoldRegistry
    renewer: Renewer
    name: str
    options: LockOptions
    leases: dict[LeaseHandle, None]
    """The leases that were acquired through it."""
    waiting: set[Any]
    """What its `cancel` ends."""
    itself: Owner | None
    """The owner, where that is the lock object."""
    reference: weakref.ref[Any]
    """A reference to it."""
    drop_leases: Any
    """Called when the thread or task that has acquired a lease has ended."""

    def claim(self, owner: Owner, permits: int = 1, note: str = "") -> Claim:
        """A new claim of *owner*."""
        ...

    def nest(self, hold: Hold) -> bool:
        """Acquire again what this owner holds; False if that takes a request."""
        ...

    async def extend_and_nest(self, hold: Hold, deadline: float) -> Busy | None:
        """The same for a stronger mode, or a longer lease."""
        ...

    def take_cached(self, owner: Owner, now: float) -> Hold | None:
        """Take the lease that this client has kept, in one step and without a request."""
        ...

    def timed_out(self, busy: Busy, limit: float | None) -> AcquireTimeout:
        """The error for a claim that was not granted in time."""
        ...


class Acquisition(Retry, ShortOperation[T]):
    """One claim on its way to a grant, and what is known about it between its requests.

    Its result is a lease. If the lock is not granted in time, *if_busy* says what happens: "raise"
    raises AcquireTimeout, "none" returns None, "reply" returns the reply of the store.
    """

    call: Call[Any] | None = None
    """The request of `begin`, until its reply."""
    reply: Grant | Busy | None = None
    """What `finish` leaves to `complete`."""
    in_flight: InFlight | None = None
    """Where the claim counts as an operation in flight."""
    hold: Hold | None = None
    """The hold that has begun."""
    handle: LeaseHandle | None = None
    began = 0.0
    """When the first try of the present request was sent."""
    placed = False
    """The store may know the claim."""
    answered = False
    """The store certainly knows it."""
    cancelled = False
    queued = False
    """A request has been answered with Busy before."""
    uncertain = False
    """The outcome of some request is unknown."""
    extended = False
    """The present request was given more time."""
    outage = ""
    """Why the last try has failed, if the store is out of reach."""
    outage_reported = False
    late = 0
    first_asked = 0.0
    next_search = FOREVER
    """When to look for a deadlock."""
    blocked: OwnerThread | None = None
    """The thread that the wait blocks, if it has other owners."""
    beside: Sequence[Hold] = ()
    """Holds that cannot be released while this thread waits, and do not exclude the claim."""
    is_body = False
    """The lease is that of a body of `with`, which is interrupted when the lease is lost."""
    body_key: object = None
    """Which one (`Mutex.enter`)."""
    claim: Claim
    owner: Owner
    """The thread or task that acquires the lock."""
    deadline: float
    wait: bool

    def __init__(
        self, mutex: LockObject, limit: float | None, permits: int, if_busy: IfBusy
    ) -> None:
        self.mutex = mutex
        self.registry = registry = mutex.registry
        self.env = registry.env
        self.op_timeout = registry.op_timeout
        self.options = mutex.options
        self.limit = limit
        self.permits = permits
        self.if_busy = if_busy

    # --- a lock that is free --------------------------------------------------------------------

    def begin(self) -> Call[Any] | T | Unfinished:
        """Begin a lease on what this owner or client has; otherwise make the first request, unless
        something else comes before it.
        """
        registry, owner = self.registry, self._start()
        hold = self._outer() if owner.holds else None
        if hold is not None:
            return self._lease(hold) if self.mutex.nest(hold) else UNFINISHED
        if self.options.cached:
            hold = self.mutex.take_cached(owner, self.began)
            return UNFINISHED if hold is None else self._lease(self._acquired(hold))
        if (
            registry.listeners.all
            or registry.note is not None
            or not registry.renewing.running
            or shared_thread.blocked_by(self.env, owner) is not None
        ):
            return UNFINISHED
        self.claim = claim = self.mutex.claim(owner, self.permits)
        self._enter()
        until = self._next_request()
        call = self.call = self.backend.begin_acquire(claim, wait=self.wait, until=until)
        self.placed = call is not None
        return call or UNFINISHED

    def finish(self, reply: Any) -> T | Unfinished:
        """Begin the hold, if the lock was free."""
        call, self.call = self.call, None
        assert call is not None
        grant = self.reply = self.backend.finish_acquire(self.claim, call, reply, wait=self.wait)
        if not isinstance(grant, Grant) or self.registry.listeners.all:
            return UNFINISHED
        valid_until = self._valid_until(grant)
        if self.env.now() >= valid_until:
            return UNFINISHED
        handle: T = self._lease(self._begin_hold(grant, valid_until))
        self._leave()
        return handle

    def _start(self) -> Owner:
        """Begin to count the time; return the thread or task that acquires the lock."""
        self.backend = self.registry.backend
        self.began = now = self.env.now()
        self.deadline = FOREVER if self.limit is None else now + self.limit
        self.wait = self.deadline > now
        self.owner = owner = self.env.owner()
        return owner

    def _outer(self) -> Hold | None:
        """The hold of this owner, in which the new lease is nested."""
        if self.mutex.itself is not None or self.options.mode == "permits":
            return None
        return self.registry.of(self.owner, self.mutex.name)

    def _enter(self) -> None:
        """From now on `cancel` ends it, and a client that is closed waits for its end."""
        self.in_flight = self.registry.in_flight
        self.in_flight.active += 1
        self.mutex.waiting.add(self)

    def _leave(self) -> None:
        in_flight, self.in_flight = self.in_flight, None
        self.backend.forget(self.claim)
        self.mutex.waiting.discard(self)
        assert in_flight is not None
        in_flight.exit()

    def _begin_hold(self, grant: Grant, valid_until: float) -> Hold:
        options = self.options
        hold = self.hold = self.registry.add(
            self.claim,
            grant.token,
            valid_until,
            sent_at=self.sent_at,
            lasts=grant.lasts,
            renew=options.renew,
            max_hold=options.max_hold,
            owner=self.mutex.itself or self.owner,
        )
        hold.uncertain = self.uncertain
        hold.slots = grant.slots
        return self._acquired(hold)

    def _acquired(self, hold: Hold) -> Hold:
        """Note who has acquired the hold, and where."""
        owner, env = self.owner, self.env
        hold.acquirer, hold.thread = owner.reference, owner.thread
        if env.records_call_sites():
            hold.call_site = env.call_site()
        return hold

    def _lease(self, hold: Hold) -> Any:
        """Begin a lease on the hold: the result."""
        mutex, options = self.mutex, self.options
        # The lease knows its lock object weakly: a cycle would keep alive what its owner dropped.
        handle = self.handle = LeaseHandle(self.registry, hold, mutex.reference)
        if options.renew and (hold.prolonged or not hold.renew):
            handle.prolong()
        handle.owner = weakref.ref(mutex.itself or self.owner, mutex.drop_leases)
        mutex.leases[handle] = None
        if self.is_body:
            handle.in_body, handle.body_key = True, self.body_key
            handle.add_interrupter()
        return handle

    # --- whatever it takes ----------------------------------------------------------------------

    async def complete(self, error: BaseException | None) -> T:
        """Acquire the lock until the deadline."""
        if error is not None and self.hold is not None and self.in_flight is None:
            self._enter()  # the caller never saw the lease, which is released again
        if self.in_flight is not None:
            found = await self._obtain(error)
        elif error is not None:
            raise error
        else:
            found = await self._acquire()
        result: Any = None
        if isinstance(found, Hold):
            result = self._lease(found)
        elif self.if_busy == "raise":
            raise self.mutex.timed_out(found, self.limit)
        elif self.if_busy == "reply":
            result = found
        return result  # type: ignore[no-any-return]

    async def _acquire(self) -> Hold | Busy:
        mutex, registry, owner = self.mutex, self.registry, self._start()
        if (hold := self._outer()) is not None:
            busy = None if mutex.nest(hold) else await mutex.extend_and_nest(hold, self.deadline)
            return busy or hold
        if self.options.cached and (hold := mutex.take_cached(owner, self.began)) is not None:
            return self._acquired(hold)
        note = "" if registry.note is None else await ask_note(registry.note)
        self.claim = mutex.claim(owner, self.permits, note)
        thread = shared_thread.blocked_by(self.env, owner)
        if thread is not None and self.wait:
            self.beside = shared_thread.check(registry, owner, self.claim)
            self.blocked = thread
        self._enter()
        return await self._obtain(None)

    async def _obtain(self, failure: BaseException | None) -> Hold | Busy:
        """Acquire the lock until the deadline: the hold, or why there is none. What `begin` has
        sent was answered with `reply`, or has ended in a *failure*.
        """
        registry, reply = self.registry, self.reply
        try:
            if failure is not None:
                failure = self._undone(failure)
            if failure is None and reply is None:
                until = await self._first_request()
            while True:
                self.placed, self.reply = True, None
                try:
                    if failure is not None:
                        raise failure
                    if reply is None:
                        reply = await self.backend.acquire(self.claim, wait=self.wait, until=until)
                except StoreError as refusal:
                    failure = None
                    self.failed(refusal)
                    await self.pause()
                    until = self.try_until()
                    continue
                self.answered, self.outage, self.outage_reported = True, "", False
                if isinstance(reply, Grant):
                    valid_until = self._valid_until(reply)
                    if self.env.now() < valid_until:
                        if self.queued or registry.listeners.all:
                            await self._report("granted", token=reply.token)
                        return self._begin_hold(reply, valid_until)
                    self._check_late()
                elif self.env.now() >= self.deadline:
                    await self._withdraw()
                    await self._report("timed_out", holder=reply.held, reason=self._left())
                    return reply
                else:
                    if self.beside or (
                        not self.queued and (self.blocked or registry.listeners.all)
                    ):
                        await self._check_busy(reply)
                    self.queued = True
                    wakes_at = self._ask_again_at(reply)
                    reply = None  # its record of the holder: thousands of tasks may wait
                    if not (self.cancelled or registry.closed):
                        await self.backend.await_wakeup(self.claim, wakes_at)
                    if self.cancelled or registry.closed or self.env.now() >= self.next_search:
                        await self._check_wait()
                reply, until = None, self._next_request()
        except BaseException as error:
            # Cancelled, interrupted, dropped or refused: the claim must not stay behind.
            policy = self.options.on_outage
            if self.outage and policy == "unlocked" and isinstance(error, StoreError):
                return await self._go_on_unlocked(error)
            error = await self._end_after(error)
            raise error
        finally:
            self._leave()

    async def _first_request(self) -> float:
        """Begin the first request; return until when it may take."""
        registry = self.registry
        if registry.listeners.all:
            await self._report("acquiring")
        if not registry.renewing.running:
            await self.mutex.renewer.start()
            self._check_open()
        return self._next_request()

    def _undone(self, error: BaseException) -> BaseException:
        """Undo what was begun before the *error*; return the one to raise."""
        call, self.call = self.call, None
        if call is not None:
            error = self.backend.call_failed(self.claim, call, error)
        if self.hold is not None:
            # The claim is released as one that was not granted yet.
            self.registry.remove(self.hold)
            self.hold.transition("release")
        if self.handle is not None:
            self.handle.released = True
            self.mutex.leases.pop(self.handle, None)
        return error

    def _ask_again_at(self, busy: Busy) -> float:
        """Until when to wait: for another request, or for a search for a deadlock."""
        timeout = self.registry.deadlock_timeout
        if timeout is not None and self.next_search == FOREVER:
            self.next_search = self.first_asked + timeout
        return min(self.deadline, self.sent_at + busy.retry_after, self.next_search)

    async def _check_wait(self) -> None:
        """Raise if the wait must not go on. Called where it was ended, or it is time to look for a
        deadlock.
        """
        if self.cancelled:
            await self._withdraw()
            self.placed = False
        self._check_open()
        await self._end_deadlock()

    async def _check_busy(self, busy: Busy) -> None:
        """Report the first refusal. Raise WouldDeadlock if the holder, or a claim ahead that waits
        for a hold, needs this thread to go on.
        """
        if not self.queued:
            await self._report("busy", holder=busy.held)
        beside: Sequence[Hold] = ()
        if self.blocked is not None and not self.queued:
            beside = shared_thread.holder_beside(self.blocked, self.env, self.claim, busy.held)
        if self.beside and await shared_thread.is_blocked(self.registry, self.claim, self.beside):
            beside = self.beside
        if beside:
            await self._withdraw()
            self.placed = False
            raise shared_thread.refusal(self.claim, beside)

    async def _end_deadlock(self) -> None:
        """Raise DeadlockDetected if this wait is the youngest of a deadlock. All members see the
        same cycle, so one of them ends it. Otherwise search again after *deadlock_timeout*.
        """
        from leaselock._core import deadlocks  # loaded where it is used

        timeout = self.registry.deadlock_timeout
        self.next_search = FOREVER if timeout is None else self.env.now() + timeout
        try:
            held = self.registry.env.owner().held()
            found = await deadlocks.find_for(self.registry, self.claim, held)
        except StoreError:
            return  # The next search asks again; the wait goes on.
        own = deadlocks.owner_of(waiter_of(self.claim))
        for deadlock in found:
            first = deadlock[0]
            if first.name == self.claim.name and deadlocks.owner_of(first.waiter) == own:
                await self._withdraw()
                self.placed = False
                description = deadlocks.description(deadlock)
                raise DeadlockDetected(self.claim.name, description, deadlock)

    async def _reported(self, error: BaseException) -> BaseException:
        """Report the error; return the one to raise, which names the lock."""
        if isinstance(error, StoreError):
            await self._report("failed", reason=str(error))
            return error.concerning(self.claim.name)
        left = self._left()
        if left:
            error.add_note(f"leaselock: {left}")
        await self._report("cancelled", reason="; ".join(filter(None, (str(error), left))))
        return error

    def _left(self) -> str:
        """What to say if the store has not confirmed that the claim has left it."""
        return self.registry.pending_releases.left([self.claim])

    async def _report(
        self,
        kind: EventKind,
        *,
        token: int | None = None,
        holder: HoldRecord | None = None,
        reason: str = "",
    ) -> None:
        claim, now = self.claim, self.env.now()
        waited = now - (self.first_asked or now)
        rare = kind in ("failed", "outage", "unlocked") or (
            kind in ("granted", "timed_out") and waited >= LONG_WAIT
        )
        listeners = self.registry.listeners
        if rare or listeners.all:
            lease = claim.lease
            by = holder_of(holder, None)
            event = Event(kind, claim.name, claim.id, now, waited, lease, token, by, reason)
            await listeners.report(event, rare=rare)

    def _next_request(self) -> float:
        """Begin a request, which is repeated until `give_up`; return until when it may take.

        A queued client tolerates a store that does not answer (a restart, a failover) for as long
        as the lease: after that the earlier holder is gone. If its session ends meanwhile, it has
        the time to begin another one, and to queue again.
        """
        self.tries = self.refusals = 0
        self.answer = None
        self.began = self.sent_at = now = self.env.now()
        if not self.first_asked:
            self.first_asked = now
        self.extended = False
        self._set_limit(now)
        return timing.try_until(now, self.give_up, self.op_timeout)

    def _set_limit(self, now: float) -> None:
        limit = self._longest() if self.queued else self.op_timeout
        self.give_up = timing.answer_by(now, self.deadline, limit)

    def _longest(self) -> float:
        session = self.backend.capabilities.session_timeout
        again = session + self.op_timeout if session < FOREVER else 0.0
        return max(self.op_timeout, self.claim.lease, again)

    def failed(self, error: StoreError) -> None:
        """Count a failed try; raise when it was the last one."""
        exhausted = isinstance(error, PoolExhausted)
        if exhausted and self.wait:
            # The store is not at fault, only the client's own connections are too few: wait for
            # one as long as for a queued request.
            self.give_up = timing.answer_by(self.began, self.deadline, self._longest())
        options, patient_until = self.options, self.began
        if error.reason in OUTAGE and (options.on_outage == "wait" or not exhausted):
            self.outage = str(error) or type(error).__name__
            patient_until += options.outage_timeout
            self.give_up = max(self.give_up, patient_until)
        else:
            if self.outage and options.outage_timeout:
                # It is out of reach no more, and refuses for another reason.
                self._set_limit(self.began)
            self.outage = ""
        if self.tries or self.queued or not isinstance(error, NotApplied):
            self.uncertain = True
            now = self.env.now()
            if not self.extended and now > self.give_up + timing.FROZEN:
                # This process could not ask again, for it was frozen: it asks once more.
                self.extended = True
                self._set_limit(now)
            self.count(error)
        else:
            self.placed = self.answered
            if self.env.now() >= (self.give_up if exhausted else patient_until):
                raise error
            self.refusals += bool(self.outage)
        self._check_open()

    async def pause(self) -> None:
        """Wait until the next try. The end of the client ends the wait."""
        if self.outage and self.options.outage_timeout and not self.outage_reported:
            self.outage_reported = True
            await self._report("outage", reason=self.outage)
        await Wait(self.registry.ending, self._again_at())

    def _check_open(self) -> None:
        if self.cancelled:
            raise AcquireCancelled(self.claim.name)
        if self.registry.closed:
            raise ClientClosed(f"the client was closed while it waited for {self.claim.name!r}")

    def _valid_until(self, grant: Grant) -> float:
        """Until when a grant is valid; one that arrived later must be confirmed."""
        lease = self.claim.lease
        if grant.lasts < lease:
            lease = grant.lasts
        if grant.sent_at < self.sent_at:
            self.sent_at = grant.sent_at
        return validity.valid_until(self.backend.capabilities, self.sent_at, lease)

    def _check_late(self) -> None:
        self.late += 1
        patient = self.env.now() < self.first_asked + self.options.outage_timeout
        if self.late > MOST_LATE_GRANTS and not patient:
            raise OutcomeUnknown(
                f"the store grants {self.claim.name!r}, but its replies take longer than the "
                f"lease of {self.claim.lease:g} s: ask for a longer one"
            )

    async def _withdraw(self) -> None:
        """Leave the queue. A try that was refused has left nothing there."""
        if self.wait or self.uncertain:
            await self._release(tombstone=self.uncertain)

    async def _end_after(self, error: BaseException) -> BaseException:
        """Leave the queue after an error, and report it, unless nothing can be awaited any more;
        return the error to raise.
        """
        try:
            if self.placed:
                await self._withdraw_after(error)
        finally:
            if not isinstance(error, GeneratorExit):
                error = await self._reported(error)
        return error

    async def _go_on_unlocked(self, error: StoreError) -> Hold:
        """What the caller gets instead of a hold. The claim is released when the store answers."""
        if self.placed:
            self.registry.release_later(self.claim.unused())
        await self._report("unlocked", reason=str(error.concerning(self.claim.name)))
        return self._acquired(Hold.unlocked(self.claim))

    async def _withdraw_after(self, error: BaseException) -> None:
        """Leave the queue. A store that did not answer until the deadline is not waited for any
        longer, and a client that is being closed sends the release itself.
        """
        if self.registry.closed or isinstance(error, GeneratorExit | StoreError):
            self.registry.release_later(self.claim.unused())
        else:
            # The request that was interrupted may still arrive.
            await self._release(tombstone=True)

    async def _release(self, *, tombstone: bool) -> None:
        registry, claim = self.registry, self.claim.unused()
        await registry.withdraw(claim, tombstone=tombstone, until=registry.withdraw_by())
