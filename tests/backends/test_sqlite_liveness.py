"""How a client comes alive: its two files are made, or nothing is."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def one_descriptor() -> Iterator[int]:
    """The kernel gives out only one more, that number."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
    try:
        yield free
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_client_whose_files_could_not_be_created_tries_again(tmp_path: Path) -> None:
    """With descriptors for one file of two: the one is let go, and taken away."""
    with leaselock.Client(f"sqlite:///{tmp_path}/locks.db", op_timeout=0.1) as client:
        assert client.locks() == []
        with one_descriptor() as free:
            with pytest.raises(leaselock.OutcomeUnknown, match="Too many open files"):
                client.lock("a").acquire(timeout=0)
            descriptor = os.open(os.devnull, os.O_RDONLY)
            os.close(descriptor)
        assert descriptor == free
        assert list((tmp_path / "locks.db.clients").iterdir()) == []
        # Who listens for it, too, is told of that in the library's own words, and begins anew.
        with one_descriptor(), pytest.raises(leaselock.OutcomeUnknown, match="Too many open files"):
            client.lock("a").acquire(timeout=0.2)
        with client.lock("a", timeout=0) as lease:
            lease.ensure()
