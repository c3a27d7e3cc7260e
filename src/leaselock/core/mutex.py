"""One lock of one client: take it, take it again, give it back, look at it.

Law 1: a claim exists before the first question is sent, and every way out of `_obtain` either
has a grant or gives the claim back: by leaving in order, or as an orphan for the keeper.
Law 2: what a holder believes is counted from the moment its question was sent (hazard B2).
Law 3: below this line there are deadlines; `timeout` is turned into one at once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from leaselock.core import timing
from leaselock.core.attempt import Acquisition
from leaselock.core.backend import Busy, Grant, LockState, PoolExhausted
from leaselock.core.cached_lease import kept_for
from leaselock.core.effects import FOREVER, Owner, Sleep
from leaselock.core.hold import Hold
from leaselock.core.inspection import Holder, busy_message, holder_of, waiter_of
from leaselock.core.lease_handle import LeaseHandle, doubt
from leaselock.core.validation import checked_timeout
from leaselock.errors import (
    AcquireTimeout,
    ClientClosed,
    LeaselockError,
    NotApplied,
    NotHeld,
    OutcomeUnknown,
    StoreError,
)

if TYPE_CHECKING:
    from leaselock.core.effects import Process
    from leaselock.core.hold_registry import HoldRegistry
    from leaselock.core.renewer import Renewer


class LockOptions(NamedTuple):
    """How a lock is taken, as the user said."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    label: str | None
    tokens: int = 1
    """How many a grant reserves: its own, and one for each time that it is passed on."""
    cached: bool = False
    """Whether the client keeps the lease after a release, as long as nobody else asks."""


