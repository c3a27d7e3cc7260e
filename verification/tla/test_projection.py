"""Runs of the simulator are recorded for the models. This needs no model checker."""

from __future__ import annotations

from collections import Counter

import pytest
from verification.tla.checks import DOCUMENT_TRACE, LEASE_TRACE

pytestmark = pytest.mark.nightly


def test_each_request_of_a_run_is_recorded() -> None:
    events = [event for seed in range(20_000, 20_010) for event in LEASE_TRACE.events(seed)]
    kinds = Counter(event["kind"] for event in events)
    requests = sum(kinds[kind] for kind in ("claim", "ask", "release", "renew"))
    assert 0 < kinds["unanswered"] < kinds["reply"] == requests - kinds["unanswered"]


def test_each_write_of_a_run_on_documents_is_recorded() -> None:
    assert DOCUMENT_TRACE.events(20_000)
