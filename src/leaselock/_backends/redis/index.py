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
    from collections.abc import Iterable, Iterator, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.lock_reader import LockReader
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import Claim, LockState

    # The indexes of a server that are not read to the end, each with the position of its next page.
    Unread = Sequence[tuple[str, int]]

# How many commands are sent together, and how many locks one script looks at.
TOGETHER = 500
# Of more names than that, one command asks whether any of that many has a key.
ASKED_AT_ONCE = 100
# Every 64th release looks at up to 128 members that are older than 60 s.
TRIM_EVERY, TRIM_SIZE, TRIM_AGE = 64, 128, 60.0
# How many names a listing reads at once: to send more takes a server too long.
PAGE = 5000
# How many names one step of a repair removes or adds; and how many members it reads of each index,
# where it reads `TOGETHER` indexes.
STEP, STEP_OF_SLOT = 100, 10
# The most scripts with which a listing removes names: in a cluster, each is for one slot.
MOST_REPAIRED = 100
# A release or a listing is done before the index is repaired, so that may not take long: a replica
# refuses it each time, and so does a master that is being replaced.
REPAIR_WITHIN = 0.5
# A client that lists again looks at up to 5 pages of keys, once in a second.
WALK_PAGES, WALK_INTERVAL = 5, 1.0


class KeyPosition(NamedTuple):
    """Where a walk over the keys of all servers goes on."""

    masters: Sequence[Address]
    """The servers that are left, the current one first."""
    cursor: int = 0
    """The next page of its keys."""


class RepairPosition(NamedTuple):
    """Where the next step of a repair begins. It takes the first that is there: `idle` is removed,
    `found` added, `unread` read, and then one page of `keys`; behind the last page of a server the
    next server begins.
    """

    keys: KeyPosition
    unread: Unread
    """Of the current server."""
    idle: Sequence[str] = ()
    """Names to remove."""
    found: Sequence[str] = ()
    """Names to look at, and to add."""


class Page(NamedTuple):
    """Some members of an index, one after the other."""

    key: str
    """Of the index."""
    first: int
    """The position of the first one."""
    names: Sequence[str]
    """The names of the locks whose keys they are."""
    foreign: Sequence[bytes]
    """The members that are no keys of locks: another program has added them."""
    is_last: bool


class Indexed(NamedTuple):
    """What a listing found in the index."""

    used: set[str]
    """The names whose locks have keys."""
    idle: set[str]
    """The other names."""
    foreign: list[Page]
    """The pages with members that are no keys of locks."""


