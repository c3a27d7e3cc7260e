"""The registration of a client creates both of its files, or none."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def one_descriptor() -> Iterator[int]:
    """Limit the process to one more descriptor."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
    try:
        yield free
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_client_whose_files_could_not_be_created_tries_again(tmp_path: Path) -> None:
    """With a descriptor for only one of two files, that file is closed and removed."""
    with leaselock.Client(f"sqlite:///{tmp_path}/locks.db", op_timeout=0.2 * pace()) as client:
        assert client.locks() == []
        with one_descriptor() as free:
            with pytest.raises(leaselock.OutcomeUnknown, match="Too many open files"):
                client.lock("a").acquire(timeout=0)
            descriptor = os.open(os.devnull, os.O_RDONLY)
            os.close(descriptor)
        assert descriptor == free
        assert list((tmp_path / "locks.db.clients").iterdir()) == []
        # The listener gets the error of the library, too, and starts again. If it is just using
        # the file when the time for the claim ends, that is what the claim reports.
        with one_descriptor(), pytest.raises(leaselock.StoreError, match=r"open files|was busy"):
            client.lock("a").acquire(timeout=0.2 * pace())
        with client.lock("a", timeout=0) as lease:
            lease.ensure()
