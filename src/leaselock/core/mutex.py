"""One lock of one client: take it, take it again, give it back, look at it.

Law 1: a claim exists before the first question is sent, and every way out of `_obtain` either
has a grant or gives the claim back: by leaving in order, or as an orphan for the keeper.
Law 2: what a holder believes is counted from the moment its question was sent (hazard B2).
Law 3: below this line there are deadlines; `timeout` is turned into one at once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from leaselock.core import pace
from leaselock.core.attempt import Attempt
from leaselock.core.backend import Busy, Crowded, Grant, Sight
from leaselock.core.effects import FOREVER, Caller, Sleep
from leaselock.core.handle import Handle, doubt
from leaselock.core.lease import Hold
from leaselock.core.names import checked_timeout
from leaselock.core.sight import Holder, busy_message, holder_of, waiter_of
from leaselock.core.sticky import kept_for
from leaselock.errors import (
    AcquireTimeout,
    Closed,
    LeaselockError,
    NotHeld,
    Refused,
    StoreError,
    Unknown,
)

if TYPE_CHECKING:
    from leaselock.core.effects import Process
    from leaselock.core.holdings import Holdings
    from leaselock.core.keeper import Keeper


class Terms(NamedTuple):
    """How a lock is taken, as the user said."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    label: str | None
    tokens: int = 1
    """How many a grant reserves: its own, and one for each time that it is passed on."""
    sticky: bool = False
    """Whether the client keeps the lease after a release, as long as nobody else asks."""


