"""Which server has a key: the only one, the master that sentinels name, or the master of a slot.

Sentinels and nodes of a cluster are asked one after the other (`ask_in_order`).

Invariant 1: what was found is used until a server says otherwise or cannot be reached. A master
that sentinels named is asked for again every second, so that one that was cut off from them is left
soon (hazard G12).
Invariant 2: a server that did not answer is asked last the next time, since a request may have time
for one silent server only.
Invariant 3: the error of a search is final only if waiting changes nothing.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redis.codec import Command
from leaselock._backends.redis.keys import SLOTS, slot_of
from leaselock._backends.redis.messages import Address, OtherLayout, Unreachable
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Sends commands to one server by a deadline (`Executor.send`).
Sender = Callable[[Address, Sequence[Command], float], Awaitable[list[Any]]]
T = TypeVar("T")
NAMED_FOR = 1.0
# Reasons of an error that no wait changes.
FINAL = ("denied", "misconfigured")
PART_OF_CLUSTER = "{0} is part of a Redis cluster: write redis+cluster://{0}"


class NotReady(Unreachable):
    """A server has answered: the one that it names cannot be used yet."""


async def ask_in_order(
    servers: Sequence[Address],
    ask: Callable[[Address], Awaitable[T]],
    avoid: Callable[[Address], None],
    text: str,
) -> tuple[Address, T]:
    """Ask one server after the other; return the first that gives an answer, and its answer.

    If none does, raise an error with *text* and the reasons of all. It is final if one has given a
    reason that no wait changes, the first of which counts, and no other has answered otherwise.
    *avoid* is told of the first server that fails: it may have kept silent for all the time there
    was, so another must be asked first the next time.
    """
    reasons: list[str] = []
    cause: BaseException | None = None
    final: StoreError | None = None
    is_temporary = False
    for server in servers:
        try:
            return server, await ask(server)
        except OtherLayout:
            raise
        except (Unreachable, StoreError) as error:
            if not reasons:
                avoid(server)
            reasons.append(f"{server}: {error}")
            cause = error.__cause__ or cause
            if isinstance(error, StoreError) and error.reason in FINAL:
                final = final or error
            elif isinstance(error, NotApplied | NotReady):
                is_temporary = True
    text = f"{text} ({'; '.join(reasons)})"
    if final is not None and not is_temporary:
        raise NotApplied(text, final.reason) from cause
    raise Unreachable(text) from cause


class Topology(abc.ABC):
    """Where to send what concerns a key: by default, to one master."""

    divided = False
    """The keys are divided among servers, by slots."""
    sharded = False
    """Messages travel in the slot of their channel."""
    is_known = True
    """Whether *sharded* is known: commands depend on it."""
    fixed = False
    """There is one server, which the URL names: no other will serve in its place."""
    patience = float("inf")
    """Seconds for which a request tries to connect again, at most."""

    @abc.abstractmethod
    def known(self, key: str) -> Address | None:
        """The server of *key*, if it is known."""

    @abc.abstractmethod
    async def find(self, key: str, send: Sender, until: float) -> Address:
        """Find out which server has *key*."""

    @abc.abstractmethod
    def moved(self, slot: int, address: Address) -> None:
        """A server said which server has a slot now."""

    async def masters(self, send: Sender, until: float) -> Sequence[Address]:
        """All servers that have keys."""
        return (self.known("") or await self.find("", send, until),)

    def slots_of(self, address: Address) -> Sequence[int | None]:
        """The slots of a master; None where keys are not divided."""
        return (None,)

    def is_silent(self, key: str) -> bool:
        """Whether to ask others before the server of *key*, which did not answer."""
        return False

    def forget(self, address: Address | None = None) -> None:  # noqa: B027 - one server is known
        """What is known may be wrong; *address* did not answer, or cannot serve."""


class Single(Topology):
    """One server."""

    fixed = True
    # A restart takes longer, and the caller says what an outage means to it (`on_outage`).
    patience = 0.25

    def __init__(self, address: Address) -> None:
        self.address = address

    def known(self, key: str) -> Address | None:
        """The one."""
        return self.address

    async def find(self, key: str, send: Sender, until: float) -> Address:
        """The one."""
        return self.address

    def moved(self, slot: int, address: Address) -> None:
        """Refuse: the server is part of a cluster, and the URL is not one of a cluster."""
        raise NotApplied(PART_OF_CLUSTER.format(self.address), "misconfigured")


class Sentinels(Topology):
    """The master that sentinels name."""

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

    async def find(self, key: str, send: Sender, until: float) -> Address:
        """Ask one sentinel after the other, and the master whether it is one."""

        async def ask(sentinel: Address) -> Address:
            named = await self._named_by(sentinel, send, until)
            try:
                await self._check(named, send, until)
            except (Unreachable, OutcomeUnknown) as error:
                raise NotReady(str(error)) from error.__cause__
            return named

        def avoid(sentinel: Address) -> None:
            self.sentinels = [*self._without(sentinel), sentinel]

        failed = f"no sentinel names a master {self.service!r}"
        try:
            sentinel, master = await ask_in_order(self.sentinels, ask, avoid, failed)
        except (Unreachable, NotApplied):
            self.forget()
            raise
        self.sentinels = [sentinel, *self._without(sentinel)]
        self.master, self.until = master, self.now() + NAMED_FOR
        return master

    def _without(self, sentinel: Address) -> Iterator[Address]:
        return (other for other in self.sentinels if other != sentinel)

    async def _named_by(self, sentinel: Address, send: Sender, until: float) -> Address:
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        (reply,) = await send(sentinel, (words,), until)
        if isinstance(reply, Exception):
            advice = f": it is no sentinel: write redis://{sentinel} for a server"
            raise _answer(reply, advice if "unknown command" in str(reply) else "")
        if not reply:
            raise NotApplied(
                f"it knows no such master: correct the name {self.service!r} in the URL, or add it "
                "to the sentinels (SENTINEL MONITOR)",
                "misconfigured",
            )
        return Address(reply[0].decode(), int(reply[1]))

    async def _check(self, address: Address, send: Sender, until: float) -> None:
        (role,) = await send(address, (("ROLE",),), until)
        if isinstance(role, Exception):
            raise _answer(role)
        if role[0] != b"master":
            raise Unreachable(f"{address} is no master yet")

    def forget(self, address: Address | None = None) -> None:
        """Ask again, unless another master has been named since *address* was."""
        if address is None or address == self.master:
            self.until = 0.0

    def moved(self, slot: int, address: Address) -> None:
        """Refuse: a server that sentinels watch is not part of a cluster."""
        raise NotApplied(
            f"the master {self.service!r} is part of a cluster, which has no sentinels",
            "misconfigured",
        )


class Cluster(Topology):
    """The masters of a cluster, by slot."""

    divided = True

    def __init__(self, seeds: Sequence[Address]) -> None:
        self.seeds = list(seeds)
        self.slots: dict[int, Address] = {}
        self.is_current = True
        self.known_masters: list[Address] = []
        # Asked last, for one that keeps silent leaves no time for the others, and one that is cut
        # off from them has an old map.
        self.silent: set[Address] = set()
        self.is_known = False

    def known(self, key: str) -> Address | None:
        """The master of the key's slot."""
        return self.slots.get(slot_of(key)) if self.is_current else None

    def is_silent(self, key: str) -> bool:
        """Whether the master of the key's slot, as far as is known, is asked last."""
        return self.slots.get(slot_of(key)) in self.silent

    async def find(self, key: str, send: Sender, until: float) -> Address:
        """Read the map from any node, and look there."""
        await self._read_map(send, until)
        address = self.slots.get(slot_of(key))
        if address is None:
            raise Unreachable(f"no node of the cluster has slot {slot_of(key)}")
        return address

    async def _read_map(self, send: Sender, until: float) -> None:
        async def ask(node: Address) -> list[Any]:
            slots, sharded = await send(node, (("CLUSTER", "SLOTS"), SHARDED), until)
            if isinstance(slots, Exception):
                advice = f": write redis://{node}" if NO_CLUSTER in str(slots) else ""
                raise _answer(slots, advice)
            return [slots, sharded]

        known = dict.fromkeys([*self.known_masters, *self.seeds])
        self.silent = self.silent & known.keys()
        nodes = sorted(known, key=self.silent.__contains__)
        failed = "no node of the cluster answers"
        node, (slots, sharded) = await ask_in_order(nodes, ask, self._avoid, failed)
        self.silent = self.silent - {node}
        self._learn(slots, node)
        self.sharded, self.is_known = not isinstance(sharded, Exception), True

    def _learn(self, ranges: Sequence[Sequence[object]], replied: Address) -> None:
        slots: dict[int, Address] = {}
        for first, last, master, *_ in ranges:
            address = _announced(master, replied)
            slots.update(dict.fromkeys(range(_slot(first), _slot(last) + 1), address))
        self.slots, self.is_current = slots, True
        self.known_masters = list(dict.fromkeys(slots.values()))

    async def masters(self, send: Sender, until: float) -> Sequence[Address]:
        """All masters."""
        await self._read_map(send, until)
        return self.known_masters

    def slots_of(self, address: Address) -> Sequence[int | None]:
        """Those of the newest map."""
        return [slot for slot, master in self.slots.items() if master == address]

    def forget(self, address: Address | None = None) -> None:
        """Read the map again, and not from *address* if another has it; unless the present map has
        no such master.
        """
        if address is None or address in self.known_masters:
            self.is_current = False
        if address is not None:
            self._avoid(address)

    def _avoid(self, address: Address) -> None:
        others = self.silent | {address}
        all_of_them = others >= {*self.known_masters, *self.seeds}
        self.silent = {address} if all_of_them else others

    def moved(self, slot: int, address: Address) -> None:
        """One slot has another master."""
        self.slots[slot] = address
        if address not in self.known_masters:
            self.known_masters = [*self.known_masters, address]


NO_CLUSTER = "cluster support disabled"
# Redisson's question, too: a server that cannot answer it has no sharded channels.
SHARDED = ("PUBSUB", "SHARDNUMSUB", "0")


def _answer(reply: Exception, advice: str = "") -> Exception:
    """The error for a server's error reply to the question which server to use."""
    text = str(reply)
    if text.startswith("NOPERM"):
        return NotApplied(f"permission denied: {text}", "denied")
    if text.startswith("ERR "):
        return NotApplied(f"{text}{advice}", "misconfigured")
    return NotApplied(text)


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise NotApplied(f"the cluster describes its slots in a way not known here: {value!r}")
    return value


def _slot(value: object) -> int:
    slot = _number(value)
    if not 0 <= slot < SLOTS:
        raise NotApplied(f"the cluster says that it has a slot {slot}, of {SLOTS}")
    return slot


def _announced(master: object, replied: Address) -> Address:
    if not isinstance(master, list) or len(master) < 2:
        raise NotApplied(f"the cluster describes its nodes in a way not known here: {master!r}")
    host, port = master[0], _number(master[1])
    # An empty or missing host means: the one that you have asked.
    return Address(host.decode() if host else replied.host, port)
