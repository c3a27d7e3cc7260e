"""The adapter suite on a server of your own: conftest.py has the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testkit.adapter import Check, run_check

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.conformance import Store


def test_adapter(
    check: Check, emptied: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.config.getoption("--proxy")
    if reason := run_check(check, emptied.fresh(tmp_path), server, emptied.pace):
        pytest.skip(reason)
