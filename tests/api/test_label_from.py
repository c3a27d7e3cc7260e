"""`label_from="caller"`: holders and waiters say which line of the program asked."""

from __future__ import annotations

import asyncio
import sys

import pytest

import leaselock

HERE = __name__


def line() -> int:
    """The number of the line that calls."""
    return sys._getframe(1).f_lineno


def label_of(client: leaselock.Client, name: str = "a") -> str | None:
    holder = client.lock(name).holder()
    assert holder is not None
    return holder.label


def test_threads() -> None:
    function = f"{HERE}:test_threads"
    with leaselock.Client("memory://", label_from="caller") as client:
        with client.lock("a"):
            assert label_of(client) == f"{function}:{line() - 1}"
        lease = client.lock("a", label="nightly").acquire()
        assert label_of(client) == f"nightly, {function}:{line() - 1}"
        lease.release()
        with client.lock_all(["a", "b"]):
            assert label_of(client, "b") == f"{function}:{line() - 1}"

        @client.lock("c")
        def decorated() -> str | None:
            return label_of(client, "c")

        assert decorated() == f"{function}:{line()}"


def test_tasks() -> None:
    async def work(client: leaselock.AsyncClient) -> str | None:
        async with client.lock("a"):
            holder = await client.lock("a").holder()
            assert holder is not None
            return holder.label

    async def main() -> None:
        async with leaselock.AsyncClient("memory://", label_from="caller") as client:
            label = await asyncio.create_task(work(client))
            first = work.__code__.co_firstlineno
            assert label == f"{HERE}:test_tasks.<locals>.work:{first + 1}"

    asyncio.run(main())


def test_without_it_labels_are_as_given() -> None:
    with leaselock.Client("memory://", label="web") as client, client.lock("a"):
        assert label_of(client) == "web"


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match='label_from is None or "caller"'):
        leaselock.Client("memory://", label_from="here")  # type: ignore[arg-type]


def test_the_process_is_stored() -> None:
    with leaselock.Client("memory://") as client, client.lock("a"):
        (lock,) = client.locks()
        assert len(lock.holders[0].process.split(":")) == 3
