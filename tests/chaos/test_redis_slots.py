"""A cluster's slots: names, renewals and subscriptions, while servers disagree on who has a slot.

Invariant: no reply is taken for another one, and a problem of one server ends no lease on another.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.process import HOST, eventually

import leaselock
from leaselock.backends.redis.blocking import BlockingConnection
from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.messages import Address, Connect, Send
from leaselock.backends.redis.multiplexed import MultiplexedConnection
from leaselock.backends.redis.settings import settings_of
from leaselock.drivers.system_env import now

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tests.servers.cluster import Cluster
    from tests.servers.redis import Redis

LEASE = 60.0
PATIENCE = 30.0
MANY = 10
CHANNELS = ("leaselock:wake:{over}:a", "redisson_lock__channel:{over}")
# Each answer begins with what was asked for.
WORDS = ("first", "second", "third")


def granted(lock: leaselock.Lock) -> leaselock.Lease:
    """The lease of a lock that is free."""
    lease = lock.acquire(PATIENCE)
    assert lease is not None
    return lease


def told(server: Redis, code: str) -> int:
    """How often a server answered with that error."""
    found = server.info("errorstats").get(f"errorstat_{code}", "count=0")
    return int(found.partition("=")[2])


@pytest.mark.parametrize("name", ["a}b", "}", "a{b", "{a}b}", "{}", "a{}b", "{a}"])
def test_any_braces_make_a_name(name: str, client: leaselock.Client) -> None:
    granted(client.lock(name)).release()


def test_servers_that_send_from_one_to_the_other_are_asked_again(
    cluster: Cluster, client: leaselock.Client, pool: ThreadPoolExecutor
) -> None:
    """At the end of a move the one server knows of it, and the other does not yet."""
    lock = client.lock("in circles", lease=LEASE)
    move = cluster.begin_move(cluster.slot(lock.name))
    move.source.ask("CLUSTER", "SETSLOT", move.slot, "NODE", cluster.ids[move.target.port])
    before = told(move.target, "MOVED")

    def finish() -> None:
        eventually(lambda: told(move.target, "MOVED") > before + MANY)
        move.target.ask("CLUSTER", "SETSLOT", move.slot, "NODE", cluster.ids[move.target.port])

    finished = pool.submit(finish)
    granted(lock).release()
    finished.result()
    eventually(lambda: cluster.settled(move.slot, move.target))


def test_locks_of_several_servers_are_renewed_by_who_knows_no_channels_of_theirs(
    cluster: Cluster,
) -> None:
    names = {cluster.owner(cluster.slot(f"n{i}")).port: f"n{i}" for i in range(30)}
    assert len(names) == 3
    url = cluster.url.replace("worker:", "plain:")
    with leaselock.Client(url, op_timeout=PATIENCE) as client:
        assert not client.lock("a").locked()
        leases = [granted(client.lock(name, lease=6.0)) for name in names.values()]
        end = now() + 6.0
        eventually(lambda: now() > end)
        assert not any(lease.lost for lease in leases)
        for lease in leases:
            lease.release()


def test_in_threads_a_subscription_that_ends_twice_shifts_no_answer(cluster: Cluster) -> None:
    """The server ends it, as its slot moves, while we end it, too, and are refused."""
    settings, until = settings_of(cluster.url), now() + PATIENCE
    slot = cluster.slot(CHANNELS[0])
    line = BlockingConnection(settings, Address(HOST, cluster.owner(slot).port), now, nothing)
    line.call(Connect(), until)
    begun = [("SSUBSCRIBE", channel) for channel in CHANNELS]
    line.call(Send(packed((*begun, question("none"))), 1, begun), until)
    assert not line.refused
    cluster.move_slot(slot)
    over = [("SUNSUBSCRIBE", channel) for channel in CHANNELS]
    assert line.tell(packed(over), over)
    replies = []
    for word in WORDS:
        try:
            replies += line.call(Send(packed((question(word),)), 1, ()), until)
        except leaselock.OutcomeUnknown:
            break  # its user closes it
    assert replies == [[word.encode(), 0] for word in WORDS[: len(replies)]]
    line.close()


def test_in_asyncio_a_subscription_that_ends_twice_shifts_no_answer(cluster: Cluster) -> None:
    settings, until = settings_of(cluster.url), now() + PATIENCE
    slot = cluster.slot(CHANNELS[0])

    async def story() -> list[Any]:
        address = Address(HOST, cluster.owner(slot).port)
        wire = MultiplexedConnection(settings, address, now, nothing)
        await wire.call(Connect(), until)
        begun = [("SSUBSCRIBE", channel) for channel in CHANNELS]
        await wire.call(Send(packed((*begun, question("none"))), 1, begun), until)
        assert not wire.refused
        cluster.move_slot(slot)  # meanwhile, the loop reads nothing
        over = [("SUNSUBSCRIBE", channel) for channel in CHANNELS]
        wire.tell(packed(over), over)
        asked = [wire.call(Send(packed((question(word),)), 1, ()), until) for word in WORDS]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        wire.close()
        await asyncio.sleep(0)
        return [*replies]

    for word, reply in zip(WORDS, asyncio.run(story()), strict=True):
        assert isinstance(reply, leaselock.OutcomeUnknown) or reply == [[word.encode(), 0]]


def question(word: str) -> tuple[str, ...]:
    """What is answered with that word."""
    return "PUBSUB", "SHARDNUMSUB", word


def nothing(*_: object) -> None:
    """Nobody listens."""
