"""The two most frequent commands, packed beforehand except for what differs between claims.

Invariant: they equal, byte for byte, what `packed` makes of the command that `ScriptedLock` builds:
each is made from that command, with marks in the places of owner and member.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.keys import owner_of, terms_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.messages import Command
    from leaselock.backends.redis.topology import Topology
    from leaselock.core.backend import Claim

# A name is printable, so neither mark occurs in one. The owner's mark is as long as the owner.
OWNER, MEMBER = "\1", "\2"
KEPT = 4096


class PackedCommands:
    """Acquire and release of one format; each with the key that says where to send it."""

    __slots__ = ("acquire_parts", "channel_of", "release_parts", "topology")

    def __init__(
        self,
        topology: Topology,
        channel_of: Callable[[Claim], str],
        acquire_command: Callable[[str, str, int, str, int], Command],
        release_command: Callable[[str, str], Command],
    ) -> None:
        # Whether a cluster has sharded channels is found out later, and changes keys and verbs.
        def acquire_parts(
            name: str, length: int, ms: int, tokens: int, sharded: bool
        ) -> tuple[Any, ...]:
            command = acquire_command(name, OWNER * length, ms, MEMBER, tokens)
            start, between, rest = packed((command,)).split((OWNER * length).encode())
            before, after = rest.split(f"1\r\n{MEMBER}".encode())
            return str(command[3]), start, between, before, after

        def release_parts(name: str, length: int, sharded: bool) -> tuple[Any, ...]:
            command = release_command(name, OWNER * length)
            return str(command[3]), *packed((command,)).split((OWNER * length).encode())

        self.topology = topology
        self.channel_of = channel_of
        self.acquire_parts = lru_cache(maxsize=KEPT)(acquire_parts)
        self.release_parts = lru_cache(maxsize=KEPT)(release_parts)

    def acquire(self, claim: Claim) -> tuple[str, bytes]:
        """A try that does not wait, of a claim that is not in the queue."""
        name, holder, _, lease, metadata, since, tokens = claim[:7]
        owner, ms = owner_of(holder), round(lease * 1000)
        terms = ms if tokens == 1 else terms_of(claim)
        member = f"{owner}\n{self.channel_of(claim)}\n{terms}\n{since}\n{metadata}".encode()
        key, start, between, before, after = self.acquire_parts(
            name, len(owner), ms, tokens, self.topology.sharded
        )
        word, size = owner.encode(), b"%d\r\n" % len(member)
        return key, b"".join((start, word, between, word, before, size, member, after))

    def release(self, claim: Claim) -> tuple[str, bytes]:
        """A release without tombstone, of a claim that is not in the queue."""
        owner = owner_of(claim.id)
        key, start, between, after = self.release_parts(
            claim.name, len(owner), self.topology.sharded
        )
        word = owner.encode()
        return key, b"".join((start, word, between, word, after))
