"""What depends on whether the waiting claims of a client share a connection. Nothing else does.

`SharedByClaims`, for tasks: one connection to each server, which the event loop reads. All claims
that wait for a lock are one group with one subscription. Their address is the id of the client.
`ExclusiveToClaim`, for threads: a waiting claim keeps a connection of its own, which its thread
reads, and is a group of one. Its address is its own id, or that of the earlier claim whose kept
subscription it has taken over.

Invariant 1: a claim has the same address until the store does not have it any more: the address is
part of its entry in the queue.
Invariant 2: an exclusive connection has one user at a time. It goes back to the pool when its claim
stops waiting, and is closed if a reply or a thread is still expected on it then.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.messages import Listen
from leaselock._core.contract.effects import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from leaselock._backends.redis.messages import Address, Connection
    from leaselock._backends.redis.pool import Pool
    from leaselock._backends.redis.waiters import Group, Waiter
    from leaselock._core.contract.backend import Claim

    # `Pool.get`, or `Pool.get_to_wait`.
    Get = Callable[[Address, float], Awaitable[tuple[Connection, float]]]

# Claims that gave up and whose release was never answered: their addresses are not kept for ever.
MOST_ADDRESSES = 10_000


class ConnectionSharing(abc.ABC):
    """How waiting and watching claims use connections, which groups a claim may join, and where it
    is told of a grant.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.clear()

    @abc.abstractmethod
    def clear(self) -> None:
        """Forget all groups and addresses."""

    # --- addresses ------------------------------------------------------------------------------

    @abc.abstractmethod
    def address_of(self, claim: Claim) -> str | None:
        """The end of the channel for messages to the claim; None: it has never waited."""

    @abc.abstractmethod
    def set_address(self, claim: Claim, address: str) -> None:
        """Note the address of a claim that had none."""

    @abc.abstractmethod
    def forget_address(self, claim: Claim) -> None:
        """The store does not have the claim in the queue any more."""

    # --- groups ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def group_of(self, name: str) -> Group | None:
        """The group that each claim for the lock *name* joins."""

    @abc.abstractmethod
    def is_current(self, group: Group) -> bool:
        """Whether claims may join the group."""

    @abc.abstractmethod
    def opened(self, group: Group) -> None:
        """Note a new group."""

    @abc.abstractmethod
    def vacated(self, group: Group) -> None:
        """Note that the last claim of a group has left. Its subscription is kept for a while."""

    @abc.abstractmethod
    def take_vacant(self, name: str) -> Group | None:
        """A kept subscription for a claim that has no address yet, with its connection."""

    @abc.abstractmethod
    def ended(self, group: Group) -> None:
        """Note that the subscription of a group has ended."""

    # --- requests -------------------------------------------------------------------------------

    @abc.abstractmethod
    async def connection_for(
        self, kept: Connection | None, get: Get, address: Address, until: float
    ) -> tuple[Connection, float]:
        """A connection for a request, and until when that may take. *kept* is the connection that
        the claim has used to wait at this address.
        """

    @abc.abstractmethod
    def take(self, connection: Connection, address: Address) -> bool:
        """Whether a request for *address* can use this connection of a waiting claim at once. Then
        `request_ended` follows.
        """

    @abc.abstractmethod
    def request_ended(self, connection: Connection, *, failed: bool) -> bool:
        """The reply has arrived, or will never be read. Return whether the claim stays on the
        connection.
        """

    @abc.abstractmethod
    def drop_overtaken(self, connection: Connection) -> Sequence[str]:
        """Drop the messages that were read before a reply, if they concern the same claim: they
        may be older than the reply. Return the channels that the server has ended meanwhile.
        """

    # --- waiting --------------------------------------------------------------------------------

    @abc.abstractmethod
    def listen(self, waiter: Waiter, until: float) -> Awaitable[object]:
        """Wait for a message. Not a coroutine, which would cost memory for each waiting task."""

    @abc.abstractmethod
    def interrupt_one(self, waiters: Iterable[Waiter], address: Address) -> bool:
        """Let one of the waiters give up its connection to *address*, which another request needs,
        and ask again; return whether there was one.
        """

    @abc.abstractmethod
    def put_back(self, connection: Connection) -> None:
        """The claim does not wait or watch any more on this connection."""

    @abc.abstractmethod
    def close(self, connection: Connection) -> None:
        """Close the connection of a claim that still waits or watches: the client is closing."""


