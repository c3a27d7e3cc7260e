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
from leaselock._backends.redlock.master import RaiseToken, ReleaseGrant
from leaselock._backends.redlock.pending_releases import PendingReleases
from leaselock._backends.redlock.quorum import TIMEOUT, Masters
from leaselock._backends.redlock.votes import (
    agreed,
    busiest,
    changed_on,
    has_enough,
    held_on,
    valid_answers,
    yes_votes,
)
from leaselock._core import timing
from leaselock._core.backend import (
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
from leaselock._core.effects import Signal, Wait
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
        self.latest: dict[str, Votes] = {}
        # The votes, as master and token, that were given back, of claims that are still in use.
        self.given_back: dict[str, set[tuple[int, int]]] = {}
        self.waiting_at: dict[str, int] = {}
        self.queued_at: dict[str, int] = {}
        self.uncertain: set[str] = set()
        # How many votes of each waiting claim had grants, and failed.
        self.failures: dict[str, int] = {}
        self.pending_releases = PendingReleases(self.masters, self.now, self.random, self.closing)

    # --- a try ----------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try; repeated at once while this claim is first in the queue.

        The other masters may carry out the release that made it the first a little later.
        """
        first = claim.id not in self.uncertain and claim.id not in self.given_back
        for tries_left in reversed(range(TRIES if wait else 1)):
            queue_master = self.all.queue_master()
            if wait:
                self._queue_at(claim, queue_master)
            votes = await self._vote(claim, queue_master, wait, until)
            if first:
                await self.all.hear_refusals(votes, until)
            granted = self._granted(votes, claim)
            won = self._won(votes, granted, queue_master)
            if won and (token := await self._token(claim, granted, until)) is not None:
                return Grant(token, ())
            if wait and granted:
                self.failures[claim.id] = self.failures.get(claim.id, 0) + 1
            if queue_master not in granted or (
                tries_left and await self._closed_after_pause(claim)
            ):
                break
        votes.failed = True
        # Votes that do not count any more, too: what should have ended them did not arrive.
        unconfirmed = await self._give_back(claim, votes.granted(), until)
        queued = any(isinstance(answer, Busy) for answer in votes.answers.values())
        votes.placed = bool(unconfirmed) or (wait and queued)
        try:
            busy = self._busy(votes, claim, queue_master)
        except NotApplied:
            self._taken_back(claim, first)
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
        attempt += self.failures.get(claim.id, 0)
        return timing.pause(min(attempt, LAST_ATTEMPT), self.random())

    def _queue_at(self, claim: Claim, queue_master: int) -> None:
        """Queue at one master at a time: a claim left in another queue would block the next one."""
        before = self.queued_at.get(claim.id, queue_master)
        self.queued_at[claim.id] = queue_master
        if before != queue_master:
            self.masters[before].locks.forget(claim)

    async def _vote(self, claim: Claim, queue_master: int, wait: bool, until: float) -> Votes:
        votes = self.latest[claim.id] = self.all.new_votes()

        async def late(master: int, answer: object) -> None:
            await self._late(votes, claim, master, answer)

        requests = self.all.each(Acquire(claim, False))
        requests[queue_master] = Acquire(claim, wait)
        await self.all.poll(requests, until, partial(has_enough, queue_master), late, votes)
        if votes.errors or not votes.complete:
            self.uncertain.add(claim.id)
        return votes

    async def _late(self, votes: Votes, claim: Claim, master: int, answer: object) -> None:
        """Handle an answer to a try that has failed without it; a newer try finds it by itself."""
        if self.latest.get(claim.id, votes) is not votes:
            return
        if isinstance(answer, Grant):
            if claim.id in self.latest:
                self.given_back.setdefault(claim.id, set()).add((master, answer.token))
            self.pending_releases.add(master, claim, answer.token)
            await self.pending_releases.send(master)
        elif answer is None and votes.final:
            self.pending_releases.add(master, claim)
            await self.pending_releases.start()

    def _granted(self, votes: Votes, claim: Claim) -> dict[int, int]:
        given_back = self.given_back.get(claim.id, ())
        return {i: token for i, token in votes.granted().items() if (i, token) not in given_back}

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
        self.given_back.setdefault(claim.id, set()).update(granted.items())
        undos = {i: ReleaseGrant(claim, token) for i, token in granted.items()}
        said = await self.all.poll(undos, min(until, self.now() + TIMEOUT), lambda v: False)
        return undos.keys() - said.answers.keys()

    def _busy(self, votes: Votes, claim: Claim, queue_master: int) -> Busy:
        self.all.check(votes, f"no majority for {claim.name!r}")
        reply = busiest(votes)
        self.waiting_at.pop(claim.id, None)
        if isinstance(at_line := votes.answers.get(queue_master), Busy):
            self.waiting_at[claim.id] = queue_master
            return reply._replace(retry_after=at_line.retry_after)
        # Several claims had some votes each: chance decides which one tries again first.
        return reply._replace(retry_after=self._pause(claim, SPLIT))

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a message from the master where the claim is in the queue."""
        index = self.waiting_at.get(claim.id)
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
        given_back, latest = self.given_back.get(claim.id, ()), self.latest.get(claim.id)
        return valid_answers(votes, given_back, self._granted(latest, claim) if latest else ())

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release on all masters; repeat it later on those that did not answer."""
        request = Release(claim, tombstone or claim.id in self.uncertain)
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

    def _taken_back(self, claim: Claim, first: bool) -> None:
        """No master has the claim; after its *first* try no request about it is under way."""
        if first:
            self._done_with(claim)

    def _done_with(self, claim: Claim) -> None:
        self.latest.pop(claim.id, None)
        self.given_back.pop(claim.id, None)
        self.uncertain.discard(claim.id)

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
        self.waiting_at.pop(claim.id, None)
        self.queued_at.pop(claim.id, None)
        self.failures.pop(claim.id, None)
        votes = self.latest.get(claim.id)
        if votes is not None and votes.failed:
            del self.latest[claim.id]
        for master in self.masters:
            master.locks.forget(claim)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again, each at the master where it is in the queue. The waits of
        other claims are short.
        """
        for claim_id in claim_ids:
            index = self.waiting_at.get(claim_id)
            if index is not None:
                self.masters[index].locks.wake((claim_id,))

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.closing.set()
        for master in self.masters:
            master.locks.close()
