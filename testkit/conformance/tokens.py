"""Each grant has a greater token than every earlier grant of the same name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from testkit.conformance.child_process import send_to_parent
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Client
    from testkit.conformance.harness import Harness


async def _grant(harness: Harness, client: Client) -> int:
    async with client.lock("a") as lease:
        return lease.token


@scenario()
async def tokens_of_many_grants_increase(harness: Harness) -> None:
    """Of grants to two clients in turn."""
    clients = (harness.first, harness.client())
    tokens = [await _grant(harness, clients[turn % 2]) for turn in range(400)]
    assert tokens == sorted(set(tokens))
    assert min(tokens) > 0


@scenario("leases_expire")
async def tokens_increase_after_an_expired_lease(harness: Harness) -> None:
    """A grant after an expired one has a greater token."""
    lost = await harness.must_acquire(harness.lock("a", lease=harness.store.lease, renew=False))
    following = await _grant(harness, harness.client())
    assert following > lost.token


@scenario()
async def tokens_increase_after_a_break(harness: Harness) -> None:
    """A grant after a broken one has a greater token."""
    tokens = []
    for client in (harness.client(), harness.client(), harness.client()):
        tokens.append((await harness.must_acquire(client.lock("a"))).token)
        await harness.first.break_lock("a")
    assert tokens == sorted(set(tokens))


@scenario()
async def tokens_increase_across_clients(harness: Harness) -> None:
    """A new client continues where a closed one ended."""
    tokens = []
    for _ in range(5):
        client = harness.client()
        tokens.append(await _grant(harness, client))
        await client.close()
    assert tokens == sorted(set(tokens))


@scenario("multiprocess")
async def tokens_increase_across_processes(harness: Harness) -> None:
    """Without and with a client in between."""
    await harness.first.close()
    tokens = []
    for _ in range(2):
        child = harness.process(say_a_token)
        await child.end()
        await harness.wait_until(functools.partial(bool, child.words))
        tokens.append(int(child.words[0]))
    tokens.append(await _grant(harness, harness.client()))
    assert tokens == sorted(set(tokens))


async def say_a_token(harness: Harness) -> None:
    """In a process: acquire the lock once, and send the token."""
    send_to_parent(await _grant(harness, harness.first))


@scenario()
async def renewal_and_extension_keep_the_token(harness: Harness) -> None:
    """The token identifies the grant."""

    async def attempt(name: str) -> None:
        lease = await harness.must_acquire(harness.lock(name, lease=harness.store.lease))
        token = lease.token
        await lease.extend(30.0)
        ended = harness.now() + harness.store.lease
        await harness.wait_until(lambda: harness.now() >= ended)
        holder = await harness.lock(name).holder()
        assert holder is not None
        assert (lease.token, holder.token) == (token, token)

    await harness.retry_if_slow(5, attempt)
