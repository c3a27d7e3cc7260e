"""Reading the states of locks: of one, or of many in few round trips."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.redis.keys import key_of
from leaselock._backends.redis.messages import NotALock, Unreachable
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import LockState

# How many locks are read at once: a lock may have thousands of waiters.
READ_AT_ONCE = 50


class Inspection(NamedTuple):
    """How the states of several locks are read with one packet."""

    command: Callable[[str], Command]
    """The command that reads the lock with this name."""
    state: Callable[[str, Any], LockState]
    """The state of that lock, from the reply."""


class LockReader:
    """Reads the locks of one protocol. *state_of* reads the state of one lock, and *inspection*
    those of several; without it, they are read one by one.
    """

    def __init__(
        self,
        shared: SharedState,
        state_of: Callable[[str, float], Awaitable[LockState]],
        inspection: Inspection | None = None,
    ) -> None:
        self.executor = shared.executor
        self.topology = shared.topology
        self.prefix = shared.settings.prefix
        self.now = shared.now
        self.state_of = state_of
        self.inspection = inspection

    async def read_together(self, listed: Iterable[str], allowed: float) -> dict[str, LockState]:
        """The states of these locks, each packet of them read in one round trip that may take the
        *allowed* seconds.

        The locks that are left out have to be read one by one: another server has them meanwhile,
        they cannot be read, or the server has to be sent the text of the script first.
        """
        read: dict[str, LockState] = {}
        if self.inspection is None:
            return read
        for address, packets in self._packets(listed).items():
            # The first one sends the text of the script, where the server does not have it.
            first = packets[0].pop(0)
            with suppress(NotALock):
                read[first] = await self.state_of(first, self.now() + allowed)
            for packet in packets:
                commands = [self.inspection.command(name) for name in packet]
                try:
                    replies = await self.executor.send(address, commands, self.now() + allowed)
                except OutcomeUnknown:
                    self.topology.forget(address)
                    raise
                except Unreachable:
                    # To read one by one finds the server that is the master now.
                    self.topology.forget(address)
                    return read
                for name, reply in zip(packet, replies, strict=True):
                    if not isinstance(reply, Exception):
                        read[name] = self.inspection.state(name, reply)
        return read

    def _packets(self, listed: Iterable[str]) -> dict[Address, list[list[str]]]:
        """The names to read at once from each server; without those whose server is not known."""
        packets: dict[Address, list[list[str]]] = {}
        for name in listed:
            address = self.topology.known(key_of(name, self.prefix, self.topology.divided))
            if address is not None:
                of_server = packets.setdefault(address, [[]])
                if len(of_server[-1]) == READ_AT_ONCE:
                    of_server.append([])
                of_server[-1].append(name)
        return packets
