"""Elections of client-go and locks of leaselock on one Lease: `client_go` for a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from verification.interop.client_go import Contender, Term, overlaps, run, text

if TYPE_CHECKING:
    from testkit.servers.kubernetes import KubeApiserver

pytestmark = pytest.mark.nightly

SECONDS = 60.0
# It only bounds a failure; the server and the program may have to be built.
TIMEOUT = 7200.0


@pytest.mark.heavy
@pytest.mark.timeout(TIMEOUT)
def test_both_are_served_and_never_hold_at_once(
    kubernetes: KubeApiserver, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(kubernetes, SECONDS, 2)
    with capsys.disabled():
        print(f"\n{text(outcome)}")
    assert not outcome.overlaps
    assert all(outcome.turns.values())


def test_an_overlap_is_seen() -> None:
    one, other, third = (Term(*t, "ours", False) for t in ((0.0, 2.0), (1.0, 3.0), (3.0, 4.0)))
    assert overlaps([third, other, one]) == [(one, other)]


class Said:
    """A process that has said something."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def output(self) -> str:
        """What it said."""
        return "\n".join(self.lines)

    def kill(self) -> None:
        """It is none."""


def test_a_stop_divides_a_term_and_a_kill_ends_it() -> None:
    first = Said("wait 1.0", "lead 2.0", "leave 5.0", "wait 6.0", "lead 7.0")
    lives = [first, Said("wait 9.0", "lead 9.5", "leave 10.0", "# tired")]
    contender = Contender("client-go", lambda number: lives[number])  # type: ignore[arg-type,return-value]
    contender.start()
    contender.deaths, contender.stops = [8.0, 11.0], [(3.0, 4.0), (9.1, 9.2)]
    assert list(contender.terms()) == [
        Term(2.0, 3.0, "client-go", False),
        Term(4.0, 5.0, "client-go", True),
        Term(7.0, 8.0, "client-go", False),
        Term(9.5, 10.0, "client-go", False),
    ]
    assert contender.turns() == 3
    # The last one was stopped while it waited.
    assert contender.waits() == [1.0, 1.0]
    assert contender.complaints() == ["# tired"]
