"""The statements of the embedded store suit every Python."""

from __future__ import annotations

import re
from pathlib import Path

import leaselock

STATEMENTS = Path(leaselock.__file__).parent / "_backends" / "sqlite" / "statements"


def test_parameters_have_no_numbers() -> None:
    # sqlite3 takes `?1` for a name. With a sequence of values Python 3.12 warns, and 3.14 refuses.
    for path in STATEMENTS.glob("*.sql"):
        assert re.findall(r"\?\d", path.read_text("utf-8")) == [], path.name