class Mutex:
    """A name, and the terms on which this client takes it."""

    def __init__(self, books: Holdings, keeper: Keeper, name: str, terms: Terms) -> None:
        self.books = books
        self.keeper = keeper
        self.name = name
        self.terms = terms
        # The handles of each thread or task, in the order taken. An entry dies with its caller.
        self.handles: dict[weakref.ref[Caller], list[Handle]] = {}

    def acquire(self, timeout: float | None) -> Process[Handle | None]:
        """Take the lock; None when *timeout* (else the lock's own) passes first."""
        return self._acquire(checked_timeout(timeout), entering=False)

    def enter(self) -> Process[Handle]:
        """Take the lock for the body of a `with`, which is stopped when the lease is lost."""
        process: Process[Any] = self._acquire(None, entering=True)
        return process

    async def _acquire(self, timeout: float | None, entering: bool) -> Handle | None:
        books = self.books
        caller = books.env.caller()
        hold = books.of(caller, self.name)
        if hold is not None:
            self._nest(hold)
        else:
            kept = kept_for(books, self.name, self.terms, caller) if self.terms.sticky else None
            fresh = kept or await self._obtain(caller, self._deadline(timeout))
            if not isinstance(fresh, Hold):
                return self._too_late(fresh) if entering else None
            hold = fresh
        handle = self._keep(Handle(books, hold), caller)
        if entering:
            handle.watch_over(books.env.guard())
        return handle

    def _too_late(self, busy: Busy) -> NoReturn:
        message = busy_message(self.name, busy, self.terms.timeout, self.books.env.wall())
        raise AcquireTimeout(self.name, message)

    def _keep(self, handle: Handle, caller: Caller) -> Handle:
        # Handles do not know this list: a cycle would keep alive what its owner has let go.
        handles = self.handles.get(caller.reference)
        if handles is None:
            handles = self._remember(caller)
        while handles and handles[-1].released:
            handles.pop()
        handles.append(handle)
        return handle

    def _remember(self, caller: Caller) -> list[Handle]:
        # Known weakly from both sides: neither keeps the other, nor what it holds.
        this = weakref.ref(self)

        def forget(reference: weakref.ref[Caller]) -> None:
            getattr(this(), "handles", {}).pop(reference, None)

        return self.handles.setdefault(weakref.ref(caller, forget), [])

    def _deadline(self, timeout: float | None) -> float:
        if timeout is None:
            timeout = self.terms.timeout
        return FOREVER if timeout is None else self.books.env.now() + timeout

    def _nest(self, hold: Hold) -> None:
        if not self.terms.reentrant:
            raise LeaselockError(
                f"{self.name!r} is held by this thread or task already, and was asked for with "
                "reentrant=False: waiting for it here would never end"
            )
        hold.check(self.books.env.now())
        hold.depth += 1
        if self.terms.lease > hold.claim.lease:
            hold.claim = hold.claim._replace(lease=self.terms.lease)

    async def _obtain(self, caller: Caller, deadline: float) -> Hold | Busy:
        books = self.books
        terms = self.terms
        wanted = (terms.tokens, terms.sticky)
        claim = books.claim(self.name, terms.lease, terms.label, caller, *wanted)
        attempt = Attempt(claim, deadline)
        crowd = books.crowd
        # In the step that made the claim: a client that is closed from now on waits for our end.
        crowd.active += 1
        try:
            if not books.keeping.running:
                await self.keeper.start()
                self._check_open()
            wait = deadline == FOREVER or deadline > books.env.now()
            reply = await self._ask(attempt, wait)
            if not isinstance(reply, Grant) or not self._good(attempt, reply):
                reply = await self._queue(attempt, reply, wait)
            return self._hold(attempt, reply, caller) if isinstance(reply, Grant) else reply
        except BaseException:
            # Cancelled, interrupted, dropped, refused: whatever it was, no ghost stays behind.
            if attempt.placed:
                books.orphan(claim)
            raise
        finally:
            books.backend.forget(claim)
            crowd.exit()

    async def _queue(self, attempt: Attempt, reply: Grant | Busy, wait: bool) -> Grant | Busy:
        """Go on from the first answer, which was not a grant that can be believed."""
        backend, env = self.books.backend, self.books.env
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
                recheck = attempt.asked + reply.recheck
                await backend.hear(attempt.claim, min(attempt.deadline, recheck))
                self._check_open()
            reply = await self._ask(attempt, wait)

    def _check_late(self, attempt: Attempt) -> None:
        attempt.late += 1
        if attempt.late > pace.MOST_LATE:
            raise Unknown(
                f"the store grants {self.name!r}, but its answers take longer than the "
                f"lease of {attempt.claim.lease:g} s: ask for a longer one"
            )

    def _check_open(self) -> None:
        if self.books.closed:
            raise Closed(f"the client was closed while it waited for {self.name!r}")

    def _good(self, attempt: Attempt, grant: Grant) -> bool:
        """Whether a grant was answered soon enough to be believed; else it must be confirmed."""
        if grant.asked < attempt.asked:
            attempt.asked = grant.asked
        lease, attempt.lasts = attempt.claim.lease, grant.lasts
        lasts = lease if lease < grant.lasts else grant.lasts
        attempt.until = self.books.proven(attempt.asked, lasts)
        return self.books.env.now() < attempt.until

    async def _ask(self, attempt: Attempt, wait: bool) -> Grant | Busy:
        """Ask until answered: the question is idempotent, so a lost reply costs only time.

        One who waits in line bears a store that is away (a restart, a failover) for as long as the
        lease: whoever held the lock before is gone by then, and all that was known is void.
        """
        env, backend, patience = self.books.env, self.books.backend, self.books.patience
        long = max(patience, attempt.claim.lease)
        attempt.asked = now = began = env.now()
        give_up = pace.answer_by(now, attempt.deadline, long if attempt.queued else patience)
        tries = 0
        while True:
            placed, attempt.placed = attempt.placed, True
            try:
                until = pace.ask_again_by(now, min(give_up, now + patience))
                return await backend.ask(attempt.claim, wait=wait, until=until)
            except StoreError as error:
                if wait and isinstance(error, Crowded):
                    # Where only our own connections are too few, a wait is what was asked for.
                    give_up = pace.answer_by(began, attempt.deadline, long)
                if not tries and isinstance(error, Refused) and not attempt.queued:
                    attempt.placed = placed
                    if not isinstance(error, Crowded) or env.now() >= give_up:
                        raise
                else:
                    attempt.doubtful = True
                    tries += 1
                    if env.now() >= give_up:
                        raise doubt(error) from error.__cause__
            self._check_open()
            await Sleep(min(give_up, env.now() + pace.pause(tries, env.random())))
            attempt.asked = now = env.now()

    async def _withdraw(self, attempt: Attempt, waited: bool) -> None:
        if not waited and not attempt.doubtful:
            return
        now = self.books.env.now()
        until = now + min(self.books.patience, pace.PATIENCE_OF_A_TRY)
        try:
            await self.books.backend.leave(attempt.claim, bury=attempt.doubtful, until=until)
        except StoreError:
            self.books.orphan(attempt.claim)

    def _hold(self, attempt: Attempt, grant: Grant, caller: Caller) -> Hold:
        hold = Hold(attempt.claim, grant.token, attempt.until, renew=self.terms.renew)
        hold.doubtful = attempt.doubtful
        hold.brief = attempt.lasts < attempt.claim.lease
        if not hold.renew:
            # One that the store has for a shorter time yet is lengthened, like any other.
            begun = self.books.env.now() if hold.brief else attempt.asked
            hold.ends = self.books.over(begun, attempt.claim.lease)
        self.books.add(hold, caller, attempt.asked, attempt.lasts)
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

    def _newest(self, what: str) -> Handle:
        handles = self.handles.get(self.books.env.caller().reference, [])
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
        hold = self.books.of(self.books.env.caller(), self.name)
        return hold is not None and hold.believed(self.books.env.now())

    async def _sight(self) -> Sight:
        (sight,) = await self.books.look(self.name, "*")
        return sight

    async def holder(self) -> Holder | None:
        """Who holds the lock now."""
        sight = await self._sight()
        return holder_of(sight.held, sight.remaining)

    async def waiters(self) -> list[Holder]:
        """Who waits for the lock, in order."""
        return [waiter_of(claim) for claim in (await self._sight()).waiting]
