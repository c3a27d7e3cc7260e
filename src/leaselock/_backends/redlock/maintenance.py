"""Doctor and garbage collection of a Redlock: of one master after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.contract.backend import Collected, CollectGarbage, Doctor, Finding
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leaselock._backends.redlock.master import Master


async def examine(masters: Sequence[Master], until: float) -> tuple[Finding, ...]:
    """The findings of all; a master that does not answer is a finding, too."""
    answers: list[Sequence[Finding]] = []
    for master in masters:
        try:
            answers.append(await master.locks.request(Doctor(), until))
        except StoreError as error:
            what = f"{master.shown}: {error}"
            answers.append((Finding("fail", what, "a lock needs a majority, not all of them"),))
    findings = (finding for answer in answers for finding in answer)
    return (_number(len(masters)), *_duplicates(masters, answers), *findings)


class Position(NamedTuple):
    """Where the next step of a garbage collection begins."""

    master: int = 0
    within: object = None
    """The position on that master."""
    error: StoreError | None = None
    """That of an earlier master, which did not answer."""


async def collect(masters: Sequence[Master], position: object, until: float) -> Collected:
    """One step, on one master. The error of one that does not answer is raised when the others are
    done.
    """
    number, within, error = position if isinstance(position, Position) else Position()
    if number == len(masters):
        if error is not None:
            raise error
        return Collected(0)
    try:
        done = await masters[number].locks.request(CollectGarbage(within), until)
    except StoreError as failure:
        done, error = Collected(0), failure
    number += done.position is None
    return done._replace(position=Position(number, done.position, error))


def _number(masters: int) -> Finding:
    what = f"{masters} masters: a lock survives the loss of {(masters - 1) // 2}"
    if masters % 2:
        return Finding("ok", what)
    return Finding("warn", what, "an odd number: one fewer is as good, one more is better")


def _duplicates(
    masters: Sequence[Master], answers: Sequence[Sequence[Finding]]
) -> Iterator[Finding]:
    """One server under two names would have two votes (hazard H3)."""
    names: dict[str, str] = {}
    for master, answer in zip(masters, answers, strict=True):
        for server in {finding.server for finding in answer} - {""}:
            if server in names:
                what = f"{names[server]} and {master.shown} are one server, whose vote counts twice"
                yield Finding("fail", what, "name each of several independent masters once")
            names[server] = master.shown
