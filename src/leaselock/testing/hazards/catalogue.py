"""The hazards that are played, in the order of the table.

Law: a hazard is a function of a scene, and its docstring says what happens. The last column names
its rows in docs/explanation/hazards.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.hazards import deaths, doubts, leases, races, releases, servers, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.scene import Scene


class Hazard(NamedTuple):
    """One hazard."""

    key: str
    """As it is typed."""
    title: str
    play: Callable[[Scene], Outcome]
    rows: str
    """Where the page of hazards speaks of it, if it does."""
    last: bool = False
    """It befalls a whole server, so it is played when nothing else is played there."""

    @property
    def about(self) -> str:
        """What happens."""
        return " ".join((self.play.__doc__ or "").split())


HAZARDS = {
    hazard.key: hazard
    for hazard in (
        Hazard("crash", "the holder dies", deaths.crash, "F14"),
        Hazard("crash-midway", "death while taking it", deaths.crash_midway, "A1"),
        Hazard("fork", "the holder forks", deaths.fork, "F6"),
        Hazard("outlived", "work outlives a fixed lease", leases.outlived, "B1, C7"),
        Hazard("renewed", "work outlives a renewed lease", leases.renewed, "C1"),
        Hazard("frozen", "the holder stands still", leases.frozen, "B1"),
        Hazard("late-release", "release after the end", releases.after_the_end, "A2, A6"),
        Hazard("two-step-release", "check, then delete", releases.in_two_steps, "A3, D3"),
        Hazard("stranger", "release by a stranger", releases.by_a_stranger, "A9"),
        Hazard("two-at-once", "check, then take", races.two_at_once, "J12"),
        Hazard("overwritten-end", "the loser's end (GETSET)", races.overwritten_end, "B9"),
        Hazard("wrong-clock", "a client's clock is wrong", races.wrong_clock, "B3, B9"),
        Hazard("failover", "failover before replication", servers.failover, "G1", last=True),
        Hazard("restart", "the server is killed", servers.restart, "G2, J6", last=True),
        Hazard("lost-reply", "a lost reply: ghost hold", doubts.lost_reply, "D1"),
        Hazard("late-question", "a late question: ghost hold", doubts.late_question, "D2"),
        Hazard("nesting", "no reentrancy", waiting.nesting, "A7"),
        Hazard("barging", "unfair: barging", waiting.barging, "E5"),
        Hazard("herd", "herd at each release", waiting.herd, "E7, I6"),
        Hazard("polling", "waiting by asking", waiting.polling, ""),
    )
}
