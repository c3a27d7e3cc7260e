"""Elections: at most one leader, hand-over at once, and who leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import AlreadyHeld, LeaseLost
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock import LockChange
    from testkit.conformance.api_types import Client, Election, Lease
    from testkit.conformance.harness import Harness


class Worker:
    """A client that works whenever it leads, until it is stopped."""

    def __init__(self, harness: Harness, name: str, terms: list[tuple[str, int]]) -> None:
        self.harness = harness
        self.name = name
        self.terms = terms
        self.stopped = False
        self.working = 0
        self.client: Client = harness.client()
        self.election: Election = self.client.election("e", label=name)

    async def work(self, lease: Lease) -> str:
        """Lead until the lease is lost, or the end."""
        assert not self.working
        self.working += 1
        self.terms.append((self.name, lease.token))
        try:
            while not (self.stopped or lease.lost):
                await self.harness.pause(0.003)
        finally:
            self.working -= 1
        return self.name

    async def run(self) -> str | None:
        """Stand for election."""
        return await self.election.run(self.work)


@scenario()
async def the_leader_is_known(harness: Harness) -> None:
    """By its label and its term; a free name has no leader. A body within a body is an error."""
    election = harness.first.election("e", label="one")
    other = harness.client().election("e")
    assert (await other.leader(), await other.resign()) == (None, False)
    async with election.lead() as lease:
        leader = await other.leader()
        assert leader is not None
        assert (leader.label, leader.token) == ("one", lease.token)
        with raising(AlreadyHeld, "e"):
            async with election.lead():
                pass
    assert await other.leader() is None
    async with other.lead() as later:
        assert later.token > lease.token


@scenario()
async def any_election_object_of_its_client_resigns(harness: Harness) -> None:
    """The leadership is that of the client; another client's object does not end it."""
    election, same = harness.first.election("e"), harness.first.election("e")
    assert not await same.resign()
    async with election.lead():
        assert not await harness.client().election("e").resign()
        assert await same.resign()
        assert not await election.resign()
        assert await election.leader() is None
    assert not await same.resign()


@scenario()
async def a_leader_that_resigns_in_its_body_goes_on_without_a_lease(harness: Harness) -> None:
    """The next one can lead at once; the end of the body is no error."""
    election, other = harness.first.election("e"), harness.client().election("e")
    async with election.lead() as lease:
        assert await election.resign()
        assert not await election.resign()
        async with other.lead() as later:
            assert later.token > lease.token


@scenario()
async def run_returns_or_raises_what_the_function_does(harness: Harness) -> None:
    """And the leadership ends with it."""
    election = harness.first.election("e")

    async def answer(lease: Any) -> int:
        token: int = lease.token
        return token

    async def fail(lease: Any) -> None:
        raise KeyError(lease.token)

    token = await election.run(answer)
    assert token is not None
    with raising(KeyError) as caught:
        await election.run(fail)
    assert caught[0].args[0] > token
    assert await election.leader() is None


@scenario()
async def resigning_hands_over_and_campaigns_again(harness: Harness) -> None:
    """The other one leads next, although the first campaigns again; then the first one."""
    terms = list[tuple[str, int]]()
    one, two = Worker(harness, "one", terms), Worker(harness, "two", terms)
    first = harness.spawn(one.run)
    await harness.wait_until(lambda: bool(one.working))
    second = harness.spawn(two.run)
    if harness.store.has_queue:
        await harness.wait_for_waiters(harness.lock("e"), 1)
    assert await one.election.resign()
    await harness.wait_until(lambda: bool(two.working))
    two.stopped = True
    assert await second.join() == "two"
    await harness.wait_until(lambda: bool(one.working))
    one.stopped = True
    assert await first.join() == "one"
    assert [name for name, _ in terms if name == "two"] == ["two"]
    tokens = [token for _, token in terms]
    assert tokens == sorted(set(tokens))


@scenario()
async def a_leader_that_lost_campaigns_again(harness: Harness) -> None:
    """A leadership that was broken by force; the function is called again with a later term."""
    terms = list[tuple[str, int]]()
    one = Worker(harness, "one", terms)
    one.election = one.client.election("e", lease=harness.store.lease)
    first = harness.spawn(one.run)
    other = harness.client()
    # A break may also hit a claim that is not granted yet, whose term begins later.
    await harness.wait_until(lambda: bool(terms))

    async def is_broken() -> bool:
        """A lease of a busy machine may end by itself, and begins again."""
        return await other.break_lock("e") is not None

    await harness.wait_until(is_broken)
    await harness.wait_until(lambda: len(terms) >= 2)
    one.stopped = True
    assert await first.join() == "one"
    assert terms[1][1] > terms[0][1]


@scenario()
async def a_body_that_lost_the_leadership_ends_with_an_error(harness: Harness) -> None:
    """LeaseLost, as with a lock; also where another thread or task has resigned."""
    election = harness.first.election("e")
    entered: list[Lease] = []

    async def body() -> None:
        async with election.lead() as lease:
            entered.append(lease)
            while not lease.lost:
                await harness.pause(0.003)

    peer = harness.spawn(body)
    await harness.wait_until(lambda: bool(entered))
    assert await election.resign()
    error = await peer.end()
    assert isinstance(error, LeaseLost)
    assert "resigned" in str(error)
    assert await election.leader() is None


@scenario()
async def closing_the_client_ends_its_part(harness: Harness) -> None:
    """Of a leader, of a candidate, and of a watcher."""
    terms = list[tuple[str, int]]()
    changes: list[LockChange] = []
    one, two, client = (
        Worker(harness, "one", terms),
        Worker(harness, "two", terms),
        harness.client(),
    )

    async def report(append: Callable[[LockChange], object]) -> None:
        async for change in client.election("e").watch():
            append(change)

    watching = harness.spawn(report, changes.append)
    await harness.wait_until(lambda: bool(changes))
    first = harness.spawn(one.run)
    await harness.wait_until(lambda: bool(one.working))
    second = harness.spawn(two.run)
    if harness.store.has_queue:
        await harness.wait_for_waiters(harness.lock("e"), 1)
    await two.client.close()
    assert await second.join() is None
    await harness.wait_until(lambda: changes[-1].holder is not None)
    await one.client.close()
    assert await first.join() is None
    await client.close()
    assert await watching.end() is None
    assert [name for name, _ in terms] == ["one"]
