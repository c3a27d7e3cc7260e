"""Notifications of changes of a lock's key, by the server's tracking of keys (client-side caching).

A watcher reads the key in a way that makes the server remember it; the next change of the key, by
any program, is then pushed to the watcher's connection: a grant, a release, a renewal, an expiry.
So holders and waiters send nothing for watchers.

Invariant 1: a push is only a hint to look again. The server forgets the key with the push, so each
look asks for the next one, and drops a push that a thread had read before its reply.
Invariant 2: no change stays unnoticed for longer than `WATCH_INTERVAL` seconds, after which the
watcher looks by itself: a notification is lost with its connection, and a user may lack the
permission to track keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.messages import Listen, Send
from leaselock._core.contract.effects import Call, Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.connection_sharing import ConnectionSharing
    from leaselock._backends.redis.messages import Address, Connection
    from leaselock._backends.redis.pool import Pool

    Ask = Callable[..., Awaitable[list[Any]]]

# Only the keys of a command that follows CLIENT CACHING are tracked. Both are sent each time: that
# costs less than to know of each connection what it was sent before.
TRACK: Command = ("CLIENT", "TRACKING", "ON", "OPTIN")
NEXT_ONLY: Command = ("CLIENT", "CACHING", "YES")


class TrackedKeys:
    """Watched keys of one lock. A thread keeps the connection while it watches."""

    __slots__ = ("connection", "keys", "signal", "tracked")

    def __init__(self, connection: Connection, keys: tuple[str, ...]) -> None:
        self.connection = connection
        self.keys = keys
        self.signal = Signal()
        self.tracked = False


class KeyTracking:
    """The watched keys of a client, by the id of the claim that watches."""

    def __init__(self, pool: Pool, sharing: ConnectionSharing) -> None:
        self.pool = pool
        self.sharing = sharing
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.watches: dict[str, TrackedKeys] = {}

    async def watch(self, ask: Ask, claim_id: str, keys: tuple[str, ...], until: float) -> bool:
        """Have the next change of one of the *keys*, which are in one slot, notified; return
        whether the server does that. *ask* is `Executor.ask`.
        """
        send = partial(self._send, claim_id, keys)
        await ask(keys[0], (("EXISTS", *keys),), until, send=send)
        watch = self.watches.get(claim_id)
        return watch is not None and watch.tracked

    async def _send(
        self,
        claim_id: str,
        keys: tuple[str, ...],
        address: Address,
        commands: Sequence[Command],
        until: float,
    ) -> list[Any]:
        """Send commands, the last of which reads the keys; return their replies."""
        watch = self.watches.get(claim_id)
        kept: Connection | None = None
        if watch is not None:
            if watch.connection.is_at(address):
                kept = watch.connection
            else:
                self.forget(claim_id)
        get = self.pool.get
        connection, until = await self.sharing.connection_for(kept, get, address, until)
        if watch is None or kept is not connection:
            watch = self.watches[claim_id] = TrackedKeys(connection, keys)
        watch.signal.clear()
        *before, last = commands
        sent = (TRACK, *before, NEXT_ONLY, last)
        try:
            replies = await Call(connection, Send(packed(sent), len(sent), ()), until)
        except BaseException:
            self.sharing.request_ended(connection, failed=True)
            raise
        self.sharing.request_ended(connection, failed=False)
        self.sharing.drop_overtaken(connection)
        refused = any(isinstance(reply, Exception) for reply in (replies[0], replies[-2]))
        watch.tracked = not refused
        return [*replies[1:-2], replies[-1]]

    def changed(self, connection: Connection, key: str) -> None:
        """A key has changed; without a name any may have, or the connection is lost."""
        for watch in self.watches.values():
            if watch.connection is connection and (not key or key in watch.keys):
                watch.signal.set()

    def await_change(self, claim_id: str, until: float) -> Call[None] | None:
        """Wait for a notification; None if the claim does not watch."""
        watch = self.watches.get(claim_id)
        return None if watch is None else Call(watch.connection, Listen(watch.signal), until)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims look, if they watch."""
        for claim_id in claim_ids:
            if (watch := self.watches.get(claim_id)) is not None:
                watch.signal.set()

    def forget(self, claim_id: str) -> None:
        """Stop watching. The server pushes one more change at most, which is ignored."""
        watch = self.watches.pop(claim_id, None)
        if watch is not None:
            self.sharing.put_back(watch.connection)

    def end_waits(self) -> None:
        """Let all watchers look: the client is closing."""
        for watch in list(self.watches.values()):
            watch.signal.set()

    def close(self) -> None:
        """Close the connections that watching claims keep."""
        watches = list(self.watches.values())
        self.clear()
        for watch in watches:
            self.sharing.close(watch.connection)
