"""The two commands that are sent most, packed beforehand but for what differs from claim to claim.

Law: they are, to the byte, what `packed` makes of the command that `Hash` would send: each is made
from that command, with marks in the places of owner and member.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.keys import owner_of, terms_of
from leaselock.backends.redis.steps import Send
from leaselock.core.backend import Acquire

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.places import Places
    from leaselock.backends.redis.route import Route
    from leaselock.backends.redis.steps import Command
    from leaselock.core.backend import Claim, Release

# A name is printable, so neither stands in one. The owner's mark is as long as the owner.
OWNER, MEMBER = "\1", "\2"
KEPT = 4096


class Ready:
    """The commands of one form, with their lock's key."""

    __slots__ = ("address_of", "give", "places", "route", "take")

    def __init__(
        self,
        route: Route,
        places: Places,
        address_of: Callable[[Claim], str],
        taking: Callable[[str, str, int, str, int], Command],
        giving: Callable[[str, str], Command],
    ) -> None:
        # That a cluster is not sharded is found out later, and changes keys and verbs.
        def take(name: str, length: int, ms: int, tokens: int, sharded: bool) -> tuple[Any, ...]:
            command = taking(name, OWNER * length, ms, MEMBER, tokens)
            start, between, rest = packed((command,)).split((OWNER * length).encode())
            before, after = rest.split(f"1\r\n{MEMBER}".encode())
            return str(command[3]), start, between, before, after

        def give(name: str, length: int, sharded: bool) -> tuple[Any, ...]:
            command = giving(name, OWNER * length)
            return str(command[3]), *packed((command,)).split((OWNER * length).encode())

        self.route = route
        self.places = places
        self.address_of = address_of
        self.take = lru_cache(maxsize=KEPT)(take)
        self.give = lru_cache(maxsize=KEPT)(give)

    def brief(self, request: Acquire | Release, replicas: int) -> Send | None:
        """One packed command that nearly always settles *request*, if there is one."""
        claim = request.claim
        if claim.id in self.places.tickets:
            return None
        if isinstance(request, Acquire):
            # Who may keep a lease listens from the start.
            if replicas or (request.wait and claim.cached):
                return None
            lock, command = self.to_take(claim)
        elif request.tombstone:
            return None
        else:
            lock, command = self.to_give(claim)
        address = self.route.known(lock)
        return None if address is None else Send(address, command)

    def to_take(self, claim: Claim) -> tuple[str, bytes]:
        """A try that does not wait, and has no place in the queue."""
        name, holder, _, lease, about, since, tokens = claim[:7]
        owner, ms = owner_of(holder), round(lease * 1000)
        terms = ms if tokens == 1 else terms_of(claim)
        member = f"{owner}\n{self.address_of(claim)}\n{terms}\n{since}\n{about}".encode()
        lock, start, between, before, after = self.take(
            name, len(owner), ms, tokens, self.route.sharded
        )
        who, size = owner.encode(), b"%d\r\n" % len(member)
        return lock, b"".join((start, who, between, who, before, size, member, after))

    def to_give(self, claim: Claim) -> tuple[str, bytes]:
        """A release by a holder that is neither buried nor in the queue."""
        owner = owner_of(claim.id)
        lock, start, between, after = self.give(claim.name, len(owner), self.route.sharded)
        who = owner.encode()
        return lock, b"".join((start, who, between, who, after))
