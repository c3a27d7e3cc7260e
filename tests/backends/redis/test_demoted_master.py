"""A server that the URL names, and that becomes a replica: where the name of a managed server is
given to another one, the earlier master refuses writes until the name is looked up again. A client
that has locked there waits that out; one that was given a replica's name is told so at once.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.proxy import Proxy
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis

import leaselock
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 60.0


class Named:
    """A name, which is given to the replica of its first server."""

    def __init__(self, master: Redis, replica: Redis, proxy: Proxy) -> None:
        self.master, self.replica, self.proxy = master, replica, proxy
        self.url = f"redis://{HOST}:{proxy.port}"

    def fail_over(self) -> None:
        """Make the replica the master; the name still means the other one."""
        self.replica.caught_up()
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.master.ask("REPLICAOF", HOST, str(self.replica.port))

    def is_asked_again(self) -> None:
        """Wait until a client has been refused, and has asked again."""
        before = self.refused()
        eventually(lambda: self.refused() > before + 1)

    def refused(self) -> int:
        """How many commands the first server has refused to carry out."""
        counts = self.master.info("errorstats").get("errorstat_READONLY", "count=0")
        return int(counts.removeprefix("count="))

    def give_name(self) -> None:
        """The next connections are to the new master."""
        self.proxy.target = (HOST, self.replica.port)


@pytest.fixture
def named() -> Iterator[Named]:
    with Redis() as master, Redis(replica_of=master) as replica, Proxy(master.port) as proxy:
        yield Named(master, replica, proxy)


def test_a_demoted_master_is_waited_out(named: Named) -> None:
    with ThreadPoolExecutor() as pool, leaselock.Client(named.url, op_timeout=LONG) as client:
        held = client.lock("held", lease=LONG).acquire()
        with client.lock("a") as lease:
            earlier = lease.token
        named.fail_over()
        waiting = pool.submit(lambda: client.lock("a").acquire(timeout=LONG))
        named.is_asked_again()
        named.give_name()
        later = waiting.result(LONG)
        assert later.token > earlier
        later.release()
        held.extend(LONG)
        held.release()
        assert client.locks() == []


def test_a_demoted_master_is_waited_out_by_tasks(named: Named) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(named.url, op_timeout=LONG) as client:
            held = await client.lock("held", lease=LONG).acquire()
            await asyncio.to_thread(named.fail_over)
            waiting = asyncio.create_task(client.lock("a").acquire(timeout=LONG))
            await asyncio.to_thread(named.is_asked_again)
            named.give_name()
            lease = await waiting
            assert lease.token > held.token
            await lease.release()
            await held.extend(LONG)
            await held.release()

    asyncio.run(main())


def test_what_a_replica_can_answer_does_not_make_it_a_master(named: Named) -> None:
    with leaselock.Client(named.url) as client, client.lock("a"):
        named.replica.caught_up()
        with leaselock.Client(named.replica.url) as other:
            assert [lock.name for lock in other.locks()] == ["a"]
            for _ in range(2):
                with pytest.raises(StoreError, match="name the master") as refused:
                    other.lock("b").acquire(timeout=LONG)
                assert refused.value.reason == "misconfigured"
