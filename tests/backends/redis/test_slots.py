"""A cluster's slots: names, renewals and subscriptions, while servers disagree on a slot's owner.

Invariant: no reply is taken for another one, and a problem of one server ends no lease on another.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import HOST, eventually

import leaselock
from leaselock._backends.redis.blocking import BlockingConnection
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.messages import Address, Connect, Send
from leaselock._backends.redis.multiplexed import MultiplexedConnection
from leaselock._drivers.system_env import now

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from testkit.servers.cluster import Cluster
    from testkit.servers.redis import Redis

pytestmark = pytest.mark.heavy

LEASE = 60.0
TIMEOUT = 30.0
MANY = 10
CHANNELS = ("leaselock:wake:{lock:over}:a", "redisson_lock__channel:{lock:over}")
# Each answer begins with the channel that was queried.
WORDS = ("first", "second", "third")


def granted(lock: leaselock.Lock) -> leaselock.Lease:
    """Acquire a free lock."""
    return lock.acquire(timeout=TIMEOUT)


def errors(server: Redis, code: str) -> int:
    """Return how often a server answered with that error."""
    found = server.info("errorstats").get(f"errorstat_{code}", "count=0")
    return int(found.partition("=")[2])


@pytest.mark.parametrize("name", ["a}b", "}", "a{b", "{a}b}", "{}", "a{}b", "{a}"])
def test_any_braces_are_allowed_in_a_name(name: str, client: leaselock.Client) -> None:
    granted(client.lock(name)).release()


def test_circular_redirects_are_followed_until_the_move_ends(
    cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    """At the end of a move one server knows the new owner, and the other does not yet."""
    lock = client.lock("in circles", lease=LEASE)
    move = cluster.begin_move(cluster.slot(f"lock:{lock.name}"))
    move.source.ask("CLUSTER", "SETSLOT", move.slot, "NODE", cluster.ids[move.target.port])
    before = errors(move.target, "MOVED")

    def finish() -> None:
        eventually(lambda: errors(move.target, "MOVED") > before + MANY)
        move.target.ask("CLUSTER", "SETSLOT", move.slot, "NODE", cluster.ids[move.target.port])

    finished = pool.submit(finish)
    granted(lock).release()
    finished.result()
    eventually(lambda: cluster.all_know_owner(move.slot, move.target))


def test_locks_on_several_servers_are_renewed_without_sharded_channels(
    cluster: Cluster,
) -> None:
    names = {cluster.owner(cluster.slot(f"lock:n{i}")).port: f"n{i}" for i in range(30)}
    assert len(names) == 3
    url = cluster.url.replace("worker:", "plain:")
    with leaselock.Client(url, op_timeout=TIMEOUT) as client:
        assert not client.lock("a").locked()
        leases = [granted(client.lock(name, lease=6.0)) for name in names.values()]
        end = now() + 6.0
        eventually(lambda: now() > end)
        assert not any(lease.lost for lease in leases)
        for lease in leases:
            lease.release()


def test_in_threads_a_subscription_that_ends_twice_shifts_no_reply(cluster: Cluster) -> None:
    """The server ends the subscription when the slot moves; the client's own request is refused."""
    settings, until = settings_of(cluster.url), now() + TIMEOUT
    slot = cluster.slot(CHANNELS[0])
    connection = BlockingConnection(settings, Address(HOST, cluster.owner(slot).port), now, nothing)
    connection.call(Connect(), until)
    begun = [("SSUBSCRIBE", channel) for channel in CHANNELS]
    connection.call(Send(packed((*begun, question("none"))), 1, begun), until)
    assert not connection.refused
    cluster.move_slot(slot)
    over = [("SUNSUBSCRIBE", channel) for channel in CHANNELS]
    assert connection.tell(packed(over), over)
    replies = []
    for word in WORDS:
        try:
            replies += connection.call(Send(packed((question(word),)), 1, ()), until)
        except leaselock.OutcomeUnknown:
            break  # the caller closes the connection
    assert replies == [[word.encode(), 0] for word in WORDS[: len(replies)]]
    connection.close()


def test_in_asyncio_a_subscription_that_ends_twice_shifts_no_reply(cluster: Cluster) -> None:
    settings, until = settings_of(cluster.url), now() + TIMEOUT
    slot = cluster.slot(CHANNELS[0])

    async def scenario() -> list[Any]:
        address = Address(HOST, cluster.owner(slot).port)
        connection = MultiplexedConnection(settings, address, now, nothing)
        await connection.call(Connect(), until)
        begun = [("SSUBSCRIBE", channel) for channel in CHANNELS]
        await connection.call(Send(packed((*begun, question("none"))), 1, begun), until)
        assert not connection.refused
        cluster.move_slot(slot)  # meanwhile, the loop reads nothing
        over = [("SUNSUBSCRIBE", channel) for channel in CHANNELS]
        connection.tell(packed(over), over)
        asked = [connection.call(Send(packed((question(word),)), 1, ()), until) for word in WORDS]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        connection.close()
        await asyncio.sleep(0)
        return [*replies]

    for word, reply in zip(WORDS, asyncio.run(scenario()), strict=True):
        assert isinstance(reply, leaselock.OutcomeUnknown) or reply == [[word.encode(), 0]]


def question(word: str) -> tuple[str, ...]:
    """Return a query whose reply begins with that word."""
    return "PUBSUB", "SHARDNUMSUB", word


def nothing(*_: object) -> None:
    """Ignore the message."""
