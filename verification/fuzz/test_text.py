"""Text typed by users or read from a store: names, durations, metadata."""

from __future__ import annotations

import contextlib
import io
import json
import math
from typing import Any

from hypothesis import strategies as st
from verification.fuzz.properties import holds
from verification.fuzz.test_urls import ODD

from leaselock import Holder
from leaselock._cli.doctor import format_finding
from leaselock._cli.formatting import escape, format_duration, parse_duration
from leaselock._cli.listing import layout
from leaselock._cli.show import lock_lines
from leaselock._core.client import validation
from leaselock._core.client.inspection import lock_info
from leaselock._core.contract.backend import Claim, Finding, HoldRecord, LockState
from leaselock.documents import lock_document
from leaselock.errors import InvalidName

# Text that controls a terminal, changes the writing direction, ends a line, or is a lone surrogate.
EVIL = "".join(map(chr, range(32))) + "\x7f\x80\x85\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e"
EVIL += "\u2066\u2069\ufeff\ud800\udfff\U000e0001"
TEXT = st.text(st.characters() | st.sampled_from(EVIL + ODD), max_size=20)
NUMBER = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, math.nan])
SCALAR = st.none() | st.booleans() | NUMBER | TEXT
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PERSON = st.fixed_dictionaries({}, optional=dict.fromkeys("host pid thread label".split(), JSON))
DEEP = st.sampled_from(["[" * 3000, '{"a":' * 3000, '"' + "9" * 5000, "9" * 5000, "\ufeff{}"])
DIGITS = st.sampled_from(['{"pid": ' + "9" * 5000 + "}", '{"host": 1, "pid": 1e999, "thread": 1}'])
NESTED = st.integers(50, 2000).map(
    lambda n: f'{{"host": {"[" * n}1{"]" * n}, "pid": 1, "thread": ""}}'
)
ABOUT = (JSON | PERSON).map(json.dumps) | TEXT | DEEP | DIGITS | NESTED


@holds(value=SCALAR | st.binary(max_size=300) | st.text(max_size=300))
def test_names(value: object) -> None:
    try:
        name = validation.checked_name(value)
    except InvalidName:
        return
    assert name == value
    assert 0 < len(name.encode()) <= validation.LONGEST_NAME
    assert not {*name} & {*EVIL[:36], "\u2028", "\u2029"}


@holds(value=SCALAR)
def test_labels_times_and_tokens(value: object) -> None:
    for check in (validation.checked_lease, validation.checked_timeout, validation.checked_token):
        with contextlib.suppress(TypeError, ValueError):
            checked: Any = check(value)
            assert checked is None or checked >= 0
    with contextlib.suppress(TypeError):
        label = validation.checked_label(value)
        assert label is None or len(label.encode()) <= validation.LONGEST_NAME


@holds(text=TEXT | st.from_regex(r"[0-9٣.]{1,400}(ms|s|m|h|d|)", fullmatch=True))
def test_durations(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds >= 0
    assert format_duration(seconds)


@holds(name=TEXT, about=ABOUT, since=NUMBER, label=TEXT)
def test_untrusted_metadata_is_shown_escaped(
    name: str, about: str, since: float, label: str
) -> None:
    since = float(since) if abs(since) < 2**1000 or since != since else 0.0
    claim = Claim(name, "h", "c", 1.0, about, since)
    held = HoldRecord("h", "c", "either", 1, 0.0, about, since)
    report = lock_info(LockState.exclusive(name, held, since, (claim, claim)))
    assert isinstance(report.holder, Holder)
    listed = layout([report], None, lambda text, _: text)
    # The table has two lines, and one says why metadata cannot be read. No name or label adds one.
    assert len(listed) == 2 + (report.unreadable is not None)
    narrow = layout([report], 30, lambda text, _: text)
    assert all(line.isprintable() for line in (*lock_lines(report), *listed, *narrow))
    # It is part of messages, which are logged.
    assert str(report.holder).isprintable()
    assert read_strictly(json.dumps(lock_document(report)))["name"] == name
    assert format_finding(Finding("ok", label, about[:100])).isprintable()


def read_strictly(text: str) -> Any:
    """Parse standard JSON: NaN and Infinity are errors."""
    assert text.isascii()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not standard JSON")

    return json.loads(text, parse_constant=refuse)


@holds(text=TEXT)
def test_escaped_text_is_printable_and_keeps_its_content(text: str) -> None:
    safe = escape(text)
    assert safe.isprintable()
    assert text == safe or len(safe) > len(text)
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
        print(safe)
