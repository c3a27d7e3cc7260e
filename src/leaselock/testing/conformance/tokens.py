"""Each grant has a token greater than that of every earlier grant of the same name, for ever."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from leaselock.testing.conformance.child import say
from leaselock.testing.conformance.scenario import scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Client
    from leaselock.testing.conformance.world import World


async def _grant(world: World, client: Client) -> int:
    async with client.lock("a") as lease:
        return lease.token


@scenario()
async def hundreds_of_grants_rise(world: World) -> None:
    """One after the other, to two clients by turns."""
    clients = (world.first, world.client())
    tokens = [await _grant(world, clients[turn % 2]) for turn in range(400)]
    assert tokens == sorted(set(tokens))
    assert min(tokens) > 0


@scenario("expiry")
async def tokens_rise_after_the_end_of_a_lease(world: World) -> None:
    """A grant that follows one which ran out is a later grant."""
    lost = await world.take(world.lock("a", lease=world.store.lease, renew=False))
    following = await _grant(world, world.client())
    assert following > lost.token


@scenario()
async def tokens_rise_after_a_break(world: World) -> None:
    """A grant that follows one which was broken is a later grant."""
    tokens = []
    for client in (world.client(), world.client(), world.client()):
        tokens.append((await world.take(client.lock("a"))).token)
        await world.first.break_lock("a")
    assert tokens == sorted(set(tokens))


@scenario()
async def tokens_rise_after_everybody_has_gone(world: World) -> None:
    """They are not counted by clients: a new one goes on where the last one ended."""
    tokens = []
    for _ in range(5):
        client = world.client()
        tokens.append(await _grant(world, client))
        await client.close()
    assert tokens == sorted(set(tokens))


@scenario("processes")
async def tokens_rise_from_process_to_process(world: World) -> None:
    """With nobody there in between, and with one who is."""
    await world.first.close()
    tokens = []
    for _ in range(2):
        child = world.process(say_a_token)
        await child.end()
        await world.until(functools.partial(bool, child.words))
        tokens.append(int(child.words[0]))
    tokens.append(await _grant(world, world.client()))
    assert tokens == sorted(set(tokens))


async def say_a_token(world: World) -> None:
    """In a process: be granted the lock once."""
    say(await _grant(world, world.first))


@scenario()
async def a_renewal_and_an_extension_keep_the_token(world: World) -> None:
    """It names the grant, not the moment."""
    lease = await world.take(world.lock("a", lease=world.store.lease))
    token = lease.token
    await lease.extend(5.0)
    ended = world.now() + world.store.lease
    await world.until(lambda: world.now() >= ended)
    holder = await world.lock("a").holder()
    assert holder is not None
    assert (lease.token, holder.token) == (token, token)
