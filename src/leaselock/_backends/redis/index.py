"""The index of active names: which locks of a store to list, without a look at its other keys.

The scripts add the key of a lock when they grant the free lock, and when they queue a claim. A
release leaves it. A client that finds the lock neither held nor waited for removes it, by a
script that looks again. So a lock of ours that exists is in the index. Locks of other programs are
found by a walk over all keys: at once, or a part of it each time that a client lists again.
"""

from __future__ import annotations

from binascii import crc_hqx
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.redis import keys as names
from leaselock._backends.redis.messages import NotALock, Unreachable
from leaselock._backends.redis.scan import literal, locks_on, page_on
from leaselock._backends.redis.scripts import FORGET_IDLE
from leaselock._core.contract.backend import matching
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import Claim, LockState

# How many commands are sent together, and how many locks one script looks at.
TOGETHER = 500
# Of more names than that, one command asks whether any of that many has a key.
ASKED_AT_ONCE = 100
# Every 64th release looks at up to 128 members that are older than 60 s.
TRIM_EVERY, TRIM_SIZE, TRIM_AGE = 64, 128, 60.0
# How many names a listing reads at once: to send more takes a server too long.
PAGE = 5000
# How many locks it reads at once: a lock may have thousands of waiters.
READ_AT_ONCE = 50
# How many names one step of a repair removes or adds; and how many it reads for each slot, where it
# reads `TOGETHER` slots.
STEP, STEP_OF_SLOT = 100, 10
# The most scripts with which a listing removes names: in a cluster, each is for one slot.
MOST_REPAIRED = 100
# A release or a listing is done before the index is repaired, so that may not take long: a replica
# refuses it each time, and so does a master that is being replaced.
REPAIR_WITHIN = 0.5
# A client that lists again looks at up to 5 pages of keys, once in a second.
WALK_PAGES, WALK_INTERVAL = 5, 1.0


class RepairPosition(NamedTuple):
    """Where the next step of a repair begins."""

    masters: Sequence[Address]
    """The servers that are left, the current one first."""
    slots: Sequence[tuple[int | None, int]]
    """The slots of the current one whose indexes are not read to the end, each with the position of
    the next name.
    """
    cursor: int = 0
    """The next page of its keys."""
    idle: Sequence[str] = ()
    """Names to remove."""
    found: Sequence[str] = ()
    """Names to look at, and to add."""


class Indexed(NamedTuple):
    """What a listing found in the index."""

    used: set[str]
    """The names whose locks have keys."""
    idle: set[str]
    """The other names."""
    foreign: list[tuple[int | None, Sequence[bytes]]]
    """The members that are no keys of locks, by slot."""


class Inspection(NamedTuple):
    """How the states of several locks are read with one packet."""

    command: Callable[[str], Command]
    """The command that reads the lock with this name."""
    state: Callable[[str, Any], LockState]
    """The state of that lock, from the reply."""


