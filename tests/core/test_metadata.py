"""Holder records are written without the json module, and are valid JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from leaselock._core.inspection import quoted


@given(st.none() | st.text())
def test_quoted(text: str | None) -> None:
    assert json.loads(quoted(text)) == text
