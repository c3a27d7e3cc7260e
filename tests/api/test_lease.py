"""A lease as a context manager, and one that is dropped."""

from __future__ import annotations

import asyncio

import pytest
from tests.people import script

import leaselock


def test_lease_is_a_context_manager(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a")
        lease = lock.acquire(timeout=5)
        with lease as entered:
            assert entered is lease
            assert lock.owned()
        assert not lock.locked()
        with pytest.raises(leaselock.NotHeld):
            lease.release()


def test_body_under_a_lease_in_asyncio_is_cancelled_when_it_is_lost(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client, leaselock.AsyncClient(file) as person:
            lease = await client.lock("a", lease=1.0).acquire()
            assert lease is not None
            async with lease:
                await person.break_lock("a")
                await asyncio.Event().wait()

    with pytest.raises(leaselock.LeaseLost):
        asyncio.run(asyncio.wait_for(main(), 60))


def test_lease_that_was_released_in_its_body_is_left_quietly(file: str) -> None:
    """As a file that was closed within its `with`."""
    with leaselock.Client(file) as client:
        with client.lock("a").acquire(timeout=5) as lease:
            lease.release()
        with client.lock("a").acquire(timeout=5) as lease:
            lease.detach()
        assert client.lock("a").locked()


def test_the_error_of_the_body_stays(file: str) -> None:
    with leaselock.Client(file) as client, leaselock.Client(file) as person:
        lease = client.lock("a").acquire()
        assert lease is not None
        with pytest.raises(ZeroDivisionError) as raised, lease:  # noqa: PT012
            person.break_lock("a")
            raise ZeroDivisionError
        assert any("lost" in note for note in raised.value.__notes__)


DROPPED = """
import gc, os, leaselock

def careless(client):
    client.lock("a").acquire()
    with client.lock("kept"):
        pass

client = leaselock.Client(os.environ["LEASELOCK_URL"])
careless(client)
gc.collect()
print(len(client.locks()))
client.close()
"""


def test_lease_that_is_dropped_warns_with_the_place_of_its_acquire(file: str) -> None:
    ended = script(DROPPED, url=file, flags=("-X", "dev"))
    assert "ResourceWarning" in ended.stderr, ended
    assert "'a'" in ended.stderr
    assert "kept" not in ended.stderr
    # Line 5 of the program is the one that acquired it.
    assert 'File "<string>", line 5' in ended.stderr


def test_lease_that_is_dropped_says_nothing_by_default(file: str) -> None:
    """As any ResourceWarning of Python's."""
    assert script(DROPPED, url=file).stderr == ""


def test_renewals_are_counted(file: str) -> None:
    with leaselock.Client(file) as client, client.lock("a") as lease:
        assert lease.renewals == 0
        lease.extend(60.0)
        assert lease.renewals == 1
