"""Inspecting and breaking locks on all masters: a lock is held by the claim that a majority has.

A slow master is not waited for, as long as a majority answers; but for a walk over all locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redlock.quorum import TIMEOUT
from leaselock._backends.redlock.votes import merged
from leaselock._core.contract.backend import BreakLock, Broken, Inspect, LockState, Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._backends.redlock.quorum import Masters
    from leaselock._backends.redlock.votes import Votes


async def inspect(
    masters: Masters, name: str | None, pattern: str, until: float
) -> Sequence[LockState]:
    """One lock, or those whose names match."""
    votes = await _states(masters, Inspect(name, pattern), "no majority to look at", until)
    return _listed(votes, name, masters)


async def walk(masters: Masters, pattern: str, until: float) -> Sequence[LockState]:
    """All locks whose names match, those of other programs as well."""
    votes = await masters.poll(masters.each(Walk(pattern)), until, lambda v: False)
    masters.check(votes, "no majority to look at")
    return _listed(votes, None, masters)


def _listed(votes: Votes, name: str | None, masters: Masters) -> Sequence[LockState]:
    names = {state.name for states in votes.answers.values() for state in states}
    seen = (_merged(each, votes, masters) for each in sorted(names))
    return tuple(state for state in seen if name is not None or state.in_use)


async def break_lock(masters: Masters, name: str, token: int | str | None, until: float) -> Broken:
    """End the hold of the claim that has a majority, on each master that it has."""
    votes = await _states(masters, Inspect(name, "*"), f"no majority to break {name!r}", until)
    held = _merged(name, votes, masters).held
    if held is None or not held.is_meant(token):
        return Broken(held, False, ())
    breaks = {
        i: BreakLock(name, state.held.token or held.id)
        for i, (state,) in votes.answers.items()
        if state.held is not None and state.held.id == held.id
    }
    done = await masters.poll(breaks, until, lambda v: False)
    broken = sum(answer.done for answer in done.answers.values())
    # A master that did not say what it has may have it, too.
    without = len(votes.answers) - len(breaks)
    if votes.masters - without - broken >= votes.quorum:
        raise masters.error(done, f"{name!r} could not be broken on most masters")
    return Broken(held, True, ())


async def _states(masters: Masters, inspect: Inspect, what: str, until: float) -> Votes:
    soon = min(until, masters.now() + TIMEOUT)
    votes = await masters.poll(masters.each(inspect), soon, lambda v: False)
    masters.check(votes, what)
    return votes


def _merged(name: str, votes: Votes, masters: Masters) -> LockState:
    states = {i: s for i, answer in votes.answers.items() for s in answer if s.name == name}
    reasons = [
        f"{masters.masters[i].shown}: {s.unreadable}" for i, s in states.items() if s.unreadable
    ]
    return merged(name, states, votes.quorum)._replace(unreadable="; ".join(sorted(reasons)))
