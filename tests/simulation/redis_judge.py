"""What must be true of Redis at every step of a story, and at its end.

The judge looks at the keys themselves: who holds by them, whether that will end, who waits there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.judge import CALM_STALL, Judge, Violation

from leaselock.backends.redis.keys import holder_of, keys_of, wake_channel
from leaselock.backends.redis.listener import RECHECK_MS
from leaselock.backends.redis.scripted_lock import CONFIRM_WITHIN_MS
from leaselock.core.effects import FOREVER
from leaselock.core.hold import State

if TYPE_CHECKING:
    from tests.models.redis_data import Data
    from tests.models.redis_server import Server

    from leaselock.core.hold import Hold

# Beside the lease: a claim time for each waiter that may be frozen or whose link is dead without a
# word, the looks that follow, a server that is away or busy, and a clock that is set back.
STALL = (8 * CONFIRM_WITHIN_MS + RECHECK_MS) / 1000 + 20.0


class Keys(NamedTuple):
    """What the keys of a lock say."""

    data: Data
    changes: int
    holder: str
    end: float
    token: bytes
    waiters: tuple[str, ...]


def read(server: Server, name: str) -> Keys:
    """As they are now."""
    keys, data = keys_of(name, False), server.data
    lock, key = data.values.get(keys.lock.encode()), keys.lock.encode()
    if lock is not None and key not in data.ends:
        raise Violation(f"{name!r} is held without an end")
    owner = lock if isinstance(lock, bytes) else next(iter(lock or (b"",)))
    holder = holder_of(owner.decode()) if owner else ""
    record: Any = data.values.get(keys.record.encode(), b"")
    queue: Any = data.values.get(keys.queue.encode())
    waiters = [owner_in(member) for member in queue.in_order()] if queue else ()
    token = record.partition(b"\n")[0]
    end = data.ends.get(key, FOREVER)
    return Keys(data, len(server.changes), holder, end, token, tuple(waiters))


def owner_in(member: bytes) -> str:
    """Who stands in the queue."""
    return holder_of(member.decode().partition("\n")[0])


class RedisJudge(Judge):
    """Looks at every step."""

    def __init__(self, story: Any, calm: bool, longest: float) -> None:
        super().__init__(story.world, story.model, calm, longest)
        self.story = story
        self.stall = STALL + longest
        # Locks that ran out while somebody waited; a late release of such a one wakes nobody.
        self.ran_out: set[str] = set()
        # What the keys of each lock said, when they were last written.
        self.seen: dict[str, Keys] = {}
        # Who waits for which lock, and when that was seen first.
        self.lines: dict[str, dict[str, int]] = {}
        self.holders: dict[str, str] = {}
        self.granted: set[tuple[str, str, bytes]] = set()
        self.newest: dict[str, int] = {}

    def check(self) -> None:
        """After each step."""
        self.check_time()
        server = self._server()
        if self.looked_at((server.data, len(server.changes))):
            return
        self.remember_orphans()
        believers = self.believers()
        for name in self.story.names:
            self._check_lock(name, believers)

    def _check_order(self, hold: Hold) -> None:
        """Who was cut off loses its place; so the order is checked where nothing goes wrong."""
        if self.calm:
            holder, line = self.in_store(hold), self.lines.get(hold.claim.name, {})
            place = line.get(holder, self.tickets)
            if any(earlier < place for earlier in line.values()):
                raise Violation(f"{holder} overtook somebody who came before")

    def _server(self) -> Server:
        server: Server = self.story.net.hosts[self.story.master].server
        return server

    def _keys(self, name: str) -> Keys:
        """What the keys of a lock say."""
        server, seen = self._server(), self.seen.get(name)
        if seen is None or seen.data is not server.data or seen.changes != len(server.changes):
            seen = self.seen[name] = read(server, name)
        return seen

    def _ended(self, keys: Keys) -> bool:
        return keys.end < keys.data.micros() // 1000

    def _check_lock(self, name: str, believers: dict[str, str]) -> None:
        """What the keys say is what somebody wants."""
        before, keys = self.seen.get(name), self._keys(name)
        holder = "" if self._ended(keys) else keys.holder
        if holder and not self.shows:
            self._check_holder(name, holder)
        if before is not keys or self.holders[name] != holder:
            self._check_change(name, holder, keys)
        self._check_stall(name, holder, keys, believers)

    def _check_change(self, name: str, holder: str, keys: Keys) -> None:
        self._check_token(name, holder, keys.token)
        line = self.lines.get(name, {})
        if holder in line and self.holders.get(name) != holder and not self.shows:
            self._check_handed(name, holder)
        self.holders[name] = holder
        self.lines[name] = {who: self._since(line, who) for who in (*keys.waiters, holder) if who}

    def _since(self, line: dict[str, int], holder: str) -> int:
        self.tickets += 1
        return line.get(holder, self.tickets)

    def _check_token(self, name: str, holder: str, word: bytes) -> None:
        """Whatever was lost: a new grant's token is above all before, so that a fence knows."""
        grant = (name, holder, word)
        if not holder or not word.isdigit() or grant in self.granted:
            return
        self.granted.add(grant)
        if int(word) <= self.newest.get(name, 0):
            raise Violation(f"a new grant of {name!r} has token {int(word)}, which does not rise")
        self.newest[name] = int(word)

    def _check_handed(self, name: str, holder: str) -> None:
        """A waiter whose channel nobody listens to is passed over, unless it asks itself."""
        server = self._server()
        wake = wake_channel(keys_of(name, False).lock)
        addresses = (holder, holder.partition(":")[0])
        asks = self.story.net.asker == holder.partition(".")[0]
        if not asks and not any(
            server.channels.get(f"{wake}{address}".encode()) for address in addresses
        ):
            raise Violation(f"{name!r} was handed to {holder}, which does not listen")

    def _check_holder(self, name: str, holder: str) -> None:
        if self.shared(holder):
            return
        hold = self.is_valid.get(holder)
        if hold is not None and hold.state is State.FREE:
            raise Violation(f"{holder} was released, and holds {name!r} again")
        if hold is None and self._is_nobody(holder):
            raise Violation(f"{holder} holds {name!r} for nobody")

    def _is_nobody(self, holder: str) -> bool:
        # A machine names its clients after itself.
        name = holder.partition(".")[0]
        machine = self.machines[name]
        if not machine.alive:
            return False
        registry = self.registry[name]
        gone = not registry.in_flight.active and holder not in registry.pending_releases
        return gone and not self._gave_up(holder)

    def _gave_up(self, holder: str) -> bool:
        """Nobody tries for ever to give back what ends with its lease, or is passed over. And data
        that is old has old waiters.
        """
        machine = self.machines[holder.partition(".")[0]]
        return self.shows or self.given_up_by.get(holder, FOREVER) <= machine.now()

    def _check_stall(self, name: str, holder: str, keys: Keys, believers: dict[str, str]) -> None:
        if name in believers or not any(self._wants(waiter) for waiter in keys.waiters):
            self.idle_since.pop(name, None)
            self.ran_out.discard(name)
            return
        since, of = self.idle_since.get(name, (0.0, None))
        if of != holder:
            since = self.world.time
            self.idle_since[name] = (since, holder)
        # An extension may be in time for the server, and too late for who asked for it.
        hold = self.hold_of(holder)
        lost = hold is not None and hold.state is State.LOST
        # That a lease has run out, its waiters learn when they look.
        if keys.holder and self._ended(keys):
            self.ran_out.add(name)
        quiet = RECHECK_MS / 1000 if name in self.ran_out else 0.0
        limit = quiet + CALM_STALL if self.calm and not lost else self.stall
        if self.world.time - since > limit:
            raise Violation(f"{name!r} was idle for {limit} s while somebody waited")

    def _wants(self, holder: str) -> bool:
        machine = self.machines[holder.partition(".")[0]]
        able = machine.alive and machine.frozen_until <= self.world.time
        return able and not self._gave_up(holder)

    def at_rest(self) -> None:
        """Everybody was served, and nothing is left."""
        self.all_were_served()
        for name in self.story.names:
            keys = self._keys(name)
            if keys.holder and not self._ended(keys):
                raise Violation(f"{name!r} is held by nobody: {keys.holder}")
            if any(map(self._wants, keys.waiters)):
                raise Violation(f"somebody is left in the queue of {name!r}")
        self.all_was_given_back()
