"""A history that fails is shown."""

from __future__ import annotations

import pytest
from verification.models.histories import History, Step

from leaselock._core.contract.backend import Claim, Release, Released

pytestmark = pytest.mark.first_tier


class Failing:
    """A pair whose sides differ in their answers to a release of a lock."""

    queues = votes = False
    leases: tuple[float, ...] = (30.0, 30.0, 30.0)
    pause = 0.0

    def ask(self, request: object) -> object:
        """Compare."""
        assert not isinstance(request, Release) or request.claim.name != "a", "Grant != Busy"
        return Released("held", ())

    def forget(self, claim: Claim) -> None:
        """Nothing to forget."""

    def die(self, client: str) -> None:
        """Nothing to end."""

    def stranger(self, name: str) -> None:
        """No other program."""

    def heard(self) -> int:
        """No messages."""
        return 0


def test_a_failure_is_shown_with_the_history_of_its_lock() -> None:
    history = History(Failing())
    for kind, client, name in (
        ("acquire", 0, 0),
        ("release", 0, 1),
        ("die", 1, 0),
        ("acquire", 1, 0),
    ):
        history.play(Step(kind, client, name, 0, 0))
    with pytest.raises(AssertionError, match="Grant != Busy") as failed:
        history.play(Step("release", 0, 0, 0, 0))
    (note,) = failed.value.__notes__
    first, *told = note.splitlines()
    assert first == "the history of 'a':"
    assert [line.partition("(")[0] for line in told] == [
        "Acquire",
        "client 2.0000 ends",
        "Acquire",
        "Release",
    ]
    assert "id='client 1.0000:1'" in told[0]
    assert "client 2.0001" in told[2]
    assert told[2].endswith("notified=())")
