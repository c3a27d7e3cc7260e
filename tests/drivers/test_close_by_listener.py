"""A client that is closed while a listener is told of a grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock import Event


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/locks.db"])
def test_a_lease_that_the_end_of_the_client_has_released_is_not_handed_out(
    store: str, tmp_path: Path
) -> None:
    url = store.format(tmp_path) if "sqlite" in store else f"{store}listener"
    client = leaselock.Client(url, op_timeout=0.2)

    def close(event: Event) -> None:
        if event.kind == "granted":
            client.close()

    client.on_event(close)
    with pytest.raises(leaselock.ClientClosed):
        client.lock("a").acquire()
    with leaselock.Client(url) as other, other.lock("a", timeout=0):
        pass


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/locks.db"])
def test_the_same_with_asyncio(store: str, tmp_path: Path) -> None:
    url = store.format(tmp_path) if "sqlite" in store else f"{store}listener too"
    asyncio.run(closed_by_its_listener(url))


async def closed_by_its_listener(url: str) -> None:
    client = leaselock.AsyncClient(url, op_timeout=0.2)

    async def close(event: Event) -> None:
        if event.kind == "granted":
            await client.close()

    client.on_event(close)
    with pytest.raises(leaselock.ClientClosed):
        await client.lock("a").acquire()
    async with leaselock.AsyncClient(url) as other, other.lock("a", timeout=0):
        pass
