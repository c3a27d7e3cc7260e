"""The registration of a client creates both of its files, or none."""

from __future__ import annotations

import os
import resource
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.pace import pace
from verification.models.sides import claim_of

import leaselock
from leaselock._backends.sqlite.client_registry import NO_MESSAGE
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.store import Store
from leaselock._core.contract.backend import Acquire, Busy, Grant

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


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Store]]:
    """Two clients of one file."""
    made = [Store(File(str(tmp_path / "locks.db"), time.monotonic)) for _ in range(2)]
    yield made
    for store in made:
        store.close()


def test_tries_that_fail_leave_nothing(stores: list[Store]) -> None:
    holder, other = stores
    until = time.monotonic() + 60.0
    holder.call(Acquire(claim_of("0" * 32, "a", 1, 30.0), False), until)
    for serial in range(100):
        tried = claim_of("1" * 32, "a", serial, 30.0)
        assert isinstance(other.call(Acquire(tried, False), until), Busy)
    assert other.waiting == set()


def test_an_acquire_succeeds_although_the_client_has_no_room_for_messages(
    stores: list[Store],
) -> None:
    """Its listener is stopped, or busy: the claim is queued all the same."""
    holder, other = stores
    until = time.monotonic() + 60.0
    assert isinstance(holder.call(Acquire(claim_of("0" * 32, "a", 1, 30.0), True), until), Grant)
    assert isinstance(other.call(Acquire(claim_of("1" * 32, "b", 1, 30.0), True), until), Grant)
    liveness = other.file.liveness
    assert liveness is not None
    with suppress(BlockingIOError):
        while True:
            liveness.mailbox.put(NO_MESSAGE)
    assert isinstance(other.call(Acquire(claim_of("1" * 32, "a", 2, 30.0), True), until), Busy)
