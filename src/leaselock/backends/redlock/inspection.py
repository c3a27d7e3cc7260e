"""What all masters together see of the locks: it is held by who has a majority of them.

One that is slow is not waited for, as long as a majority answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redlock.assembly import PATIENCE
from leaselock.backends.redlock.ballot import merged
from leaselock.core.backend import BreakLock, Broken, Inspect, LockState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.backends.redlock.assembly import Assembly
    from leaselock.backends.redlock.ballot import Ballot


async def inspect(
    masters: Assembly, name: str | None, pattern: str, until: float
) -> Sequence[LockState]:
    """One lock, or those whose names match: who holds a majority, who waits."""
    ballot = await _seen(masters, Inspect(name, pattern), "no majority to look at", until)
    names = {sight.name for sights in ballot.answers.values() for sight in sights}
    seen = (_merged(each, ballot) for each in sorted(names))
    return tuple(sight for sight in seen if name is not None or sight.held or sight.waiting)


async def break_lock(masters: Assembly, name: str, token: int | None, until: float) -> Broken:
    """Take the lock from who has a majority of the masters, on each that it has."""
    ballot = await _seen(masters, Inspect(name, "*"), f"no majority to break {name!r}", until)
    held = _merged(name, ballot).held
    if held is None or token not in (None, held.token):
        return Broken(held, False, ())
    breaks: dict[int, object] = {
        i: BreakLock(name, sight.held.token)
        for i, (sight,) in ballot.answers.items()
        if sight.held is not None and sight.held.id == held.id
    }
    done = await masters.poll(breaks, until, lambda b: False)
    broken = sum(answer.done for answer in done.answers.values())
    if len(breaks) - broken >= ballot.quorum:
        raise masters.error(done, f"{name!r} could not be broken on most masters")
    return Broken(held, True, ())


async def _seen(masters: Assembly, inspect: Inspect, what: str, until: float) -> Ballot:
    soon = min(until, masters.now() + PATIENCE)
    ballot = await masters.poll(masters.each(inspect), soon, lambda b: False)
    masters.check(ballot, what)
    return ballot


def _merged(name: str, ballot: Ballot) -> LockState:
    sights = {i: s for i, found in ballot.answers.items() for s in found if s.name == name}
    return merged(name, sights, ballot.quorum)
