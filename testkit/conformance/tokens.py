"""Each grant has a greater token than every earlier grant of the same name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from testkit.conformance.child_process import send_to_parent
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Client
    from testkit.conformance.world import World


async def _grant(world: World, client: Client) -> int:
    async with client.lock("a") as lease:
        return lease.token


@scenario()
async def tokens_of_many_grants_increase(world: World) -> None:
    """Of grants to two clients in turn."""
    clients = (world.first, world.client())
    tokens = [await _grant(world, clients[turn % 2]) for turn in range(400)]
    assert tokens == sorted(set(tokens))
    assert min(tokens) > 0


@scenario("leases_expire")
async def tokens_increase_after_an_expired_lease(world: World) -> None:
    """A grant after an expired one has a greater token."""
    lost = await world.must_acquire(world.lock("a", lease=world.store.lease, renew=False))
    following = await _grant(world, world.client())
    assert following > lost.token


@scenario()
async def tokens_increase_after_a_break(world: World) -> None:
    """A grant after a broken one has a greater token."""
    tokens = []
    for client in (world.client(), world.client(), world.client()):
        tokens.append((await world.must_acquire(client.lock("a"))).token)
        await world.first.break_lock("a")
    assert tokens == sorted(set(tokens))


@scenario()
async def tokens_increase_across_clients(world: World) -> None:
    """A new client continues where a closed one ended."""
    tokens = []
    for _ in range(5):
        client = world.client()
        tokens.append(await _grant(world, client))
        await client.close()
    assert tokens == sorted(set(tokens))


@scenario("multiprocess")
async def tokens_increase_across_processes(world: World) -> None:
    """Without and with a client in between."""
    await world.first.close()
    tokens = []
    for _ in range(2):
        child = world.process(say_a_token)
        await child.end()
        await world.wait_until(functools.partial(bool, child.words))
        tokens.append(int(child.words[0]))
    tokens.append(await _grant(world, world.client()))
    assert tokens == sorted(set(tokens))


async def say_a_token(world: World) -> None:
    """In a process: acquire the lock once, and send the token."""
    send_to_parent(await _grant(world, world.first))


@scenario()
async def renewal_and_extension_keep_the_token(world: World) -> None:
    """The token identifies the grant."""

    async def attempt(name: str) -> None:
        lease = await world.must_acquire(world.lock(name, lease=world.store.lease))
        token = lease.token
        await lease.extend(30.0)
        ended = world.now() + world.store.lease
        await world.wait_until(lambda: world.now() >= ended)
        holder = await world.lock(name).holder()
        assert holder is not None
        assert (lease.token, holder.token) == (token, token)

    await world.retry_if_slow(5, attempt)
