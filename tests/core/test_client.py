"""Functions of a client other than acquire and release, in threads and in asyncio."""

from __future__ import annotations

import asyncio

import pytest
from verification.simulation.simulator import Faults, Machine, Simulator

import leaselock
from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.effects import FOREVER, Wait
from leaselock._core.hold_registry import HoldRegistry
from leaselock._core.queue import NodeBackend


def url(name: str) -> str:
    return f"memory://client-{name}"


@pytest.mark.parametrize("options", [{}, {"cached": True}], ids=["plain", "shared"])
def test_maintenance_and_lists(options: dict[str, bool]) -> None:
    with leaselock.Client(url(f"maintenance{len(options)}")) as client:
        with client.lock("a", **options):  # type: ignore[arg-type]
            (info,) = client.locks()
            assert (info.name, info.waiters) == ("a", ())
            assert info.holder is not None
        assert [finding.level for finding in client.doctor()] == ["ok"]
        assert client.setup() == []
        # The entry of "a" is not needed any more, unless this client has kept its lease.
        assert client.gc() == (0 if options else 1)
        lease = client.lock("b", local_handoffs=2).acquire()
        assert lease is not None
        broken = client.break_lock("b")
        assert broken is not None
        assert client.break_lock("b") is None
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_a_name_with_control_characters_is_refused() -> None:
    with leaselock.Client(url("names")) as client:
        for name in ("a\nb", "\ud800"):
            with pytest.raises(leaselock.InvalidName):
                client.lock(name)
        assert client.lock("a\u3000b").name == "a\u3000b"


def test_a_closing_client_sees_an_end_between_its_step_and_its_wait() -> None:
    """Another thread may take a step there. The client would wait for `op_timeout`."""
    machine = Machine(Simulator(1, {}, Faults()), "m")
    registry = HoldRegistry(machine, NodeBackend(CAPABILITIES, "store", "ear"), 5.0, None)
    registry.in_flight.active = 1
    closing = registry.close(FOREVER).__await__()
    wait = next(closing)
    registry.in_flight.exit()
    assert isinstance(wait, Wait)
    assert wait.signal.is_set
    with pytest.raises(StopIteration):
        next(closing)


@pytest.mark.parametrize("kind", [leaselock.Client, leaselock.AsyncClient])
def test_a_store_may_warn_about_a_name(kind: type[leaselock.Client]) -> None:
    # Nothing is asked, so no server is needed.
    client = kind("zookeeper://127.0.0.1:1/locks")
    with pytest.warns(UserWarning, match=r"is the node '/locks/%2Fa'.* no leading slash") as seen:
        client.lock("/a")
    assert seen[0].filename == __file__
    client.lock("a/b")


def test_the_waiters_of_a_closing_client_end() -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(url("closing")) as other:
            lease = await other.lock("a").acquire()
            client = leaselock.AsyncClient(url("closing"))
            waiting = asyncio.create_task(client.lock("a", local_handoffs=2).acquire())
            for _ in range(10_000):
                if await other.lock("a").waiters():
                    break
                await asyncio.sleep(0.001)
            await client.close()
            with pytest.raises(leaselock.ClientClosed):
                await waiting
            assert lease is not None
            await lease.release()

    asyncio.run(main())


def test_a_client_serves_a_second_loop_and_releases_what_the_first_one_held() -> None:
    client = leaselock.AsyncClient(url("loops"))

    async def first() -> leaselock.AsyncLease | None:
        return await client.lock("a").acquire()

    async def second() -> None:
        async with client.lock("a", timeout=60):
            pass
        await client.close()

    lease = asyncio.run(first())
    asyncio.run(second())
    assert lease is not None
    assert lease.lost
