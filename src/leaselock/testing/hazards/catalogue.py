"""The hazards that are played, in the order of the table.

A hazard is a function of a scene; its docstring describes it on the page. The last column names its
rows in docs/explanation/hazards.md.
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
    """The name on the command line."""
    title: str
    play: Callable[[Scene], Outcome]
    rows: str
    """Its rows on the page of hazards, if any."""
    last: bool = False
    """It affects a whole server, so it is played when nothing else is played there."""

    @property
    def about(self) -> str:
        """The description."""
        return " ".join((self.play.__doc__ or "").split())


HAZARDS = {
    hazard.key: hazard
    for hazard in (
        Hazard("crash", "the holder dies", deaths.crash, "F14"),
        Hazard("crash-midway", "death during acquire", deaths.crash_midway, "A1"),
        Hazard("fork", "the holder forks", deaths.fork, "F6"),
        Hazard("outlived", "work outlasts a fixed lease", leases.outlived, "B1, C7"),
        Hazard("renewed", "work outlasts a renewed lease", leases.renewed, "C1"),
        Hazard("frozen", "the holder is suspended", leases.frozen, "B1"),
        Hazard("late-release", "release after the lease", releases.after_the_end, "A2, A6"),
        Hazard("two-step-release", "check, then delete", releases.in_two_steps, "A3, D3"),
        Hazard("stranger", "release by another client", releases.by_a_stranger, "A9"),
        Hazard("two-at-once", "check, then acquire", races.two_at_once, "J12"),
        Hazard("overwritten-end", "overwritten expiry (GETSET)", races.overwritten_end, "B9"),
        Hazard("wrong-clock", "a client's clock is wrong", races.wrong_clock, "B3, B9"),
        Hazard("failover", "failover before replication", servers.failover, "G1", last=True),
        Hazard("restart", "the server is killed", servers.restart, "G2, J6", last=True),
        Hazard("lost-reply", "a lost reply", doubts.lost_reply, "D1"),
        Hazard("late-request", "a late request", doubts.late_request, "D2"),
        Hazard("nesting", "no reentrancy", waiting.nesting, "A7"),
        Hazard("barging", "unfair: barging", waiting.barging, "E5"),
        Hazard("herd", "thundering herd", waiting.herd, "E7, I6"),
        Hazard("polling", "polling", waiting.polling, ""),
    )
}
