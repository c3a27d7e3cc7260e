"""A client's threads or tasks pass a lease among themselves, and others have their turn."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from leaselock.testing.conformance.scenario import raising, scenario
from leaselock.testing.conformance.world import Late

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World

MEMBERS, ROUNDS = 3, 60


@scenario("local_handoffs")
async def others_have_their_turn(world: World) -> None:
    """However many of one client want it, another client waits for no more grants than said."""

    async def attempt(name: str) -> None:
        lock, rival = world.lock(name), world.client().lock(name)
        granted: list[tuple[int, str]] = []
        async with lock:
            ours = [world.spawn(_take_turns, lock, granted, "ours") for _ in range(MEMBERS)]
            await world.until_waiting(lock, MEMBERS)
            other = world.spawn(_take_turns, rival, granted, "rival")
            await world.until_waiting(rival, 1)
        for error in [await member.end() for member in (*ours, other)]:
            if error is not None:
                raise error
        _check(world, granted)

    await world.best_of(3, attempt)


async def _take_turns(lock: Lock, granted: list[tuple[int, str]], who: str) -> None:
    for _ in range(ROUNDS):
        async with lock as lease:
            granted.append((lease.token, who))


def _check(world: World, granted: list[tuple[int, str]]) -> None:
    tokens = [token for token, _ in granted]
    assert tokens == sorted(set(tokens))
    places = [place for place, (_, who) in enumerate(granted) if who == "rival"]
    # The one that was under way when the rival came, and a turn between any two of its own: if the
    # machine lets it ask again at once.
    longest = max(places[0], *(after - before for before, after in pairwise(places)))
    if longest > 2 * (world.store.local_handoffs + 1):
        raise Late(f"the rival waited for {longest} grants of another client")


@scenario("local_handoffs")
async def what_was_passed_on_is_renewed(world: World) -> None:
    """Whoever was given a lease by another of its client keeps it for as long as it wants."""
    lock = world.lock("a", lease=world.store.lease)
    rival = world.client().lock("a")
    async with lock:
        other = world.spawn(_keep, world, lock)
        await world.until_waiting(lock, 1)
    assert await rival.acquire(timeout=1.5 * world.store.lease) is None
    await other.join()


async def _keep(world: World, lock: Lock) -> None:
    async with lock as lease:
        await world.pause(3 * world.store.lease)
        lease.ensure()


@scenario("local_handoffs")
async def a_broken_lock_is_passed_on_no_more(world: World) -> None:
    """Who waits behind the one that it was taken from waits for the store."""
    lock, operator = world.lock("a", lease=30.0), world.client()
    lease = await world.take(lock)
    other = world.spawn(lock.acquire, 30.0)
    await world.until_waiting(lock, 1)
    await world.first.break_lock("a", token=lease.token)
    rival = await world.take(operator.lock("a"))
    with raising(LeaseLost, "a"):
        await lease.release()
    await rival.release()
    passed = await other.join()
    assert passed is not None
    assert passed.token > rival.token


@scenario("local_handoffs")
async def what_is_kept_goes_to_whoever_asks(world: World) -> None:
    """A client keeps a sticky lease, with a further token each time, until another one asks."""
    lock, rival = world.lock("a", lease=30.0, cached=True), world.client().lock("a")
    tokens = []
    for _ in range(3):
        async with lock as lease:
            tokens.append(lease.token)
    assert tokens == list(range(tokens[0], tokens[0] + 3))
    asked = world.now()
    async with rival as other:
        assert other.token > tokens[-1]
    world.punctual(asked, 10.0)
    async with lock as lease:
        assert lease.token > other.token


@scenario("local_handoffs")
async def what_is_kept_is_given_back_at_the_end(world: World) -> None:
    """A client that is closed keeps nothing."""
    client = world.client()
    async with client.lock("a", lease=60.0, cached=True):
        pass
    assert await world.lock("a").locked()
    await client.close()
    async with world.lock("a"):
        pass
