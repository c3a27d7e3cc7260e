"""The protocols "row" and "advisory" as the core steps them.

Law 1: a hold is believed from one proof of its session's life to the next, and no longer than the
server lets a silent session last. The end of a connection is told as soon as it is seen.
Law 2: no hold lasts beyond its claim's lease: where nobody renews that, it is freed from here. A
process that cannot do it any more is one whose session the server ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.seats import SLICE, Await, By, Poke
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    Listen,
    LockState,
    Release,
    Released,
    Renew,
)
from leaselock.core.effects import FOREVER, Call, Sleep
from leaselock.core.maintenance import StoreMaintenance
from leaselock.core.singleton_process import Background
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARGIN = 0.002
FREE_PATIENCE = 2.0
SOON = 1.0
LOOK = 0.05
TRY_AGAIN = 0.5
ENDED = "the connection to the database that held it has ended"


class Sessions(StoreMaintenance):
    """Locks that last as long as a session."""

    def __init__(
        self,
        protocol: str,
        silence: float,
        now: Callable[[], float],
        wake_all: Callable[[], None],
        *,
        coarse: bool = False,
    ) -> None:
        self.protocol = protocol
        # The server counts the time that a wait may take in whole seconds.
        self.coarse = coarse
        self.now = now
        self.wake_all = wake_all
        self.capabilities = Capabilities(
            0.0, MARGIN, life=True, inheritable=False, session_timeout=silence
        )
        self.lose: Callable[[str, str], None] = _nobody
        self.begin()

    def begin(self) -> None:
        """Nothing is held."""
        self.ends: dict[str, tuple[float, Claim]] = {}
        # Who is being freed, since the lease is over; and of those who ask, who was not.
        self.freed: set[str] = set()
        self.asking: dict[str, bool] = {}
        self.attending = Background()
        self.planned = FOREVER

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        """Whom to tell, at once, of a holder whose hold has ended, and why."""
        self.lose = lose

    def _by(self, request: object, until: float) -> Call[Any]:
        return Call("seats", By(self.protocol, request), until)  # type: ignore[arg-type]

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try."""
        self.asking[claim.id] = claim.id not in self.freed
        try:
            reply: Grant | Busy = await self._by(Acquire(claim, wait), until)
        finally:
            good = self.asking.pop(claim.id)
        if isinstance(reply, Grant):
            if not good:
                # A grant that its asker was too late to take: it goes back, from here.
                raise OutcomeUnknown(
                    f"the lease of {claim.name!r} is over, and it is being given back"
                )
            await self._granted(claim)
        return reply

    async def _granted(self, claim: Claim) -> None:
        ends = self.now() + claim.lease
        self.ends[claim.id] = (ends, claim)
        if not self.attending.running:
            await self.attending.start(lambda: self._attend(claim.client), "attendant")
        elif ends < self.planned:
            self.planned = ends
            await Call("ends", Poke(claim.client), self.now() + SOON)  # type: ignore[arg-type]

    async def _attend(self, client: str) -> None:
        """Hear which connections have ended; free what nobody renews when its lease is over."""
        try:
            while True:
                self.planned = min((ends for ends, _ in self.ends.values()), default=FOREVER)
                await self._hear(client)
                for holder in list(self.ends):
                    # Looked up again: while one is freed, others are renewed, or go.
                    due = self.ends.get(holder)
                    if due is not None and due[0] <= self.now():
                        await self._end(due[1])
        except StoreError:
            # The client was closed; the next grant finds another attendant.
            return

    async def _hear(self, client: str) -> None:
        try:
            ended: tuple[str, ...] = await Call("ends", Listen(client), self.planned)
        except OutcomeUnknown:
            return
        for holder in ended:
            self.ends.pop(holder, None)
            self.lose(holder, ENDED)

    async def _end(self, claim: Claim) -> None:
        self.freed.add(claim.id)
        if claim.id in self.asking:
            self.asking[claim.id] = False
        try:
            await self.release(claim, tombstone=False, until=self.now() + FREE_PATIENCE)
        except StoreError:
            if claim.id in self.ends:
                self.ends[claim.id] = (self.now() + TRY_AGAIN, claim)
        finally:
            self.freed.discard(claim.id)

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait in the server, for a while."""
        now = self.now()
        if self.coarse and until - now < SLICE:
            await Sleep(min(until, now + LOOK))
            return
        try:
            await self._by(Await(claim), min(until, self.now() + SLICE))
        except OutcomeUnknown:
            # The connection has ended: the next question begins with another.
            return

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Prove that each session lives; None for one that there was no time to ask."""
        answers: Sequence[bool | None] = await self._by(Renew(claims), until)
        return [self._renewed(*renewed) for renewed in zip(claims, answers, strict=True)]

    def _renewed(self, claim: Claim, lives: bool | None) -> bool | None:
        """Whether it is held on; one that is being freed, or was, is not."""
        if claim.id not in self.ends or claim.id in self.freed:
            return False
        if not lives:
            return lives
        ends = max(self.ends[claim.id][0], self.now() + claim.lease)
        self.ends[claim.id] = (ends, claim)
        return True

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Free the lock, or end the wait."""
        reply: Released = await self._by(Release(claim, tombstone), until)
        self.ends.pop(claim.id, None)
        return reply.was == "held"

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Nothing here outlives its session."""
        raise NotApplied(
            f"the hold on {claim.name!r} cannot be detached: by protocol {self.protocol!r} it "
            "ends with its connection; use protocol 'lease'"
        )

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who holds, who waits."""
        answer: Sequence[LockState] = await self._by(Inspect(name, pattern), until)
        return answer

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """End the session that holds."""
        answer: Broken = await self._by(BreakLock(name, token), until)
        return answer

    def forget(self, claim: Claim) -> None:
        """Whoever stops waiting leaves as well, and so gives its connection back."""

    def reset_identity(self) -> None:
        """After a fork, or in a new loop: nothing here is ours."""
        self.begin()


def _nobody(holder: str, reason: str) -> None:
    """Until there are books to be told."""
