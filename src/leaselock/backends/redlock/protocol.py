"""Redlock (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), fenced.

All masters are asked at once; who has the votes of a majority holds, for the lease less the time
that took. The votes of a try that failed are given back. The token is the greatest of the
majority's; where they differ it is written to a majority before the grant counts, and as any two
majorities share a master, tokens only rise.

Waiters stand in line at one master, the first that answers: it wakes them in order, so they need
not meet in a race for the others. The line is a courtesy, a majority is the law.

A vote that was given back once is never counted again, whatever an answer says: the request that
gives it back may still be under way (hazard D2).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock.backends.redlock import overview
from leaselock.backends.redlock.assembly import PATIENCE, Assembly
from leaselock.backends.redlock.ballot import (
    agreed,
    asked_enough,
    busiest,
    consents,
    had_it,
    sound,
    tied_it,
)
from leaselock.backends.redlock.debts import Debts
from leaselock.core.backend import (
    Acquire,
    AwaitWakeup,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Grant,
    Lifetime,
    LifetimeSet,
    LockState,
    RaiseToken,
    Release,
    ReleaseGrant,
    Renew,
    SetLifetime,
)
from leaselock.core.effects import Call, Signal, Wait
from leaselock.core.maintenance import StoreMaintenance
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leaselock.backends.redlock.ballot import Ballot
    from leaselock.backends.redlock.masters import Master

# A majority that the keeper of the line has no part in is believed after so long.
STUBBORN = 3.0
SPLIT = 0.03
PAUSES = (0.001, 0.002, 0.004, 0.0)


class Redlock(StoreMaintenance):
    """One client's way of locking on several masters."""

    def __init__(
        self,
        masters: Sequence[Master],
        capabilities: Capabilities,
        now: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.masters = masters
        self.capabilities = capabilities
        self.now = now
        self.quorum = len(masters) // 2 + 1
        self.random = random
        self.reset_identity()

    def reset_identity(self) -> None:
        """After a fork, nobody here waits, and nothing is owed."""
        self.closing = Signal()
        self.all = Assembly(self.masters, self.now)
        self.stubborn: dict[int, float] = {}
        self.latest: dict[str, Ballot] = {}
        self.undone: dict[str, set[tuple[int, int]]] = {}
        self.places: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.unsure: set[str] = set()
        self.debts = Debts(self.masters, self.now, self.closing)

    # --- a try ----------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. The head of the line asks the others again: they may hear of a release later."""
        for pause in PAUSES[: None if wait else 1]:
            line = self.all.line()
            if wait:
                self._stand(claim, line)
            ballot = await self._ballot(claim, line, wait, until)
            votes = self._votes(ballot, claim)
            won = self._won(ballot, votes, line)
            if won and (token := await self._token(claim, votes, until)) is not None:
                return Grant(token, ())
            if line not in votes or await Wait(self.closing, self.now() + pause):
                break
        ballot.failed = True
        # Those that do not count any more, too: what should have ended them did not arrive.
        unsaid = await self._give_back(claim, ballot.votes(), until)
        busy = self._busy(ballot, claim, line)
        if not wait:
            # Only now: a claim that may yet be granted must not be given back. Who won was to raise
            # its tokens, and those that were undone are perhaps not there any more.
            ballot.final = True
            for master in {*ballot.errors, *unsaid, *(votes if won else ())}:
                self.debts.owe(master, claim)
            self._done_with(claim)
            await self.debts.start()
        return busy

    def _stand(self, claim: Claim, line: int) -> None:
        """In one line at a time: who has gone to another keeps nobody from looking in this one."""
        before = self.lines.get(claim.id, line)
        self.lines[claim.id] = line
        if before != line:
            self.masters[before].forget(claim.id)

    async def _ballot(self, claim: Claim, line: int, wait: bool, until: float) -> Ballot:
        ballot = self.latest[claim.id] = self.all.ballot()

        async def late(master: int, answer: object) -> None:
            await self._late(ballot, claim, master, answer)

        requests = {i: Acquire(claim, wait and i == line) for i in self.all.each(None)}
        await self.all.poll(requests, until, partial(asked_enough, line), late, ballot)
        if ballot.errors or not ballot.complete:
            self.unsure.add(claim.id)
        return ballot

    async def _late(self, ballot: Ballot, claim: Claim, master: int, answer: object) -> None:
        """An answer to a try that has failed without it; a newer try will find it by itself."""
        if self.latest.get(claim.id, ballot) is not ballot:
            return
        if isinstance(answer, Grant):
            if claim.id in self.latest:
                self.undone.setdefault(claim.id, set()).add((master, answer.token))
            self.debts.owe(master, claim, answer.token)
            await self.debts.repay(master)
        elif answer is None and ballot.final:
            self.debts.owe(master, claim)
            await self.debts.start()

    def _votes(self, ballot: Ballot, claim: Claim) -> dict[int, int]:
        undone = self.undone.get(claim.id, ())
        return {i: token for i, token in ballot.votes().items() if (i, token) not in undone}

    def _won(self, ballot: Ballot, votes: Mapping[int, int], line: int) -> bool:
        if len(votes) < ballot.quorum:
            return False
        if not isinstance(ballot.answers.get(line), Busy):
            self.stubborn.pop(line, None)
            return True
        # Somebody is in front of us there; or it has something that is on no other master.
        since = self.stubborn.setdefault(line, self.now())
        return self.now() - since > STUBBORN

    async def _token(self, claim: Claim, votes: Mapping[int, int], until: float) -> int | None:
        token = max(votes.values())
        if agreed(votes.values(), self.quorum):
            return token
        fences = dict.fromkeys(votes, RaiseToken(claim, token))
        ballot = await self.all.poll(fences, until, lambda b: b.settled(consents(b)))
        return token if consents(ballot) >= self.quorum else None

    async def _give_back(self, claim: Claim, votes: Mapping[int, int], until: float) -> set[int]:
        """Undo votes; which masters did not say that they did."""
        if not votes:
            return set()
        self.undone.setdefault(claim.id, set()).update(votes.items())
        undos = {i: ReleaseGrant(claim, token) for i, token in votes.items()}
        said = await self.all.poll(undos, min(until, self.now() + PATIENCE), lambda b: False)
        return undos.keys() - said.answers.keys()

    def _busy(self, ballot: Ballot, claim: Claim, line: int) -> Busy:
        self.all.check(ballot, f"no majority for {claim.name!r}")
        reply = busiest(ballot)
        self.places.pop(claim.id, None)
        if isinstance(at_line := ballot.answers.get(line), Busy):
            self.places[claim.id] = line
            return reply._replace(retry_after=at_line.retry_after)
        # Several had some votes each; who comes back first is left to chance.
        return reply._replace(retry_after=SPLIT * (0.1 + self.random()))

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait for a message from the master where the claim stands in line."""
        place = self.places.get(claim.id)
        if place is None:
            await Wait(self.closing, until)
            return
        with suppress(StoreError):
            # It is away, and so are its messages: to look again tells more.
            await Call(self.masters[place].node, AwaitWakeup(claim), until)

    # --- what follows ---------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all on every master: those that most masters renewed hold."""
        asked = self.all.each(Renew(claims))

        def verdicts(ballot: Ballot) -> list[bool | None]:
            words = ([a[k] for a in self._sound(ballot, c)] for k, c in enumerate(claims))
            return [ballot.verdict(sum(each), len(each) - sum(each)) for each in words]

        ballot = await self.all.poll(asked, until, lambda b: None not in verdicts(b))
        self.all.check(ballot, "no majority to renew")
        return verdicts(ballot)

    def _sound(self, ballot: Ballot, claim: Claim) -> list[Any]:
        """What is said of a hold by those whose vote is not, perhaps, on its way back."""
        undone, latest = self.undone.get(claim.id, ()), self.latest.get(claim.id)
        return sound(ballot, undone, self._votes(latest, claim) if latest else ())

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Give up everywhere; who does not answer is told later."""
        request = Release(claim, tombstone or claim.id in self.unsure)
        ballot = await self.all.poll(self.all.each(request), until, lambda b: b.settled(had_it(b)))
        for master in set(range(len(self.masters))) - set(ballot.answers):
            self.debts.owe(master, claim)
        self.all.check(ballot, f"no majority to give {claim.name!r} back")
        self._done_with(claim)
        self.forget(claim)
        await self.debts.start()
        return ballot.verdict(had_it(ballot), len(ballot.answers) - had_it(ballot)) is not False

    def _done_with(self, claim: Claim) -> None:
        self.latest.pop(claim.id, None)
        self.undone.pop(claim.id, None)
        self.unsure.discard(claim.id)

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold, on every master that has it."""
        ballot = await self.all.poll(
            self.all.each(SetLifetime(claim, tie)),
            until,
            lambda b: b.settled(tied_it(self._sound(b, claim))),
        )
        self.all.check(ballot, f"no majority for {claim.name!r}")
        return LifetimeSet(tied_it(self._sound(ballot, claim)) >= ballot.quorum, ())

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who holds a majority, who waits. One that is slow is not waited for."""
        return await overview.inspect(self.all, name, pattern, until)

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock from who has a majority of the masters, on each that it has."""
        return await overview.break_lock(self.all, name, token, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self.places.pop(claim.id, None)
        self.lines.pop(claim.id, None)
        ballot = self.latest.get(claim.id)
        if ballot is not None and ballot.failed:
            del self.latest[claim.id]
        for master in self.masters:
            master.forget(claim.id)

    def wake_all(self) -> None:
        """Wake every waiter: the client is closing."""
        self.closing.set()
        for master in self.masters:
            master.wake_all()
