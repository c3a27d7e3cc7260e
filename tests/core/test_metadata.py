"""Holder records are written without the json module, and are valid JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from leaselock._core.client.inspection import holder_of, quoted
from leaselock._core.client.validation import LONGEST_NAME
from leaselock._core.contract.backend import HoldRecord


@given(st.none() | st.text())
def test_quoted(text: str | None) -> None:
    assert json.loads(quoted(text)) == text


def test_what_another_program_wrote_is_cut_as_if_this_one_had_written_it() -> None:
    words = dict.fromkeys(("host", "thread", "label", "version", "owner", "note"), "é" * 300_000)
    record = HoldRecord("id", "client", "client", 1, 0.0, json.dumps(words | {"pid": 1}), 0.0)
    holder = holder_of(record, None)
    assert holder is not None
    for text in (holder.host, holder.thread, holder.label, holder.owner, holder.note):
        assert text is not None
        assert LONGEST_NAME - 1 <= len(text.encode()) <= LONGEST_NAME