class Mutex:
    """A name, and the terms on which this client takes it."""

    def __init__(
        self, registry: HoldRegistry, renewer: Renewer, name: str, terms: LockOptions
    ) -> None:
        self.registry = registry
        self.renewer = renewer
        self.name = name
        self.terms = terms
        # The handles of each thread or task, in the order taken. An entry dies with its caller.
        self.handles: dict[weakref.ref[Owner], list[LeaseHandle]] = {}

    def acquire(self, timeout: float | None) -> Process[LeaseHandle | None]:
        """Take the lock; None when *timeout* (else the lock's own) passes first."""
        return self._acquire(checked_timeout(timeout), entering=False)

    def enter(self) -> Process[LeaseHandle]:
        """Take the lock for the body of a `with`, which is stopped when the lease is lost."""
        process: Process[Any] = self._acquire(None, entering=True)
        return process

    async def _acquire(self, timeout: float | None, entering: bool) -> LeaseHandle | None:
        registry = self.registry
        caller = registry.env.owner()
        hold = registry.of(caller, self.name)
        if hold is not None:
            self._nest(hold)
        else:
            kept = kept_for(registry, self.name, self.terms, caller) if self.terms.cached else None
            fresh = kept or await self._obtain(caller, self._deadline(timeout))
            if not isinstance(fresh, Hold):
                return self._too_late(fresh) if entering else None
            hold = fresh
        handle = self._keep(LeaseHandle(registry, hold), caller)
        if entering:
            handle.watch_over(registry.env.guard())
        return handle

    def _too_late(self, busy: Busy) -> NoReturn:
        message = busy_message(self.name, busy, self.terms.timeout, self.registry.env.wall())
        raise AcquireTimeout(self.name, message)

    def _keep(self, handle: LeaseHandle, caller: Owner) -> LeaseHandle:
        # Handles do not know this list: a cycle would keep alive what its owner has let go.
        handles = self.handles.get(caller.reference)
        if handles is None:
            handles = self._remember(caller)
        while handles and handles[-1].released:
            handles.pop()
        handles.append(handle)
        return handle

    def _remember(self, caller: Owner) -> list[LeaseHandle]:
        # Known weakly from both sides: neither keeps the other, nor what it holds.
        this = weakref.ref(self)

        def forget(reference: weakref.ref[Owner]) -> None:
            getattr(this(), "handles", {}).pop(reference, None)

        return self.handles.setdefault(weakref.ref(caller, forget), [])

    def _deadline(self, timeout: float | None) -> float:
        if timeout is None:
            timeout = self.terms.timeout
        return FOREVER if timeout is None else self.registry.env.now() + timeout

    def _nest(self, hold: Hold) -> None:
        if not self.terms.reentrant:
            raise LeaselockError(
                f"{self.name!r} is held by this thread or task already, and was asked for with "
                "reentrant=False: waiting for it here would never end"
            )
        hold.check(self.registry.env.now())
        hold.depth += 1
        if self.terms.lease > hold.claim.lease:
            hold.claim = hold.claim._replace(lease=self.terms.lease)

    async def _obtain(self, caller: Owner, deadline: float) -> Hold | Busy:
        registry = self.registry
        terms = self.terms
        wanted = (terms.tokens, terms.cached)
        claim = registry.claim(self.name, terms.lease, terms.label, caller, *wanted)
        attempt = Acquisition(claim, deadline)
        in_flight = registry.in_flight
        # In the step that made the claim: a client that is closed from now on waits for our end.
        in_flight.active += 1
        try:
            if not registry.renewing.running:
                await self.renewer.start()
                self._check_open()
            wait = deadline == FOREVER or deadline > registry.env.now()
            reply = await self._ask(attempt, wait)
            if not isinstance(reply, Grant) or not self._good(attempt, reply):
                reply = await self._queue(attempt, reply, wait)
            return self._hold(attempt, reply, caller) if isinstance(reply, Grant) else reply
        except BaseException:
            # Cancelled, interrupted, dropped, refused: whatever it was, no ghost stays behind.
            if attempt.placed:
                registry.release_later(claim)
            raise
        finally:
            registry.backend.forget(claim)
            in_flight.exit()

    async def _queue(self, attempt: Acquisition, reply: Grant | Busy, wait: bool) -> Grant | Busy:
        """Go on from the first answer, which was not a grant that can be believed."""
        backend, env = self.registry.backend, self.registry.env
        while True:
            if isinstance(reply, Grant):
                if self._good(attempt, reply):
                    return reply
                self._check_late(attempt)
            elif env.now() >= attempt.deadline:
                await self._withdraw(attempt, wait)
                return reply
            else:
                attempt.queued = True
                recheck = attempt.asked + reply.retry_after
                await backend.await_wakeup(attempt.claim, min(attempt.deadline, recheck))
                self._check_open()
            reply = await self._ask(attempt, wait)

    def _check_late(self, attempt: Acquisition) -> None:
        attempt.late += 1
        if attempt.late > timing.MOST_LATE:
            raise OutcomeUnknown(
                f"the store grants {self.name!r}, but its answers take longer than the "
                f"lease of {attempt.claim.lease:g} s: ask for a longer one"
            )

    def _check_open(self) -> None:
        if self.registry.closed:
            raise ClientClosed(f"the client was closed while it waited for {self.name!r}")

    def _good(self, attempt: Acquisition, grant: Grant) -> bool:
        """Whether a grant was answered soon enough to be believed; else it must be confirmed."""
        if grant.asked < attempt.asked:
            attempt.asked = grant.asked
        lease, attempt.lasts = attempt.claim.lease, grant.lasts
        lasts = lease if lease < grant.lasts else grant.lasts
        attempt.until = self.registry.proven(attempt.asked, lasts)
        return self.registry.env.now() < attempt.until

    async def _ask(self, attempt: Acquisition, wait: bool) -> Grant | Busy:
        """Ask until answered: the question is idempotent, so a lost reply costs only time.

        One who waits in line bears a store that is away (a restart, a failover) for as long as the
        lease: whoever held the lock before is gone by then, and all that was known is void.
        """
        env, backend, patience = self.registry.env, self.registry.backend, self.registry.op_timeout
        long = max(patience, attempt.claim.lease)
        attempt.asked = now = began = env.now()
        give_up = timing.answer_by(now, attempt.deadline, long if attempt.queued else patience)
        tries = 0
        while True:
            placed, attempt.placed = attempt.placed, True
            try:
                until = timing.ask_again_by(now, min(give_up, now + patience))
                return await backend.acquire(attempt.claim, wait=wait, until=until)
            except StoreError as error:
                if wait and isinstance(error, PoolExhausted):
                    # Where only our own connections are too few, a wait is what was asked for.
                    give_up = timing.answer_by(began, attempt.deadline, long)
                if not tries and isinstance(error, NotApplied) and not attempt.queued:
                    attempt.placed = placed
                    if not isinstance(error, PoolExhausted) or env.now() >= give_up:
                        raise
                else:
                    attempt.doubtful = True
                    tries += 1
                    if env.now() >= give_up:
                        raise doubt(error) from error.__cause__
            self._check_open()
            await Sleep(min(give_up, env.now() + timing.pause(tries, env.random())))
            attempt.asked = now = env.now()

    async def _withdraw(self, attempt: Acquisition, waited: bool) -> None:
        if not waited and not attempt.doubtful:
            return
        now = self.registry.env.now()
        until = now + min(self.registry.op_timeout, timing.PATIENCE_OF_A_TRY)
        try:
            await self.registry.backend.release(
                attempt.claim, tombstone=attempt.doubtful, until=until
            )
        except StoreError:
            self.registry.release_later(attempt.claim)

    def _hold(self, attempt: Acquisition, grant: Grant, caller: Owner) -> Hold:
        hold = Hold(attempt.claim, grant.token, attempt.until, renew=self.terms.renew)
        hold.uncertain = attempt.doubtful
        hold.provisional = attempt.lasts < attempt.claim.lease
        if not hold.renew:
            # One that the store has for a shorter time yet is lengthened, like any other.
            begun = self.registry.env.now() if hold.provisional else attempt.asked
            hold.max_valid_until = self.registry.over(begun, attempt.claim.lease)
        self.registry.add(hold, caller, attempt.asked, attempt.lasts)
        return hold

    async def release(self) -> None:
        """Give back what this thread or task took last with this lock."""
        await self._newest("release").release()

    async def leave(self, exception: BaseException | None) -> None:
        """End the body of a `with`, whose own *exception* is never replaced."""
        interrupted = False
        try:
            handle = self._newest("leave")
            interrupted = handle.unguard(exception)
            if isinstance(exception, GeneratorExit):
                handle.drop()  # the body was dropped: nothing can be awaited any more
            else:
                await handle.release()
        except LeaselockError as error:
            if exception is None:
                raise
            if interrupted:
                raise error from exception
            exception.add_note(f"leaselock: {error}")

    def _newest(self, what: str) -> LeaseHandle:
        handles = self.handles.get(self.registry.env.owner().reference, [])
        while handles and handles[-1].released:
            handles.pop()
        if not handles:
            raise NotHeld(
                self.name,
                f"cannot {what} {self.name!r}: this thread or task does not hold it through "
                "this lock object (another may, and a forked process holds nothing)",
            )
        return handles[-1]

    def owned(self) -> bool:
        """Whether this thread or task holds the lock, and may believe so."""
        hold = self.registry.of(self.registry.env.owner(), self.name)
        return hold is not None and hold.is_valid(self.registry.env.now())

    async def _sight(self) -> LockState:
        (sight,) = await self.registry.inspect(self.name, "*")
        return sight

    async def holder(self) -> Holder | None:
        """Who holds the lock now."""
        sight = await self._sight()
        return holder_of(sight.held, sight.remaining)

    async def waiters(self) -> list[Holder]:
        """Who waits for the lock, in order."""
        return [waiter_of(claim) for claim in (await self._sight()).waiting]
