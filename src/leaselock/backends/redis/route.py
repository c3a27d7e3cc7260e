"""Which server has a key: one, the master that sentinels name, or the master of a slot.

Finding out is part of the conversation. What was found is believed until a server says otherwise
or cannot be reached; a master that sentinels named is asked for again every second, so that one
that was cut off from them is left soon (hazard G12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leaselock.backends.redis.keys import SLOTS, slot_of
from leaselock.backends.redis.steps import Address, Send, Unreachable
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leaselock.backends.redis.steps import Steps

BELIEVED = 1.0


class Route(Protocol):
    """Where to send what concerns a key."""

    divided: bool
    """The keys are divided among servers, by slots."""
    sharded: bool
    """Messages travel in the slot of their channel."""

    def known(self, key: str) -> Address | None:
        """The server that has *key*, if that is known."""
        ...

    def find(self, key: str) -> Steps[Address]:
        """Find out which server has *key*."""
        ...

    def masters(self) -> Steps[Sequence[Address]]:
        """All servers that have keys."""
        ...

    def forget(self, address: Address | None = None) -> None:
        """What is known may be wrong; *address* did not answer, or cannot serve."""
        ...

    def late(self, key: str) -> bool:
        """Whether others should be asked before the server of *key*, which did not answer."""
        ...

    def moved(self, slot: int, address: Address) -> None:
        """A server said who has a slot now."""
        ...


class Single:
    """One server."""

    divided = sharded = False

    def __init__(self, address: Address) -> None:
        self.address = address

    def known(self, key: str) -> Address | None:
        """The one."""
        return self.address

    def find(self, key: str) -> Steps[Address]:
        """The one."""
        return self.address
        yield

    def masters(self) -> Steps[Sequence[Address]]:
        """The one."""
        return (self.address,)
        yield

    def forget(self, address: Address | None = None) -> None:
        """There is no other."""

    def late(self, key: str) -> bool:
        """There is no other."""
        return False

    def moved(self, slot: int, address: Address) -> None:
        """A cluster's answer to somebody who did not say that he wants a cluster."""
        raise NotApplied(
            f"{self.address} is part of a Redis cluster: write redis+cluster://{self.address}"
        )


class Sentinels:
    """The master that sentinels name."""

    divided = sharded = False

    def __init__(
        self, sentinels: Sequence[Address], service: str, now: Callable[[], float]
    ) -> None:
        self.sentinels = list(sentinels)
        self.service = service
        self.now = now
        self.master: Address | None = None
        self.until = 0.0

    def known(self, key: str) -> Address | None:
        """The master named last, for a while."""
        return self.master if self.now() < self.until else None

    def find(self, key: str) -> Steps[Address]:
        """Ask one sentinel after the other, and the master whether it is one."""
        reasons: list[str] = []
        for sentinel in list(self.sentinels):
            try:
                address = yield from self._named_by(sentinel)
                yield from self._check(address)
            except (Unreachable, StoreError) as error:
                if not reasons:
                    # It may have kept silent for all the time there was: another is first then.
                    self.sentinels = [*self._without(sentinel), sentinel]
                reasons.append(f"{sentinel}: {error}")
                continue
            self.sentinels = [sentinel, *self._without(sentinel)]
            self.master, self.until = address, self.now() + BELIEVED
            return address
        self.forget()
        raise Unreachable(f"no sentinel names a master {self.service!r} ({'; '.join(reasons)})")

    def _without(self, sentinel: Address) -> Iterator[Address]:
        return (other for other in self.sentinels if other != sentinel)

    def _named_by(self, sentinel: Address) -> Steps[Address]:
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        (reply,) = yield Send(sentinel, (words,))
        if isinstance(reply, Exception):
            raise Unreachable(str(reply))
        if not reply:
            raise Unreachable("it knows no such master")
        return Address(reply[0].decode(), int(reply[1]))

    def _check(self, address: Address) -> Steps[None]:
        (role,) = yield Send(address, (("ROLE",),))
        if isinstance(role, Exception):
            raise Unreachable(str(role))
        if role[0] != b"master":
            raise Unreachable(f"{address} is no master yet")

    def masters(self) -> Steps[Sequence[Address]]:
        """The master."""
        return ((self.known("") or (yield from self.find(""))),)

    def forget(self, address: Address | None = None) -> None:
        """Ask again."""
        self.until = 0.0

    def late(self, key: str) -> bool:
        """There is one master."""
        return False

    def moved(self, slot: int, address: Address) -> None:
        """A cluster's answer from a server that sentinels watch."""
        raise NotApplied(
            f"the master {self.service!r} is part of a cluster, which has no sentinels"
        )