class ActiveIndex:
    """The index of the locks of one protocol, which *locks* reads; *kind* is the type of their
    keys: hash or string.
    """

    def __init__(self, shared: SharedState, kind: str, locks: LockReader) -> None:
        self.executor = shared.executor
        self.topology = shared.topology
        self.of = shared.index_of
        self.prefix = shared.settings.prefix
        self.kind = kind
        self.locks = locks
        self.now = shared.now
        # The number of releases until the next one that trims.
        self.releases = 0
        # How many of the oldest names are kept: the next release that trims begins behind them.
        # By index: a cluster has one for each slot.
        self.kept: dict[str, int] = {}
        # When this client last listed, and where the walk goes on; None to begin a new one.
        self.listed_at: float | None = None
        self.walk_position: KeyPosition | None = None

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
            state = await self.locks.state_of(name, until)
            return (state,) if state.in_use else ()
        allowed = until - self.now()
        found = Indexed(set(), set(), [])
        try:
            found = await self._list_index(pattern, allowed)
        except NotALock:
            walk = True  # another program has overwritten the index
        used = found.used
        until = self.now() + allowed
        walked = await self._walk(until) if walk else await self._walk_on(until)
        others = self._named(walked, pattern) - used
        states: list[LockState] = []
        missing: list[str] = []
        with explained(found):
            read = await self.locks.read_together(sorted(used | others), allowed)
        for name in sorted(used | others):
            with suppress(NotALock), explained(found):
                until = self.now() + allowed
                state = read[name] if name in read else await self.locks.state_of(name, until)
                if state.in_use:
                    states.append(state)
                    if name in others:
                        missing.append(name)
        await self._repair_listed(found, missing, min(until, self.now() + REPAIR_WITHIN))
        return tuple(states)

    def _named(self, found: Iterable[str], pattern: str) -> set[str]:
        """The names that match, of the locks with these keys."""
        named = {names.name_of(key, self.prefix) for key in found}
        return set(matching(filter(None, named), pattern))

    async def _list_index(self, pattern: str, allowed: float) -> Indexed:
        """What is in the indexes of all servers; each page may take the *allowed* seconds."""
        found = Indexed(set(), set(), [])
        masters = await self.topology.masters(self.executor.send, self.now() + allowed)
        # By one map: a slot that moves meanwhile is found by the redirection, and not left out.
        for address, unread in [(each, self._indexes_of(each)) for each in masters]:
            while unread:
                until = self.now() + allowed
                with explained(found):
                    unread = await self._list_pages(address, unread, pattern, found, until)
        return found

    async def _list_pages(
        self, address: Address, unread: Unread, pattern: str, found: Indexed, until: float
    ) -> Unread:
        """Add the next page of each of these indexes to *found*; return what is left to read."""
        size = max(STEP_OF_SLOT, PAGE // len(unread))
        # The newest first: a release that trims removes the oldest meanwhile, which would move
        # names that were not read yet to a page that was.
        pages = await self._read_pages(address, unread, size, until, "REV")
        listed = [matching(page.names, pattern) for page in pages]
        used, idle = await self._used_and_idle(address, listed, until)
        found.used.update(used)
        found.idle.update(idle)
        found.foreign.extend(page for page in pages if page.foreign)
        return [(page.key, page.first + size) for page in pages if not page.is_last]

    # --- pages of an index ----------------------------------------------------------------------

    def _indexes_of(self, address: Address) -> Unread:
        """All indexes of a server: in a cluster, that of each of its slots."""
        return [(names.index_of(slot, self.prefix), 0) for slot in self.topology.slots_of(address)]

    async def _read_pages(
        self, address: Address, unread: Unread, size: int, until: float, *order: str
    ) -> list[Page]:
        """Read the next page of each of these indexes of one server: up to *size* members."""
        reads: list[Command] = [
            ("ZRANGE", index, first, first + size - 1, *order) for index, first in unread
        ]
        replies = await self._ask(address, reads, until)
        return [
            self._page(index, first, members, size)
            for (index, first), members in zip(unread, replies, strict=True)
        ]

    def _page(self, index: str, first: int, members: Sequence[bytes], size: int) -> Page:
        """Tell the keys of locks from the other members. Of less than *size* members, none
        follow.
        """
        listed: list[str] = []
        foreign: list[bytes] = []
        for member in members:
            name = names.name_of(_text(member), self.prefix)
            if name and self._key(name).encode() == member:
                listed.append(name)
            else:
                foreign.append(member)
        return Page(index, first, listed, foreign, len(members) < size)

    async def _used_and_idle(
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

    async def _remove(self, page: Page, until: float) -> None:
        """Remove its members that are no keys of locks."""
        for start in range(0, len(page.foreign), TOGETHER):
            command: Command = ("ZREM", page.key, *page.foreign[start : start + TOGETHER])
            await self.executor.ask(page.key, (command,), until)

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
        position, self.walk_position = self.walk_position, None
        if position is None:
            position = KeyPosition(await self.topology.masters(self.executor.send, until))
        with suppress(NotApplied, Unreachable):
            # Where a user may not walk, or a server is away, the index is still listed.
            for _ in range(WALK_PAGES):
                position, keys = await self._next_keys(position, until)
                found |= keys
                if not position.cursor:
                    break
            self.walk_position = position if position.masters else None
        return found

    async def _next_keys(self, position: KeyPosition, until: float) -> tuple[KeyPosition, set[str]]:
        """The keys on the next page that may be those of locks, and where the walk goes on. At the
        start of a server, the cursor is 0.
        """
        masters, cursor = position
        cursor, keys = await page_on(
            self.executor, masters[0], self.prefix, self.kind, cursor, until
        )
        return KeyPosition(masters if cursor else masters[1:], cursor), keys

    # --- repair ---------------------------------------------------------------------------------

    async def _repair_listed(self, found: Indexed, missing: Iterable[str], until: float) -> None:
        """Remove what a listing found that is no active lock; add the *missing* ones."""
        with suppress(NotApplied, OutcomeUnknown, Unreachable):
            # What cannot be repaired now, or by this user, is found again.
            idle = islice(found.idle, MOST_REPAIRED * TOGETHER)
            await self._forget(idle, until, most=MOST_REPAIRED)
            for page in found.foreign[:MOST_REPAIRED]:
                await self._remove(page, until)
            await self._add(missing, until)

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
            return 0, self._repair_from(KeyPosition(masters))
        if position.idle:
            removed = await self._forget(position.idle[:STEP], until)
            return removed, position._replace(idle=position.idle[STEP:])
        if position.found:
            await self._add_active(position.found[:STEP], until)
            return 0, position._replace(found=position.found[STEP:])
        if not position.keys.masters:
            return 0, None
        if position.unread:
            return await self._repair_pages(position, until)
        keys, found = await self._next_keys(position.keys, until)
        following = position._replace(keys=keys) if keys.cursor else self._repair_from(keys)
        return 0, following._replace(found=sorted(self._named(found, "*")))

    def _repair_from(self, keys: KeyPosition) -> RepairPosition:
        """Where the repair of the next server begins: with its indexes."""
        return RepairPosition(keys, self._indexes_of(keys.masters[0]) if keys.masters else ())

    async def _repair_pages(
        self, position: RepairPosition, until: float
    ) -> tuple[int, RepairPosition]:
        """Remove the members that are no keys of locks from the next pages, and look for names to
        remove.
        """
        unread, later = position.unread[:TOGETHER], position.unread[TOGETHER:]
        size = STEP_OF_SLOT * TOGETHER // len(unread)
        try:
            pages = await self._read_pages(position.keys.masters[0], unread, size, until)
            listed = [page.names for page in pages]
            _, idle = await self._used_and_idle(position.keys.masters[0], listed, until)
            for page in pages:
                await self._remove(page, until)
        except NotALock:  # another program has overwritten the index
            return 0, position._replace(unread=later)
        # The next page begins behind the names that stay.
        unread = [
            (page.key, page.first + sum(name not in idle for name in page.names))
            for page in pages
            if not page.is_last
        ]
        removed = sum(len(page.foreign) for page in pages)
        return removed, position._replace(unread=[*unread, *later], idle=sorted(idle))

    async def _add_active(self, found: Sequence[str], until: float) -> None:
        for name in found:
            lock = self._key(name)
            index = self.of(lock)
            with suppress(NotALock):
                (score,) = await self.executor.ask(index, (("ZSCORE", index, lock),), until)
                if score is None and (await self.locks.state_of(name, until)).in_use:
                    await self._add((name,), until)

    # --- trimming after a release ---------------------------------------------------------------

    @property
    def is_nearly_due(self) -> bool:
        """Whether the index may have to be trimmed after the next release."""
        return self.releases <= 1

    def count_release(self, claim: Claim) -> bool:
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
            page = self._page(index, first, members, TRIM_SIZE)
            removed = await self._forget(page.names, until)
            await self._remove(page, until)
            if page.is_last:
                self.kept.pop(index, None)
            else:
                self.kept[index] = first + len(page.names) - removed


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
