"""What an acquisition knows between its requests, once the first one was not granted at once: until
when the store is asked again, and which failure is the last one.

| the last try | is repeated until | and then raises |
|---|---|---|
| may have been applied, or one before it, or the claim is queued | `give_up` | OutcomeUnknown |
| certainly was not: the store is out of reach | `outage_timeout` is over | the error |
| certainly was not: no connection of the client was free | `give_up` | the error |
| certainly was not: any other refusal | not at all | the error |

`give_up` is the deadline, or `op_timeout` if that is sooner; a queued claim, and one that waits for
a connection, may wait for as long as its lease; and with `on_outage="wait"` it is not before
`outage_timeout`. A process that was frozen gets the time once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client import timing
from leaselock._core.client.events import LONG_WAIT, Event
from leaselock._core.client.hold import State
from leaselock._core.client.inspection import holder_of
from leaselock._core.client.timing import Retry
from leaselock._core.contract.backend import PoolExhausted
from leaselock._core.contract.effects import FOREVER, Wait
from leaselock.errors import (
    AcquireCancelled,
    NotApplied,
    OutcomeUnknown,
    StoreError,
)

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.events import EventKind
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.options import LockOptions
    from leaselock._core.contract.backend import ErrorReason, HoldRecord

# Why a request failed, where the store may be able to answer a later one.
OUTAGE: ErrorReason = "unreachable"
# How many grants of one acquisition may arrive too late to be valid.
MOST_LATE_GRANTS = 3


class Attempts(Retry):
    """The requests of one acquisition."""

    known = False
    """The store may have the claim, whatever the next request says."""
    outage = ""
    """Why the last try has failed, if the store is out of reach."""
    outage_reported = False
    late = 0
    """How many grants have arrived too late."""

    def __init__(
        self,
        registry: ClaimRegistry,
        hold: Hold,
        options: LockOptions,
        deadline: float,
        wait: bool,
    ) -> None:
        self.registry = registry
        self.env = registry.env
        self.backend = registry.backend
        self.op_timeout = registry.op_timeout
        self.hold = hold
        self.claim = hold.claim
        self.options = options
        self.deadline = deadline
        self.wait = wait
        self.begin(hold.began or registry.env.now())

    @property
    def queued(self) -> bool:
        """Whether a request was answered with Busy before."""
        return self.hold.state is State.WAITING

    # --- the time of each request -----------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The first request is sent now."""
        # When that was; and when the first try of the present request was sent.
        self.first_asked = self.began = self.sent_at = now
        self.give_up = self._give_up(now)

    def next_request(self) -> float:
        """Begin a request, which is repeated until `give_up`; return until when it may take."""
        self.tries = self.refusals = 0
        self.answer = None
        self.began = self.sent_at = now = self.env.now()
        self.extended = False
        self.give_up = self._give_up(now)
        return timing.try_until(now, self.give_up, self.op_timeout)

    def _give_up(self, now: float) -> float:
        """Until when a request that begins *now* is repeated.

        A queued client tolerates a store that does not answer (a restart, a failover) for as long
        as the lease: after that the earlier holder is gone. If its session ends meanwhile, it has
        the time to begin another one, and to queue again.
        """
        limit = self._longest() if self.queued else self.op_timeout
        return timing.answer_by(now, self.deadline, limit)

    def _longest(self) -> float:
        session = self.backend.capabilities.session_timeout
        again = session + self.op_timeout if session < FOREVER else 0.0
        return max(self.op_timeout, self.claim.lease, again)

    # --- answers ----------------------------------------------------------------------------------

    def answered(self) -> None:
        """The store has answered."""
        self.known, self.outage, self.outage_reported = True, "", False

    def failed(self, error: StoreError) -> None:
        """Count a failed try; raise when it was the last one."""
        exhausted = isinstance(error, PoolExhausted)
        patient_until = self._prolong(error, exhausted)
        if self.tries or self.queued or not isinstance(error, NotApplied):
            # The store may have carried out a request of this acquisition.
            self.known = self.hold.uncertain = True
            self.count(error)
        elif self.env.now() < (self.give_up if exhausted else patient_until):
            self.refusals += bool(self.outage)
        else:
            if not self.known:
                self.registry.forget(self.hold)
            raise error
        self.check_open()

    def _prolong(self, error: StoreError, exhausted: bool) -> float:
        """See until when the request is repeated after this error; return until when one that was
        certainly not applied is.
        """
        options, patient_until = self.options, self.began
        if exhausted and self.wait:
            # The store is not at fault, only the client's own connections are too few: wait for
            # one as long as for a queued request.
            self.give_up = timing.answer_by(self.began, self.deadline, self._longest())
        if options.on_outage == "wait" and (exhausted or error.reason == OUTAGE):
            self.outage = str(error) or type(error).__name__
            patient_until += options.outage_timeout
            self.give_up = max(self.give_up, patient_until)
        else:
            if self.outage and options.outage_timeout:
                # It is out of reach no more, and refuses for another reason.
                self.give_up = self._give_up(self.began)
            self.outage = ""
        if self.was_frozen():
            now = self.env.now()
            self.give_up, patient_until = self._give_up(now), now + self.op_timeout
        return patient_until

    def check_open(self) -> None:
        """Raise if the acquisition was cancelled, or its client closed."""
        if self.hold.cancelled:
            raise AcquireCancelled(self.claim.name)
        if self.registry.closed:
            raise self.registry.closed_error(self.claim.name)

    async def pause(self) -> None:
        """Wait until the next try. The end of the client ends the wait."""
        if self.outage and self.options.outage_timeout and not self.outage_reported:
            self.outage_reported = True
            await self.report("outage", reason=self.outage)
        await Wait(self.registry.ending, self._again_at())

    def check_late(self) -> None:
        """A grant has arrived too late to be valid; an error if that happens again and again."""
        self.late += 1
        patient = self.env.now() < self.first_asked + self.options.outage_timeout
        if self.late > MOST_LATE_GRANTS and not patient:
            raise OutcomeUnknown(
                f"the store grants {self.claim.name!r}, but its replies take longer than the "
                f"lease of {self.claim.lease:g} s: ask for a longer one"
            )

    # --- its events -------------------------------------------------------------------------------

    async def report(
        self,
        kind: EventKind,
        *,
        token: int | None = None,
        holder: HoldRecord | None = None,
        reason: str = "",
    ) -> None:
        """Report an event of the acquisition, if it is listened for."""
        claim, now = self.claim, self.env.now()
        waited = 0.0 if kind == "acquiring" else now - self.first_asked
        rare = kind in ("failed", "outage", "waiting") or (
            kind in ("granted", "timed_out") and waited >= LONG_WAIT
        )
        listeners = self.registry.listeners
        if rare or listeners.all:
            lease = claim.lease
            by = holder_of(holder, None)
            event = Event(kind, claim.name, claim.id, now, waited, lease, token, by, reason)
            await listeners.report(event, rare=rare)