class Cluster:
    """The masters of a cluster, by slot."""

    divided = True

    def __init__(self, seeds: Sequence[Address]) -> None:
        self.seeds = list(seeds)
        self.slots: dict[int, Address] = {}
        self.believed = True
        self.known_masters: list[Address] = []
        # Asked last, for one that keeps silent leaves no time for the others, and one that is cut
        # off from them has an old map.
        self.silent: set[Address] = set()
        self.sharded = True

    def known(self, key: str) -> Address | None:
        """The master of the key's slot."""
        return self.slots.get(slot_of(key)) if self.believed else None

    def late(self, key: str) -> bool:
        """Whether the master of the key's slot, as far as is known, is asked last."""
        return self.slots.get(slot_of(key)) in self.silent

    def find(self, key: str) -> Steps[Address]:
        """Read the map from any node, and look there."""
        yield from self._read_map()
        address = self.slots.get(slot_of(key))
        if address is None:
            raise Unreachable(f"no node of the cluster has slot {slot_of(key)}")
        return address

    def _read_map(self) -> Steps[None]:
        reasons: list[str] = []
        known = dict.fromkeys([*self.known_masters, *self.seeds])
        self.silent = self.silent & known.keys()
        for address in sorted(known, key=self.silent.__contains__):
            try:
                slots, sharded = yield Send(address, (("CLUSTER", "SLOTS"), SHARDED))
            except (Unreachable, StoreError) as error:
                if not reasons:
                    self._avoid(address)
                reasons.append(f"{address}: {error}")
                continue
            if not isinstance(slots, Exception):
                self.silent = self.silent - {address}
                self._learn(slots, address)
                self.sharded = not isinstance(sharded, Exception)
                return
            reasons.append(f"{address}: {slots}")
        raise Unreachable(f"no node of the cluster answers ({'; '.join(reasons)})")

    def _learn(self, ranges: Sequence[Sequence[object]], asked: Address) -> None:
        slots: dict[int, Address] = {}
        for first, last, master, *_ in ranges:
            address = _announced(master, asked)
            slots.update(dict.fromkeys(range(_slot(first), _slot(last) + 1), address))
        self.slots, self.believed = slots, True
        self.known_masters = list(dict.fromkeys(slots.values()))

    def masters(self) -> Steps[Sequence[Address]]:
        """All masters."""
        yield from self._read_map()
        return self.known_masters

    def forget(self, address: Address | None = None) -> None:
        """Read the map again, and not from *address* if another has it."""
        self.believed = False
        if address is not None:
            self._avoid(address)

    def _avoid(self, address: Address) -> None:
        others = self.silent | {address}
        all_of_them = others >= {*self.known_masters, *self.seeds}
        self.silent = {address} if all_of_them else others

    def moved(self, slot: int, address: Address) -> None:
        """One slot has another master."""
        self.slots[slot] = address


# Redisson's question, too: a server that cannot answer it has no sharded channels.
SHARDED = ("PUBSUB", "SHARDNUMSUB", "0")


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise NotApplied(f"the cluster describes its slots in a way not known here: {value!r}")
    return value


def _slot(value: object) -> int:
    slot = _number(value)
    if not 0 <= slot < SLOTS:
        raise NotApplied(f"the cluster says that it has a slot {slot}, of {SLOTS}")
    return slot


def _announced(master: object, asked: Address) -> Address:
    if not isinstance(master, list) or len(master) < 2:
        raise NotApplied(f"the cluster describes its nodes in a way not known here: {master!r}")
    host, port = master[0], _number(master[1])
    # An empty or missing host means: the one that you have asked.
    return Address(host.decode() if host else asked.host, port)