class ActiveIndex:
    """The index of the locks of one protocol; *kind* is the type of their keys: hash or string.
    *state_of* reads the state of one lock, and *inspection* those of several.
    """

    def __init__(
        self,
        shared: SharedState,
        kind: str,
        state_of: Callable[[str, float], Awaitable[LockState]],
        inspection: Inspection | None = None,
    ) -> None:
        self.executor = shared.executor
        self.topology = shared.topology
        self.of = shared.index_of
        self.prefix = shared.settings.prefix
        self.kind = kind
        self.state_of = state_of
        self.inspection = inspection
        self.now = shared.now
        # The number of releases until the next one that trims.
        self.releases = 0
        # How many of the oldest names are kept: the next release that trims begins behind them.
        # By index: a cluster has one for each slot.
        self.kept: dict[str, int] = {}
        # The part of the walk that is left: where to go on, and the servers that follow.
        self.listed_at: float | None = None
        self.cursor = 0
        self.ahead: list[Address] = []

    # --- listing --------------------------------------------------------------------------------

    async def matching(
        self, pattern: str, until: float, *, walk: bool = False
    ) -> tuple[LockState, ...]:
        """The locks whose names match that are held or waited for: those of the index; with *walk*
        all. A key that is not a lock does not hide the others.

        Each page of the index and each packet that reads locks has as much time as this request,
        because their number is not limited.
        """
        name = literal(pattern)
        if name is not None:
            state = await self.state_of(name, until)
            return (state,) if state.in_use else ()
        allowed = until - self.now()
        found = Indexed(set(), set(), [])
        try:
            found = await self._indexed(pattern, allowed)
        except NotALock:
            walk = True  # another program has overwritten the index
        used = found.used
        until = self.now() + allowed
        walked = await self._walk(until) if walk else await self._walk_on(until)
        others = self._named(walked, pattern) - used
        states: list[LockState] = []
        missing: list[str] = []
        with explained(found):
            read = await self._read_together(sorted(used | others), allowed)
        for name in sorted(used | others):
            with suppress(NotALock), explained(found):
                until = self.now() + allowed
                state = read[name] if name in read else await self.state_of(name, until)
                if state.in_use:
                    states.append(state)
                    if name in others:
                        missing.append(name)
        until = min(until, self.now() + REPAIR_WITHIN)
        with suppress(NotApplied, OutcomeUnknown, Unreachable):
            # What cannot be repaired now, or by this user, is found again.
            idle = islice(found.idle, MOST_REPAIRED * TOGETHER)
            await self._forget(idle, until, most=MOST_REPAIRED)
            for slot, members in found.foreign[:MOST_REPAIRED]:
                await self._remove(slot, members, until)
            await self._add(missing, until)
        return tuple(states)

    async def _read_together(self, listed: Iterable[str], allowed: float) -> dict[str, LockState]:
        """The states of these locks, each packet of them read in one round trip. The locks that
        are left out have to be read one by one: another server has them meanwhile, they cannot be
        read, or the server has to be sent the text of the script first.
        """
        read: dict[str, LockState] = {}
        if self.inspection is None:
            return read
        packets: dict[Address, list[list[str]]] = {}
        for name in listed:
            address = self.topology.known(self._key(name))
            if address is not None:
                of_server = packets.setdefault(address, [[]])
                if len(of_server[-1]) == READ_AT_ONCE:
                    of_server.append([])
                of_server[-1].append(name)
        for address, of_server in packets.items():
            # The first one sends the text of the script, where the server does not have it.
            first = of_server[0].pop(0)
            with suppress(NotALock):
                read[first] = await self.state_of(first, self.now() + allowed)
            for packet in of_server:
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

    def _named(self, found: Iterable[str], pattern: str) -> set[str]:
        """The names that match, of the locks with these keys."""
        named = {names.name_of(key, self.prefix) for key in found}
        return set(matching(filter(None, named), pattern))

    async def _indexed(self, pattern: str, allowed: float) -> Indexed:
        """What is in the indexes of all servers; each page may take the *allowed* seconds."""
        found = Indexed(set(), set(), [])
        masters = await self.topology.masters(self.executor.send, self.now() + allowed)
        # By one map: a slot that moves meanwhile is found by the redirection, and not left out.
        for address, slots in [(each, self.topology.slots_of(each)) for each in masters]:
            position = dict.fromkeys(slots, 0)
            while position:
                until = self.now() + allowed
                with explained(found):
                    position = await self._indexed_on(address, position, pattern, found, until)
        return found

    async def _indexed_on(
        self,
        address: Address,
        position: Mapping[int | None, int],
        pattern: str,
        found: Indexed,
        until: float,
    ) -> dict[int | None, int]:
        """Read the next page of each of these slots of one server; return the slots that have more,
        each with its position.
        """
        size = max(STEP_OF_SLOT, PAGE // len(position))
        # The newest first: a release that trims removes the oldest meanwhile, which would move
        # names that were not read yet to a page that was.
        reads = [
            ("ZRANGE", names.index_of(slot, self.prefix), first, first + size - 1, "REV")
            for slot, first in position.items()
        ]
        pages = await self._ask(address, reads, until)
        named, foreign = self._read(pages)
        listed = [matching(page, pattern) for page in named]
        used, idle = await self._looked_at(address, listed, until)
        found.used.update(used)
        found.idle.update(idle)
        found.foreign.extend(each for each in zip(position, foreign, strict=True) if each[1])
        return {
            slot: first + len(page)
            for (slot, first), page in zip(position.items(), pages, strict=True)
            if len(page) >= size
        }

    async def _looked_at(
        self, address: Address, listed: Sequence[Sequence[str]], until: float
    ) -> tuple[set[str], set[str]]:
        """The names of these pages whose lock has keys, and the others."""
        alone = [name for page in listed for name in page]
        used: set[str] = set()
        idle: set[str] = set()
        if len(alone) > ASKED_AT_ONCE:
            # Those of one page are in one slot.
            groups = [
                page[start : start + ASKED_AT_ONCE]
                for page in listed
                for start in range(0, len(page), ASKED_AT_ONCE)
            ]
            looks: list[Command] = [("EXISTS", *self._all_keys(group)) for group in groups]
            counts = await self._ask(address, looks, until)
            alone = []
            for group, count in zip(groups, counts, strict=True):
                (alone.extend if count else idle.update)(group)
        looks = [("EXISTS", *self._keys(name)) for name in alone]
        counts = await self._ask(address, looks, until)
        for name, count in zip(alone, counts, strict=True):
            (used if count else idle).add(name)
        return used, idle

    def _read(self, pages: Iterable[Sequence[bytes]]) -> tuple[list[list[str]], list[list[bytes]]]:
        """The names of the locks with these keys, for each page; and the members that are no keys
        of locks: another program has added them.
        """
        named: list[list[str]] = []
        foreign: list[list[bytes]] = []
        for page in pages:
            names_of_page: list[str] = []
            others: list[bytes] = []
            for member in page:
                name = names.name_of(_text(member), self.prefix)
                if name and self._key(name).encode() == member:
                    names_of_page.append(name)
                else:
                    others.append(member)
            named.append(names_of_page)
            foreign.append(others)
        return named, foreign

    async def _remove(self, slot: int | None, members: Sequence[bytes], until: float) -> None:
        index = names.index_of(slot, self.prefix)
        for start in range(0, len(members), TOGETHER):
            command: Command = ("ZREM", index, *members[start : start + TOGETHER])
            await self.executor.ask(index, (command,), until)

    async def _ask(self, address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        """The replies of one server; of the one that has the key meanwhile, if that is another."""
        replies: list[Any] = []
        for start in range(0, len(commands), TOGETHER):
            part = commands[start : start + TOGETHER]
            for command, reply in zip(
                part, await self.executor.send(address, part, until), strict=True
            ):
                if isinstance(reply, Exception):
                    (reply,) = await self.executor.ask(str(command[1]), (command,), until)
                replies.append(reply)
        return replies

    def _key(self, name: str) -> str:
        """The key of the lock, which is the member of the index."""
        return names.key_of(name, self.prefix, self.topology.divided)

    def _keys(self, name: str) -> tuple[str, str, str]:
        """The keys of which one exists while the lock is held or waited for."""
        lock = self._key(name)
        return lock, names.our("queue", lock), names.our("handoff", lock)

    def _all_keys(self, listed: Iterable[str]) -> list[str]:
        return [key for name in listed for key in self._keys(name)]

    # --- the locks of other programs ------------------------------------------------------------

    async def _walk(self, until: float) -> set[str]:
        """The keys that may be those of locks, on all servers."""
        found: set[str] = set()
        for address in await self.topology.masters(self.executor.send, until):
            found |= await locks_on(self.executor, address, self.prefix, self.kind, until)
        return found

    async def _walk_on(self, until: float) -> set[str]:
        """The same for a part of the keys, if this client lists again."""
        now, before = self.now(), self.listed_at
        if before is not None and now < before + WALK_INTERVAL:
            return set()
        self.listed_at = now
        found: set[str] = set()
        if before is None:
            return found
        ahead, self.ahead = self.ahead, []
        if not ahead:
            ahead = list(await self.topology.masters(self.executor.send, until))
            self.cursor = 0
        with suppress(NotApplied, Unreachable):
            # Where a user may not walk, or a server is away, the index is still listed.
            for _ in range(WALK_PAGES):
                self.cursor, keys = await page_on(
                    self.executor, ahead[0], self.prefix, self.kind, self.cursor, until
                )
                found |= keys
                if not self.cursor:
                    ahead = ahead[1:]
                    break
            self.ahead = ahead
        return found

    # --- repair ---------------------------------------------------------------------------------

    async def _add(self, missing: Iterable[str], until: float) -> None:
        for name in missing:
            lock = self._key(name)
            command = ("ZADD", self.of(lock), "NX", 0, lock)
            await self.executor.ask(lock, (command,), until)

    async def _forget(self, idle: Iterable[str], until: float, most: int | None = None) -> int:
        """Remove names whose locks are idle, with at most *most* scripts; return how many."""
        forgotten = 0
        for index, part in islice(self._by_index(idle), most):
            command = FORGET_IDLE.command((index, *self._all_keys(part)), ())
            forgotten += await self.executor.evaluate(FORGET_IDLE, command, until)
        return forgotten

    def _by_index(self, idle: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """Names for one script each, with the index that they are in."""
        indexes: dict[str, list[str]] = {}
        for name in idle:
            index = self.of(self._key(name))
            part = indexes.setdefault(index, [])
            part.append(name)
            if len(part) == TOGETHER:
                yield index, indexes.pop(index)
        yield from indexes.items()

    async def repair(
        self, position: RepairPosition | None, until: float
    ) -> tuple[int, RepairPosition | None]:
        """One step of the repair: names of idle locks are removed, and locks that are not idle
        added. Returns how many were removed, and where the next step begins: None after the last.
        """
        if position is None:
            masters = await self.topology.masters(self.executor.send, until)
            return 0, RepairPosition(masters, self._slots_of(masters))
        masters, slots, cursor, idle, found = position
        if idle:
            removed = await self._forget(idle[:STEP], until)
            return removed, position._replace(idle=idle[STEP:])
        if found:
            await self._add_active(found[:STEP], until)
            return 0, position._replace(found=found[STEP:])
        if not masters:
            return 0, None
        if slots:
            removed, unused = 0, set[str]()
            unread: list[tuple[int | None, int]] = []
            with suppress(NotALock):  # another program has overwritten the index
                removed, unused, unread = await self._page(masters[0], slots[:TOGETHER], until)
            unread += slots[TOGETHER:]
            return removed, position._replace(slots=unread, idle=sorted(unused))
        cursor, keys = await page_on(
            self.executor, masters[0], self.prefix, self.kind, cursor, until
        )
        found = sorted(self._named(keys, "*"))
        if cursor:
            return 0, position._replace(cursor=cursor, found=found)
        masters = masters[1:]
        return 0, RepairPosition(masters, self._slots_of(masters), 0, (), found)

    def _slots_of(self, masters: Sequence[Address]) -> Sequence[tuple[int | None, int]]:
        return [(slot, 0) for slot in self.topology.slots_of(masters[0])] if masters else ()

    async def _page(
        self, address: Address, slots: Sequence[tuple[int | None, int]], until: float
    ) -> tuple[int, set[str], list[tuple[int | None, int]]]:
        """How many members of the next ones of these slots were removed, since they are no keys of
        locks; the idle names; and the slots that have more, with the positions of those once the
        idle ones are removed.
        """
        size = STEP_OF_SLOT * TOGETHER // len(slots)
        reads = [
            ("ZRANGE", names.index_of(slot, self.prefix), first, first + size - 1)
            for slot, first in slots
        ]
        pages = await self._ask(address, reads, until)
        named, foreign = self._read(pages)
        _, idle = await self._looked_at(address, named, until)
        for (slot, _), members in zip(slots, foreign, strict=True):
            await self._remove(slot, members, until)
        removed = {self._key(name).encode() for name in idle}
        removed.update(*foreign)
        unread = [
            (slot, first + sum(member not in removed for member in page))
            for (slot, first), page in zip(slots, pages, strict=True)
            if len(page) == size
        ]
        return sum(map(len, foreign)), idle, unread

    async def _add_active(self, found: Sequence[str], until: float) -> None:
        for name in found:
            lock = self._key(name)
            index = self.of(lock)
            with suppress(NotALock):
                (score,) = await self.executor.ask(index, (("ZSCORE", index, lock),), until)
                if score is None and (await self.state_of(name, until)).in_use:
                    await self._add((name,), until)

    @property
    def is_nearly_due(self) -> bool:
        """Whether the index may have to be trimmed after the next release."""
        return self.releases <= 1

    def is_due(self, claim: Claim) -> bool:
        """Whether the index is to be trimmed after the release of this claim."""
        if not self.releases:
            # Of many processes that release once each, one in TRIM_EVERY trims.
            self.releases = 1 + crc_hqx(claim.client.encode(), 0) % TRIM_EVERY
        self.releases -= 1
        if self.releases:
            return False
        self.releases = TRIM_EVERY
        return True

    async def trim(self, claim: Claim, until: float) -> None:
        """Look at the oldest names in the index of the claim's lock."""
        index = self.of(self._key(claim.name))
        before = round((claim.since - TRIM_AGE) * 1e6)
        first = self.kept.get(index, 0)
        oldest = ("ZRANGE", index, "-inf", before, "BYSCORE", "LIMIT", first, TRIM_SIZE)
        until = min(until, self.now() + REPAIR_WITHIN)
        with suppress(NotApplied, OutcomeUnknown, Unreachable):
            # The release has ended. Another one will trim.
            (members,) = await self.executor.ask(index, (oldest,), until)
            (found,), (foreign,) = self._read([members])
            removed = await self._forget(found, until)
            if foreign:
                await self.executor.ask(index, (("ZREM", index, *foreign),), until)
            kept = len(members) - len(foreign) - removed
            if len(members) == TRIM_SIZE:
                self.kept[index] = first + kept
            else:
                self.kept.pop(index, None)


@contextmanager
def explained(found: Indexed) -> Iterator[None]:
    """Add to an error that the index is slow to read if it has many names of idle locks."""
    try:
        yield
    except (NotApplied, OutcomeUnknown, Unreachable) as error:
        if isinstance(error, NotALock) or len(found.idle) < PAGE:
            raise
        raise type(error)(
            f"{error}: the index of active names has more than {len(found.idle)} names of idle "
            "locks, which take long to read: `leaselock gc` removes them",
            *([error.reason] if isinstance(error, StoreError) else ()),
        ) from error


def _text(member: bytes) -> str:
    return member.decode("utf-8", "replace")
