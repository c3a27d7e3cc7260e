"""How long the servers took to start, for the report at the end of a run."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# By kind: the seconds of each start in this process.
STARTS: dict[str, list[float]] = defaultdict(list)
_open: list[str] = []


@contextmanager
def starting(kind: str) -> Iterator[None]:
    """Measure a start; the servers that a set of servers is made of count as the set alone."""
    began = time.monotonic()
    _open.append(kind)
    try:
        yield
    finally:
        _open.pop()
    if not _open:
        STARTS[kind].append(time.monotonic() - began)
