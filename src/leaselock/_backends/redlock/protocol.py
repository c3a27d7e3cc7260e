"""Redlock (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), fenced.

A request goes to all masters at once. The client that gets the votes of a majority holds, for the
lease less the time that this took; the votes of a try that failed are given back. The token is the
greatest of the majority's tokens. Where they differ it is written to a majority before the grant
counts, so tokens only rise, because any two majorities have a master in common.

Waiters queue at one master, the first that answers. It wakes them in order, so they do not race
for the others. The queue only keeps order; exclusion depends on the majority alone.

A vote that was given back once is never counted again, whatever an answer says: the request that
gives it back may still be under way (hazard D2).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends.redlock import inspection, maintenance
from leaselock._backends.redlock.claim_votes import UNKNOWN, ClaimVotes
from leaselock._backends.redlock.master import RaiseToken, ReleaseGrant
from leaselock._backends.redlock.pending_releases import PendingReleases
from leaselock._backends.redlock.quorum import TIMEOUT, Masters
from leaselock._backends.redlock.votes import (
    agreed,
    busiest,
    changed_on,
    has_enough,
    held_on,
    yes_votes,
)
from leaselock._core.client import timing
from leaselock._core.contract.backend import (
    Acquire,
    Backend,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Collected,
    Finding,
    Grant,
    Lifetime,
    LifetimeSet,
    LockState,
    Release,
    Renew,
    SetLifetime,
)
from leaselock._core.contract.effects import Signal, Wait
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leaselock._backends.redlock.master import Master
    from leaselock._backends.redlock.votes import Votes

# Seconds after which a majority without the master that has the queue counts.
BLOCKED_FOR = 3.0
# How often a claim that is the first in the queue asks again at once.
TRIES = 4
# Attempts of `timing.pause`, to each of which the failed votes of a claim are added. The first
# pauses of a claim at the head of the queue are about a millisecond, those of claims that have
# split the votes some twenty. The longest are about a tenth of a second: a master that has lost its
# data may offer its vote for as long as the others have the holder's.
AT_ONCE, SPLIT, LAST_ATTEMPT = -3, 3, 5


class Redlock(Backend):
    """Locks of one client on several masters."""

    def __init__(
        self,
        masters: Sequence[Master],
        capabilities: Capabilities,
        now: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        super().__init__(capabilities)
        self.masters = masters
        self.now = now
        self.quorum = len(masters) // 2 + 1
        self.random = random
        self.after_fork()

    def after_fork(self) -> None:
        """After a fork: no claim waits here, and nothing is left to release."""
        self.closing = Signal()
        self.all = Masters(self.masters, self.now)
        self.blocked_since: dict[int, float] = {}
        # By the ids of the claims. What a claim leaves behind is removed when it is over.
        self.claims: dict[str, ClaimVotes] = {}
        self.pending_releases = PendingReleases(self.masters, self.now, self.random, self.closing)

    def _known(self, claim: Claim) -> ClaimVotes:
        """The record of a claim, which begins now if there is none."""
        known = self.claims.get(claim.id)
        if known is None:
            known = self.claims[claim.id] = ClaimVotes()
        return known

    def _drop_if_over(self, claim: Claim) -> None:
        known = self.claims.get(claim.id)
        if known is not None and known.is_over():
            del self.claims[claim.id]

    # --- a try ----------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try; repeated at once while this claim is first in the queue.

        The other masters may carry out the release that made it the first a little later.
        """
        nothing_sent = self.claims.get(claim.id, UNKNOWN).nothing_under_way()
        for tries_left in reversed(range(TRIES if wait else 1)):
            queue_master = self.all.queue_master()
            if wait:
                self._queue_at(claim, queue_master)
            votes = await self._vote(claim, queue_master, wait, until)
            if nothing_sent:
                await self.all.hear_refusals(votes, until)
            granted = self.claims.get(claim.id, UNKNOWN).valid(votes.granted())
            won = self._won(votes, granted, queue_master)
            if won and (token := await self._token(claim, granted, until)) is not None:
                return Grant(token, ())
            if wait and granted:
                self._known(claim).failures += 1
            if queue_master not in granted or (
                tries_left and await self._closed_after_pause(claim)
            ):
                break
        votes.lost = True
        # Votes that do not count any more, too: what should have ended them did not arrive.
        unconfirmed = await self._give_back(claim, votes.granted(), until)
        queued = any(isinstance(answer, Busy) for answer in votes.answers.values())
        votes.placed = bool(unconfirmed) or (wait and queued)
        try:
            busy = self._busy(votes, claim, queue_master)
        except NotApplied:
            self._done_with(claim, certain=nothing_sent)
            raise
        if not wait:
            # Only now: a claim that may yet be granted must not be given back. After a majority
            # was won and its token not raised, the votes may be others than were given back.
            votes.final = True
            for master in {*votes.errors, *unconfirmed, *(granted if won else ())}:
                self.pending_releases.add(master, claim)
            self._done_with(claim)
            await self.pending_releases.start()
        return busy

    async def _closed_after_pause(self, claim: Claim) -> bool:
        return await Wait(self.closing, self.now() + self._pause(claim, AT_ONCE))

    def _pause(self, claim: Claim, attempt: int) -> float:
        attempt += self.claims.get(claim.id, UNKNOWN).failures
        return timing.pause(min(attempt, LAST_ATTEMPT), self.random())

    def _queue_at(self, claim: Claim, queue_master: int) -> None:
        """Queue at one master at a time: a claim left in another queue would block the next one."""
        known = self._known(claim)
        before, known.queued_at = known.queued_at, queue_master
        if before is not None and before != queue_master:
            self.masters[before].locks.forget(claim)

    async def _vote(self, claim: Claim, queue_master: int, wait: bool, until: float) -> Votes:
        known = self._known(claim)
        votes = known.votes = self.all.new_votes()

        async def late(master: int, answer: object) -> None:
            await self._late(votes, claim, master, answer)

        requests = self.all.each(Acquire(claim, False))
        requests[queue_master] = Acquire(claim, wait)
        await self.all.poll(requests, until, partial(has_enough, queue_master), late, votes)
        if votes.errors or not votes.complete:
            self._known(claim).uncertain = True
        return votes

    async def _late(self, votes: Votes, claim: Claim, master: int, answer: object) -> None:
        """Handle an answer to a try that has failed without it; a newer try finds it by itself."""
        known = self.claims.get(claim.id, UNKNOWN)
        if known.votes not in (None, votes):
            return
        if isinstance(answer, Grant):
            if known.votes is not None:
                known.given_back.add((master, answer.token))
            self.pending_releases.add(master, claim, answer.token)
            await self.pending_releases.send(master)
        elif answer is None and votes.final:
            self.pending_releases.add(master, claim)
            await self.pending_releases.start()

    def _won(self, votes: Votes, granted: Mapping[int, int], queue_master: int) -> bool:
        if len(granted) < votes.quorum:
            return False
        if not isinstance(votes.answers.get(queue_master), Busy):
            self.blocked_since.pop(queue_master, None)
            return True
        # Another claim is before this one there; or it has a hold that is on no other master.
        since = self.blocked_since.setdefault(queue_master, self.now())
        return self.now() - since > BLOCKED_FOR

    async def _token(self, claim: Claim, granted: Mapping[int, int], until: float) -> int | None:
        token = max(granted.values())
        if agreed(granted.values(), self.quorum):
            return token
        fences = dict.fromkeys(granted, RaiseToken(claim, token))
        votes = await self.all.poll(fences, until, lambda v: v.is_decided(yes_votes(v)))
        return token if yes_votes(votes) >= self.quorum else None

    async def _give_back(self, claim: Claim, granted: Mapping[int, int], until: float) -> set[int]:
        """Give votes back; returns the masters that did not confirm it."""
        if not granted:
            return set()
        self._known(claim).given_back.update(granted.items())
        undos = {i: ReleaseGrant(claim, token) for i, token in granted.items()}
        said = await self.all.poll(undos, min(until, self.now() + TIMEOUT), lambda v: False)
        return undos.keys() - said.answers.keys()

    def _busy(self, votes: Votes, claim: Claim, queue_master: int) -> Busy:
        self.all.check(votes, f"no majority for {claim.name!r}")
        reply = busiest(votes)
        known = self._known(claim)
        known.waiting_at = None
        if isinstance(at_line := votes.answers.get(queue_master), Busy):
            known.waiting_at = queue_master
            return reply._replace(retry_after=at_line.retry_after)
        # Several claims had some votes each: chance decides which one tries again first.
        return reply._replace(retry_after=self._pause(claim, SPLIT))

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a message from the master where the claim is in the queue."""
        index = self.claims.get(claim.id, UNKNOWN).waiting_at
        if index is None:
            await Wait(self.closing, until)
            return
        with suppress(StoreError):
            # The master is unreachable, and so are its messages: ask again.
            await self.masters[index].locks.await_wakeup(claim, until)

    # --- what follows ---------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all on every master; a claim holds if a majority renewed it."""
        requests = self.all.each(Renew(claims))

        def verdicts(votes: Votes) -> list[bool | None]:
            words = ([a[k] for a in self._valid_answers(votes, c)] for k, c in enumerate(claims))
            return [votes.verdict(sum(each), len(each) - sum(each)) for each in words]

        votes = await self.all.poll(requests, until, lambda v: None not in verdicts(v))
        self.all.check(votes, "no majority to renew")
        return verdicts(votes)

    def _valid_answers(self, votes: Votes, claim: Claim) -> list[Any]:
        """The answers of masters whose vote is not being given back."""
        ending = self.claims.get(claim.id, UNKNOWN).ending()
        return [answer for master, answer in votes.answers.items() if master not in ending]

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release on all masters; repeat it later on those that did not answer."""
        uncertain = self.claims.get(claim.id, UNKNOWN).uncertain
        request = Release(claim, tombstone or uncertain)
        votes = await self.all.poll(
            self.all.each(request), until, lambda v: v.is_decided(held_on(v))
        )
        for master in set(range(len(self.masters))) - set(votes.answers):
            self.pending_releases.add(master, claim)
        self.all.check(votes, f"no majority to give {claim.name!r} back")
        self._done_with(claim)
        self.forget(claim)
        await self.pending_releases.start()
        return votes.verdict(held_on(votes), len(votes.answers) - held_on(votes)) is not False

    def _done_with(self, claim: Claim, *, certain: bool = True) -> None:
        """No master has the claim, and it is *certain* that no request for it is under way."""
        if certain and (known := self.claims.get(claim.id)) is not None:
            known.forget_votes()
            self._drop_if_over(claim)

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold, on every master that has it."""
        votes = await self.all.poll(
            self.all.each(SetLifetime(claim, lifetime)),
            until,
            lambda v: v.is_decided(changed_on(self._valid_answers(v, claim))),
        )
        self.all.check(votes, f"no majority for {claim.name!r}")
        return LifetimeSet(changed_on(self._valid_answers(votes, claim)) >= votes.quorum, ())

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """One lock, or those whose names match. A slow master is not waited for."""
        return await inspection.inspect(self.all, name, pattern, until)

    async def walk(self, pattern: str, until: float) -> Sequence[LockState]:
        """All locks whose names match, those of other programs as well."""
        return await inspection.walk(self.all, pattern, until)

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """End the hold of the claim that has a majority, on each master that it has."""
        return await inspection.break_lock(self.all, name, token, until)

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the masters are set up."""
        return await maintenance.examine(self.masters, until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Nothing has to be created."""
        return ()

    async def collect_garbage(self, position: object, until: float) -> Collected:
        """Delete the names of idle locks in the index of each master, and old counters."""
        return await maintenance.collect(self.masters, position, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        if (known := self.claims.get(claim.id)) is not None:
            known.forget_wait()
            self._drop_if_over(claim)
        for master in self.masters:
            master.locks.forget(claim)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again, each at the master where it is in the queue. The waits of
        other claims are short.
        """
        for claim_id in claim_ids:
            index = self.claims.get(claim_id, UNKNOWN).waiting_at
            if index is not None:
                self.masters[index].locks.wake((claim_id,))

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.closing.set()
        for master in self.masters:
            master.locks.close()