class SharedByClaims(ConnectionSharing):
    """All claims of a client share one connection to each server. A claim takes it for each
    request; the pool has it, and closes it.
    """

    def clear(self) -> None:
        """Forget all groups."""
        # By the name of the lock, with or without waiting claims. If another server has the lock
        # now, the older group is not among them.
        self.groups: dict[str, Group] = {}

    def address_of(self, claim: Claim) -> str | None:
        """Return the id of its client."""
        return claim.client

    def set_address(self, claim: Claim, address: str) -> None:
        """Do nothing: the address is the id of the client."""

    def forget_address(self, claim: Claim) -> None:
        """Do nothing: the address is the id of the client."""

    def group_of(self, name: str) -> Group | None:
        """Return the group of that name, whose claims share one subscription."""
        return self.groups.get(name)

    def is_current(self, group: Group) -> bool:
        """Return whether no other connection serves the lock now."""
        return self.groups.get(group.name) is group

    def opened(self, group: Group) -> None:
        """Let the next claims for the lock join it."""
        self.groups[group.name] = group

    def vacated(self, group: Group) -> None:
        """Do nothing: the next claim finds the group with `group_of`."""

    def take_vacant(self, name: str) -> Group | None:
        """Return None: each claim has an address."""
        return None

    def ended(self, group: Group) -> None:
        """Let the next claim for the lock open another group."""
        if self.is_current(group):
            del self.groups[group.name]

    async def connection_for(
        self, kept: Connection | None, get: Get, address: Address, until: float
    ) -> tuple[Connection, float]:
        """Take the connection of the server, anew for each request."""
        return await get(address, until)

    def take(self, connection: Connection, address: Address) -> bool:
        """Take the connection of the server, if it is still this one."""
        taken = self.pool.take(address)
        if taken is not None and taken is not connection:
            self.pool.put(taken)
        return taken is connection

    def request_ended(self, connection: Connection, *, failed: bool) -> bool:
        """Give it back. The claim stays even if it is lost: `Listener.drain` wakes it then."""
        if failed:
            connection.leave()
        self.pool.put(connection)
        return True

    def drop_overtaken(self, connection: Connection) -> Sequence[str]:
        """Drop nothing: the messages may concern other claims."""
        return ()

    def listen(self, waiter: Waiter, until: float) -> Awaitable[object]:
        """Wait for the signal: the event loop reads the messages."""
        return Call(waiter.group.connection, Listen(waiter.signal), until)

    def interrupt_one(self, waiters: Iterable[Waiter], address: Address) -> bool:
        """Return False: there is only one connection, and the request shares it."""
        return False

    def put_back(self, connection: Connection) -> None:
        """Do nothing: it was put back after the last request."""

    def close(self, connection: Connection) -> None:
        """Do nothing: the pool closes it."""


class ThreadListens(Call[None]):
    """A thread reads messages on the connection of its claim; to be awaited at once."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter, until: float) -> None:
        self.waiter = waiter
        self.node = waiter.group.connection
        self.request: Any = Listen(waiter.signal)
        self.until = until

    def __await__(self) -> Generator[ThreadListens, Any, None]:
        self.waiter.in_use = self.waiter.listens = True
        try:
            yield self
        finally:
            self.waiter.in_use = self.waiter.listens = False


class ExclusiveToClaim(ConnectionSharing):
    """Each claim has a connection of its own from its first request until it stops waiting. A kept
    subscription stays on its connection, which the pool may give to other requests meanwhile.
    """

    def clear(self) -> None:
        """Forget all addresses and kept subscriptions."""
        # By the id of the claim.
        self.addresses: dict[str, str] = {}
        # The groups whose subscription is kept, by the name of the lock.
        self.vacant: dict[str, list[Group]] = {}

    def address_of(self, claim: Claim) -> str | None:
        """Return its own id, or what it has taken over; None before it waits."""
        return self.addresses.get(claim.id)

    def set_address(self, claim: Claim, address: str) -> None:
        """Note the address, and drop the oldest one of too many."""
        self.addresses[claim.id] = address
        if len(self.addresses) > MOST_ADDRESSES:
            del self.addresses[next(iter(self.addresses))]

    def forget_address(self, claim: Claim) -> None:
        """Forget the address."""
        if self.addresses:
            self.addresses.pop(claim.id, None)

    def group_of(self, name: str) -> Group | None:
        """Return None: a claim joins no group but a vacant one (`take_vacant`)."""
        return None

    def is_current(self, group: Group) -> bool:
        """Return True: no other group can replace it."""
        return True

    def opened(self, group: Group) -> None:
        """Do nothing: no other claim joins it while this one waits."""

    def vacated(self, group: Group) -> None:
        """Let the next claim for the lock take it over."""
        self.vacant.setdefault(group.name, []).append(group)

    def take_vacant(self, name: str) -> Group | None:
        """Take the newest one whose connection serves no other request."""
        for group in reversed(self.vacant.get(name, ())):
            if self.pool.take_idle(group.connection):
                self.ended(group)
                return group
        return None

    def ended(self, group: Group) -> None:
        """Let no claim take it over."""
        groups = self.vacant.get(group.name, [])
        if group in groups:
            groups.remove(group)
            if not groups:
                del self.vacant[group.name]

    async def connection_for(
        self, kept: Connection | None, get: Get, address: Address, until: float
    ) -> tuple[Connection, float]:
        """Use the connection that the claim has, or get one for its whole wait."""
        return (kept, until) if kept is not None else await get(address, until)

    def take(self, connection: Connection, address: Address) -> bool:
        """Return whether it can be used: the claim has it already."""
        return connection.is_at(address)

    def request_ended(self, connection: Connection, *, failed: bool) -> bool:
        """Close it if the request has failed: the claim leaves it then."""
        if failed:
            connection.leave()
        return not failed

    def drop_overtaken(self, connection: Connection) -> Sequence[str]:
        """Drop all messages: no other claim listens there."""
        if not connection.pushes:
            return ()
        ended = [channel for channel, word in connection.pushes if word is None]
        connection.pushes.clear()
        return ended

    def listen(self, waiter: Waiter, until: float) -> Awaitable[object]:
        """Let the thread of the claim read the messages."""
        return ThreadListens(waiter, until)

    def interrupt_one(self, waiters: Iterable[Waiter], address: Address) -> bool:
        """Close the connection of the first waiter whose thread only reads."""
        for waiter in waiters:
            if waiter.listens and waiter.group.connection.is_at(address):
                waiter.group.connection.close()
                return True
        return False

    def put_back(self, connection: Connection) -> None:
        """Let the pool give it to other requests."""
        self.pool.put(connection)

    def close(self, connection: Connection) -> None:
        """Close it: the pool closes only connections in no use."""
        connection.close()


def sharing_of(pool: Pool) -> ConnectionSharing:
    """The one of the two that fits the connections of a pool."""
    return SharedByClaims(pool) if pool.shared else ExclusiveToClaim(pool)
