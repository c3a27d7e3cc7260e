"""What the servers cost: how long each took to start, and which the first tier does without."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# By kind: the seconds of each start in this process.
STARTS: dict[str, list[float]] = defaultdict(list)
# Whether this run may start servers.
allowed = True
_open: list[str] = []
# Fixtures of servers and topologies that the first tier does not start, and why: each has a sibling
# that it starts. A test that asks for one, as a fixture or by a parameter, is in the second tier or
# in the third.
COSTLY = {
    "kubernetes": "nightly",  # kube-apiserver is built from source: minutes
    "mariadb": "heavy",
    "mariadb_server": "heavy",
    "pgbouncer": "variant",
    "sentinel": "variant",
    "sentinels": "variant",
    "cluster": "variant",
    "replicated": "variant",
}


@contextmanager
def starting(kind: str) -> Iterator[None]:
    """Measure a start; the servers that a set of servers is made of count as the set alone."""
    assert allowed, f"this run starts no server, and a test starts {kind}"
    began = time.monotonic()
    _open.append(kind)
    try:
        yield
    finally:
        _open.pop()
    if not _open:
        STARTS[kind].append(time.monotonic() - began)
