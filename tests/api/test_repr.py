"""What `repr` says of every public object."""

from __future__ import annotations

import asyncio

from testkit.servers.process import eventually

import leaselock


def test_client(file: str) -> None:
    client = leaselock.Client(file, label="billing")
    assert repr(client) == f"<leaselock.Client {file} label 'billing'>"
    with client.lock("a"), client.lock("b"):
        assert repr(client) == f"<leaselock.Client {file} label 'billing', 2 locks held>"
    client.close()
    assert repr(client) == f"<leaselock.Client {file} label 'billing', closed>"


def test_lock(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a")
        assert repr(lock) == f"<leaselock.Lock 'a' on {file}>"
        with lock as lease:
            assert repr(lock) == f"<leaselock.Lock 'a' on {file}, held, token {lease.token}>"


def test_modes_and_campaigns(file: str) -> None:
    with leaselock.Client(file) as client:
        assert repr(client.rwlock("a").read) == f"<leaselock.Lock 'a' on {file}, shared>"
        permits = client.semaphore("b", permits=3)
        assert repr(permits) == f"<leaselock.Semaphore 'b' on {file}, 3 permits>"
        assert repr(client.semaphore("b", permits=None)) == f"<leaselock.Semaphore 'b' on {file}>"
        campaign = client.election("c").lead()
        assert repr(campaign) == f"<leaselock.Campaign for 'c' on {file}>"


def test_lease(file: str) -> None:
    with leaselock.Client(file) as client:
        lease = client.lock("a", lease=1000.0).acquire()
        assert lease is not None
        who = f"<leaselock.Lease 'a' on {file}, token {lease.token}, "
        assert repr(lease) in {f"{who}held, {n} s remaining>" for n in range(900, 1001)}
        lease.release()
        assert repr(lease) == f"{who}released>"


def test_lost_lease(file: str) -> None:
    with leaselock.Client(file) as client:
        lease = client.lock("a", lease=0.2, renew=False).acquire()
        assert lease is not None
        eventually(lambda: lease.lost)
        who = f"<leaselock.Lease 'a' on {file}, token {lease.token}, "
        assert repr(lease).startswith(f"{who}lost: ")


def test_detached_lease(file: str) -> None:
    with leaselock.Client(file) as client:
        lease = client.lock("a").acquire()
        assert lease is not None
        lease.detach()
        assert repr(lease) == f"<leaselock.Lease 'a' on {file}, token {lease.token}, detached>"


def test_asyncio(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client:
            assert repr(client) == f"<leaselock.AsyncClient {file}>"
            lock = client.lock("a")
            async with lock as lease:
                assert repr(lock) == (
                    f"<leaselock.AsyncLock 'a' on {file}, held, token {lease.token}>"
                )
                assert repr(lease).startswith(f"<leaselock.AsyncLease 'a' on {file}, token ")

    asyncio.run(main())
