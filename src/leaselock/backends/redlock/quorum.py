"""All masters together: who is asked, who keeps the line, who is not asked for a moment.

A request goes to all at once: one is asked in person, the others each by a process of its own,
which goes on when the matter is decided without it. A master that did not answer is left alone
for a second, as long as the others are a majority, so that one that is away costs little. One that
owes several answers and gives none is left alone, too: those who ask would heap up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redlock.ballot import Ballot
from leaselock.core.effects import Call, Spawn, Wait
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leaselock.backends.redlock.masters import Master

# Who is asked in person is given this long; it may be the one that is away.
PATIENCE = 0.5
SUSPECT = 1.0
SILENT, SEVERAL = 0.1, 8


class Assembly:
    """The masters of one Redlock, as one client knows them."""

    def __init__(self, masters: Sequence[Master], now: Callable[[], float]) -> None:
        self.masters = masters
        self.now = now
        self.suspects: dict[int, tuple[float, StoreError]] = {}
        # How many answers each owes, and since when it has given none.
        self.owing = [0] * len(masters)
        self.silent = [0.0] * len(masters)

    def __len__(self) -> int:
        return len(self.masters)

    def line(self) -> int:
        """The master where waiters stand in line: the first that answers."""
        return next((i for i in range(len(self)) if not self._suspect(i)), 0)

    def each(self, request: object) -> dict[int, object]:
        """The same request to all, to be put to the keeper of the line in person."""
        line = self.line()
        return dict.fromkeys((line, *(i for i in range(len(self)) if i != line)), request)

    def ballot(self) -> Ballot:
        """A fresh one."""
        return Ballot(len(self))

    async def poll(
        self,
        requests: Mapping[int, object],
        until: float,
        decided: Callable[[Ballot], bool],
        late: Callable[[int, object], Awaitable[None]] | None = None,
        ballot: Ballot | None = None,
    ) -> Ballot:
        """Ask, and wait until it is *decided*. *late* is told each answer when the ballot has
        failed before: None is no answer.
        """
        ballot = ballot or self.ballot()
        ballot.asked = len(requests)
        shunned = self._shunned(requests)
        first = next(i for i in requests if i not in shunned)
        for i, request in requests.items():
            if i in shunned:
                ballot.fail(i, shunned[i])
            elif i != first:
                await Spawn(self._collect(ballot, i, request, until, late), "vote")
        soon = min(until, self.now() + PATIENCE)
        await self._collect(ballot, first, requests[first], soon, late)
        while not (ballot.complete or decided(ballot)):
            ballot.changed.clear()
            if not await Wait(ballot.changed, until):
                break
        return ballot

    def _shunned(self, requests: Mapping[int, object]) -> dict[int, StoreError]:
        suspects = {i: self._why(i) for i in requests if self._suspect(i)}
        others = len(self) - sum(self._suspect(i) for i in range(len(self)))
        return suspects if others > len(self) // 2 and len(suspects) < len(requests) else {}

    def _suspect(self, master: int) -> bool:
        known, several = self.suspects.get(master), self.owing[master] >= SEVERAL
        if known:
            return several or self.now() < known[0]
        return several and self.now() - self.silent[master] > SILENT

    def _why(self, master: int) -> StoreError:
        known = self.suspects.get(master)
        return known[1] if known else NotApplied("it is not asked while it does not answer")

    async def _collect(
        self,
        ballot: Ballot,
        master: int,
        request: object,
        until: float,
        late: Callable[[int, object], Awaitable[None]] | None,
    ) -> None:
        answer: Any = None
        if not self.owing[master]:
            self.silent[master] = self.now()
        self.owing[master] += 1
        try:
            answer = await Call(self.masters[master].node, request, until)  # type: ignore[arg-type]
        except StoreError as error:
            self.suspects[master] = (self.now() + SUSPECT, error)
            ballot.fail(master, error)
        else:
            self.suspects.pop(master, None)
            self.silent[master] = self.now()
            ballot.answer(master, answer)
        finally:
            self.owing[master] -= 1
        if ballot.failed and late is not None:
            await late(master, answer)

    def check(self, ballot: Ballot, what: str) -> None:
        """Raise what was wrong, unless a majority has answered."""
        if not ballot.heard():
            raise self.error(ballot, what)

    def error(self, ballot: Ballot, what: str) -> StoreError:
        """Why there is no majority; of who has had no time to answer, what was wrong before."""
        for master, (_, error) in self.suspects.items():
            if master not in ballot.answers:
                ballot.errors.setdefault(master, error)
        return ballot.error(what, [master.shown for master in self.masters])
