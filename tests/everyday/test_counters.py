"""What is left of locks that are not used any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from testkit.servers.process import eventually
from tests.everyday.people import use

import leaselock

if TYPE_CHECKING:
    from pathlib import Path


COUNT = 20


def test_gc_removes_the_rows_of_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db?token_ttl=0.2"
    # Opening the file removes old rows, too: it is opened before there are any.
    with leaselock.Client(url) as client, client.lock("held"):
        before = use(url, COUNT)
        done = time.monotonic()
        eventually(lambda: time.monotonic() - done > 0.3)
        assert client.gc() == COUNT
        assert client.lock("held").locked()
    after = use(url, COUNT)
    assert all(after[name] > before[name] for name in before)


def test_gc_keeps_what_is_young(file: str) -> None:
    use(file, COUNT)
    with leaselock.Client(file) as client:
        assert client.gc() == 0


def test_gc_keeps_everything_when_the_url_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    use(url, COUNT)
    with leaselock.Client(f"{url}?token_ttl=0") as client:
        assert client.gc() == 0
