"""The models: no error, each planted flaw found, runs of the code accepted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from verification.simulation.bugs import BUGS
from verification.tla import tlc
from verification.tla.checks import CHECKS, DOCUMENT_TRACE, LEASE_TRACE

if TYPE_CHECKING:
    from verification.tla.checks import Check, Trace

pytestmark = pytest.mark.nightly

SECONDS = 1800.0
# For those that are not complete: so deep as this goes.
BOUND = 60.0
# How many runs are compared with the model, with a planted bug and without; TLC reads a part whole.
PLANTED, RUNS, PART = 25, 1000, 100
# Complete within minutes, and with an exact view, which document.tla does not have.
COUNTED = ("lease, small", "lease, semaphore", "sessions, ZooKeeper")
TIMEOUT = pytest.mark.timeout(SECONDS * 1.1)


@pytest.fixture(autouse=True)
def programs() -> None:
    """Skip where there is no Java."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("no server: java and mvn are needed to check models")


@pytest.mark.heavy
@TIMEOUT
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if not check.long], ids=lambda check: check.name
)
def test_model(check: Check) -> None:
    endless = not check.complete and not check.violated
    result = tlc.check(check, BOUND if endless else SECONDS)
    if check.violated:
        assert result.violated in check.violated
    else:
        assert result.violated == ""
        assert result.finished or endless


@pytest.mark.heavy
@TIMEOUT
@pytest.mark.parametrize("check", [check for check in CHECKS if check.name in COUNTED])
def test_the_count_of_states_does_not_depend_on_the_order_of_visits(check: Check) -> None:
    """It would, if the view called states the same whose futures differ, or the other way round."""
    one, two = (tlc.check(check, SECONDS, workers) for workers in (1, 2))
    assert one.finished
    assert one.states == two.states


@pytest.mark.heavy
@TIMEOUT
@pytest.mark.parametrize("first", range(0, RUNS, PART))
@pytest.mark.parametrize("what", [LEASE_TRACE, DOCUMENT_TRACE], ids=lambda what: what.model)
def test_runs_of_the_code_are_behaviours_of_the_model(what: Trace, first: int) -> None:
    refused, result = tlc.refused(what, [what.events(first + i) for i in range(PART)], SECONDS)
    assert (refused, result.violated) == ([], "")


@pytest.mark.heavy
@TIMEOUT
@pytest.mark.parametrize(
    ("what", "name"),
    [
        (LEASE_TRACE, "expires_early"),
        (LEASE_TRACE, "no_tombstone"),
        (LEASE_TRACE, "queue_jumped"),
        (LEASE_TRACE, "renewal_shortens"),
        (LEASE_TRACE, "validity_from_reply"),
        (DOCUMENT_TRACE, "document/decision_reused"),
        (DOCUMENT_TRACE, "document/renewal_unseen"),
        (DOCUMENT_TRACE, "document/watched_from_last_look"),
    ],
)
def test_runs_of_code_with_a_bug_are_not(
    what: Trace, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(bug for bug in BUGS if bug.name == name).plant(monkeypatch)
    refused, _ = tlc.refused(what, [what.events(seed) for seed in range(PLANTED)], SECONDS)
    assert refused


@pytest.mark.heavy
def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(tlc.NoTlc, match="no java: install it"):
        tlc.jar()
