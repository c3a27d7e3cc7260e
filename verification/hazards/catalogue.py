"""The hazards of the table, in its order.

A hazard is a function of a trial; its docstring describes it in the generated page. `rows` names
its rows in verification/hazards/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from verification.hazards import (
    crashes,
    leases,
    lost_messages,
    races,
    releases,
    server_failures,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial


class Hazard(NamedTuple):
    """One hazard."""

    key: str
    """Its name on the command line."""
    title: str
    run: Callable[[Trial], Outcome]
    rows: str
    """Its rows in the page of hazards, if any."""
    last: bool = False
    """It affects a whole server, so it runs when nothing else runs there."""

    @property
    def about(self) -> str:
        """The description of the hazard."""
        return " ".join((self.run.__doc__ or "").split())


HAZARDS = {
    hazard.key: hazard
    for hazard in (
        Hazard("crash", "the holder dies", crashes.crash, "F14"),
        Hazard("crash-midway", "death during acquire", crashes.crash_midway, "A1"),
        Hazard("fork", "the holder forks", crashes.fork, "F6"),
        Hazard("outlived", "work outlives a fixed lease", leases.outlived, "B1, C7"),
        Hazard("renewed", "work outlives a renewed lease", leases.renewed, "C1"),
        Hazard("frozen", "the holder is frozen", leases.frozen, "B1"),
        Hazard("late-release", "release after the end", releases.after_the_end, "A2, A6"),
        Hazard("two-step-release", "check, then delete", releases.in_two_steps, "A3, D3"),
        Hazard("stranger", "release by another client", releases.by_a_stranger, "A9"),
        Hazard("two-at-once", "check, then acquire", races.two_at_once, "J12"),
        Hazard("overwritten-end", "overwritten expiry (GETSET)", races.overwritten_end, "B9"),
        Hazard("wrong-clock", "a client's clock is wrong", races.wrong_clock, "B3, B9"),
        Hazard(
            "failover", "failover before replication", server_failures.failover, "G1", last=True
        ),
        Hazard("restart", "the server is killed", server_failures.restart, "G2, J6", last=True),
        Hazard("lost-reply", "a lost reply: ghost hold", lost_messages.lost_reply, "D1"),
        Hazard("late-request", "a late request: ghost hold", lost_messages.late_request, "D2"),
        Hazard("nesting", "no reentrancy", waiting.nesting, "A7"),
        Hazard("barging", "unfair: barging", waiting.barging, "E5"),
        Hazard("herd", "thundering herd", waiting.herd, "E7, I6"),
        Hazard("polling", "polling", waiting.polling, ""),
    )
}
