"""Asking all masters together: in parallel, without those that do not answer.

One request is sent by the caller itself, the others each by a process of its own, which goes on
after the result is decided without it. A master that did not answer is skipped for a second, as
long as the others are a majority, so an unreachable master costs little. A master with several
requests outstanding and no answer is skipped, too: otherwise its requests would pile up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redlock.votes import Votes
from leaselock._core.contract.effects import Spawn, Wait
from leaselock.errors import StoreError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leaselock._backends.redlock.master import Master
    from leaselock._core.contract.effects import Request

R = TypeVar("R")
# The caller itself waits no longer than this: the master that it asks may be unreachable.
TIMEOUT = 0.5
SKIPPED_FOR = 1.0
SILENT, SEVERAL = 0.1, 8


class Masters:
    """The masters of one Redlock, and what one client knows of them."""

    def __init__(self, masters: Sequence[Master], now: Callable[[], float]) -> None:
        self.masters = masters
        self.now = now
        # Which did not answer: until when each is skipped, and the error.
        self.failed: dict[int, tuple[float, StoreError]] = {}
        # How many requests are outstanding at each, and when it answered last.
        self.outstanding = [0] * len(masters)
        self.answered = [0.0] * len(masters)

    def __len__(self) -> int:
        return len(self.masters)

    def queue_master(self) -> int:
        """The master where waiters queue: the first one that answers."""
        return next((i for i in range(len(self)) if not self._is_skipped(i)), 0)

    def each(self, request: Request[R]) -> dict[int, Request[R]]:
        """The same request to all; the caller itself asks the master with the queue."""
        first = self.queue_master()
        return dict.fromkeys((first, *(i for i in range(len(self)) if i != first)), request)

    def new_votes(self) -> Votes:
        """The votes of a new request: none yet."""
        return Votes(len(self))

    async def poll(
        self,
        requests: Mapping[int, Request[Any]],
        until: float,
        decided: Callable[[Votes], bool],
        late: Callable[[int, object], Awaitable[None]] | None = None,
        votes: Votes | None = None,
    ) -> Votes:
        """Ask, and wait until it is *decided*.

        *late* is called with each answer that comes after the try has failed; None is no answer.
        """
        votes = votes or self.new_votes()
        votes.requests = len(requests)
        skipped = self._skipped(requests)
        first = next(i for i in requests if i not in skipped)
        for i, request in requests.items():
            if i in skipped:
                votes.fail(i, skipped[i])
            elif i != first:
                await Spawn(self._ask(votes, i, request, until, late), "vote")
        soon = min(until, self.now() + TIMEOUT)
        await self._ask(votes, first, requests[first], soon, late)
        while not (votes.complete or decided(votes)):
            votes.changed.clear()
            if not await Wait(votes.changed, until):
                break
        return votes

    async def hear_refusals(self, votes: Votes, until: float) -> None:
        """If most masters have refused, wait a little for the answers of the others: only with all
        of them is it certain that nothing was applied.
        """
        soon = min(until, self.now() + TIMEOUT)
        while votes.is_refused() and not votes.complete:
            votes.changed.clear()
            if not await Wait(votes.changed, soon):
                break

    def _skipped(self, requests: Mapping[int, object]) -> dict[int, StoreError]:
        skipped = {i: self._error_of(i) for i in requests if self._is_skipped(i)}
        others = len(self) - sum(self._is_skipped(i) for i in range(len(self)))
        return skipped if others > len(self) // 2 and len(skipped) < len(requests) else {}

    def _is_skipped(self, master: int) -> bool:
        failed, several = self.failed.get(master), self.outstanding[master] >= SEVERAL
        if failed:
            return several or self.now() < failed[0]
        return several and self.now() - self.answered[master] > SILENT

    def _error_of(self, master: int) -> StoreError:
        failed = self.failed.get(master)
        return failed[1] if failed else StoreUnreachable("it is not asked while it does not answer")

    async def _ask(
        self,
        votes: Votes,
        master: int,
        request: Request[Any],
        until: float,
        late: Callable[[int, object], Awaitable[None]] | None,
    ) -> None:
        answer: Any = None
        if not self.outstanding[master]:
            self.answered[master] = self.now()
        self.outstanding[master] += 1
        try:
            answer = await self.masters[master].locks.request(request, until)
        except StoreError as error:
            # One key that is not what it should be says nothing about the other locks.
            if error.reason != "misconfigured":
                self.failed[master] = (self.now() + SKIPPED_FOR, error)
            votes.fail(master, error)
        else:
            self.failed.pop(master, None)
            self.answered[master] = self.now()
            votes.answer(master, answer)
        finally:
            self.outstanding[master] -= 1
        if votes.lost and late is not None:
            await late(master, answer)

    def check(self, votes: Votes, what: str) -> None:
        """Raise the error, unless a majority has answered."""
        if not votes.is_answered():
            raise self.error(votes, what)

    def error(self, votes: Votes, what: str) -> StoreError:
        """Why there is no majority; for a master that had no time to answer, its last error."""
        for master, (_, error) in self.failed.items():
            if master not in votes.answers:
                votes.errors.setdefault(master, error)
        return votes.error(what, [master.shown for master in self.masters])
