"""The invariants on Redis at every step of a scenario, and at its end.

The judge reads the keys: the holder, its expiry, and the waiters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from verification.models.redis_data import Hash
from verification.simulation.judge import CALM_STALL, Judge, Violation

from leaselock._backends.redis.keys import PREFIX, holder_of, index_of, keys_of, wake_channel
from leaselock._backends.redis.scripted_backend import CONFIRM_WITHIN_MS
from leaselock._backends.redis.waiters import RECHECK_MS
from leaselock._core.client.hold import State
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from verification.models.redis_data import Data
    from verification.models.redis_server import Server

    from leaselock._core.client.hold import Hold

# In addition to the lease: CONFIRM_WITHIN for each waiter that may be frozen or disconnected, the
# periodic checks that follow, a server that is away or busy, and a clock that is set back.
STALL = (8 * CONFIRM_WITHIN_MS + RECHECK_MS) / 1000 + 20.0


class Keys(NamedTuple):
    """The keys of a lock."""

    data: Data
    changes: int
    holder: str
    end: float
    token: bytes
    waiters: tuple[str, ...]
    addresses: tuple[str, ...]


def check_listed(data: Data, name: str) -> None:
    """A lock that is held or waited for is in the index of active names."""
    keys = keys_of(name)
    listed: Any = data.values.get(index_of(None, PREFIX).encode(), ())
    now = data.micros() // 1000
    found = [key.encode() for key in (keys.lock, keys.queue) if key.encode() in data.values]
    if (
        any(data.ends.get(key, FOREVER) >= now for key in found)
        and keys.lock.encode() not in listed
    ):
        raise Violation("listing", f"{name!r} is in use, and not in the index")


def owner_in(lock: Any) -> bytes:
    """The owner whose record is in a hash."""
    return next((field for field in lock or () if b"about:" + field in lock), b"")


def read(server: Server, name: str) -> Keys:
    """Read the keys of a lock."""
    keys, data = keys_of(name), server.data
    lock, key = data.values.get(keys.lock.encode()), keys.lock.encode()
    if lock is not None and key not in data.ends:
        raise Violation("left behind", f"{name!r} is held without expiry")
    owner = lock if isinstance(lock, bytes) else owner_in(lock)
    holder = holder_of(owner.decode()) if owner else ""
    record: Any = data.values.get(keys.record.encode(), b"")
    if isinstance(lock, Hash):
        record = lock.get(b"about:" + owner, b"")
    queue: Any = data.values.get(keys.queue.encode())
    members = [member.decode().split("\n") for member in queue.in_order()] if queue else []
    waiters = tuple(holder_of(member[0]) for member in members)
    addresses = tuple(member[1] for member in members)
    token = record.partition(b"\n")[0]
    end = data.ends.get(key, FOREVER)
    return Keys(data, len(server.changes), holder, end, token, waiters, addresses)


class RedisJudge(Judge):
    """Looks at every step."""

    def __init__(self, scenario: Any, calm: bool, longest: float) -> None:
        super().__init__(scenario.simulator, scenario.model, calm, longest)
        self.scenario = scenario
        self.stall = STALL + longest
        # Locks that expired while a client waited; a late release of such a lock wakes no waiter.
        self.ran_out: set[str] = set()
        # The keys of each lock after their last change.
        self.seen: dict[str, Keys] = {}
        # The waiters of each lock, with their order of arrival.
        self.queues: dict[str, dict[str, int]] = {}
        self.first_seen: dict[str, int] = {}
        # The address of each claim that was seen in a queue.
        self.addresses: dict[str, str] = {}
        self.holders: dict[str, str] = {}
        self.granted: set[tuple[str, str, bytes]] = set()
        self.newest: dict[str, int] = {}

    def check(self) -> None:
        """After each step."""
        self.check_time()
        server = self._server()
        if self.is_unchanged((server.data, len(server.changes))):
            return
        self.record_given_up()
        valid_holders = self.valid_holders()
        for name in self.scenario.names:
            self._check_lock(name, valid_holders)

    def _check_order(self, hold: Hold) -> None:
        """A disconnected waiter loses its position, so the order is checked without faults only."""
        if self.calm:
            holder, queue = hold.claim.id, self.queues.get(hold.claim.name, {})
            place = queue.get(holder, self.tickets)
            if any(earlier < place for earlier in queue.values()):
                raise Violation("order", f"{holder} overtook an earlier waiter")

    def _server(self) -> Server:
        server: Server = self.scenario.net.hosts[self.scenario.master].server
        return server

    def _keys(self, name: str) -> Keys:
        """The keys of a lock."""
        server, seen = self._server(), self.seen.get(name)
        if seen is None or seen.data is not server.data or seen.changes != len(server.changes):
            seen = self.seen[name] = read(server, name)
        return seen

    def _ended(self, keys: Keys) -> bool:
        return keys.end < keys.data.micros() // 1000

    def _check_lock(self, name: str, valid_holders: dict[str, str]) -> None:
        """The keys agree with the clients."""
        before, keys = self.seen.get(name), self._keys(name)
        holder = "" if self._ended(keys) else keys.holder
        if holder and not self.shows:
            self._check_holder(name, holder)
        if before is not keys:
            check_listed(keys.data, name)
        if before is not keys or self.holders[name] != holder:
            self._check_change(name, holder, keys)
        self._check_stall(name, holder, keys, valid_holders)

    def _check_change(self, name: str, holder: str, keys: Keys) -> None:
        self._check_token(name, holder, keys.token)
        queue = self.queues.get(name, {})
        if holder in queue and self.holders.get(name) != holder and not self.shows:
            self._check_handed(name, holder)
        self.holders[name] = holder
        self.queues[name] = {
            claim: self._since(claim) for claim in (*keys.waiters, holder) if claim
        }
        self.addresses |= zip(keys.waiters, keys.addresses, strict=True)

    def _since(self, holder: str) -> int:
        """The order of arrival; a waiter that is recalled leaves the queue for a moment."""
        self.tickets += 1
        return self.first_seen.setdefault(holder, self.tickets)

    def _check_token(self, name: str, holder: str, word: bytes) -> None:
        """The token of a new grant is greater than all before, even after a loss of data."""
        grant = (name, holder, word)
        if not holder or not word.isdigit() or grant in self.granted:
            return
        self.granted.add(grant)
        if int(word) <= self.newest.get(name, 0):
            raise Violation(
                "token", f"a new grant of {name!r} has token {int(word)}, which does not increase"
            )
        self.newest[name] = int(word)

    def _check_handed(self, name: str, holder: str) -> None:
        """A waiter without a subscriber is not handed the lock, unless it requests it itself."""
        server = self._server()
        wake = wake_channel(keys_of(name).lock)
        asks = self.scenario.net.asker == holder.partition(".")[0]
        if not asks and not server.channels.get(f"{wake}{self.addresses[holder]}".encode()):
            raise Violation("progress", f"{name!r} was handed to {holder}, which does not listen")

    def _check_holder(self, name: str, holder: str) -> None:
        if self.is_cooling(holder):
            return
        hold = self.is_valid.get(holder)
        if hold is not None and hold.state is State.ENDED:
            raise Violation("left behind", f"{holder} was released, and holds {name!r} again")
        if hold is None and self._has_no_owner(holder):
            raise Violation("left behind", f"{holder} holds {name!r} without an owner")

    def _has_no_owner(self, holder: str) -> bool:
        # The identifiers of clients begin with the name of their machine.
        name = holder.partition(".")[0]
        machine = self.machines[name]
        if not machine.alive:
            return False
        registry = self.registry[name]
        return holder not in registry.table and not self._gave_up(holder)

    def _gave_up(self, holder: str) -> bool:
        """Return whether the client may have given up on the claim: releases are repeated for a
        limited time, and old data may contain old waiters.
        """
        machine = self.machines[holder.partition(".")[0]]
        return self.shows or self.given_up_by.get(holder, FOREVER) <= machine.now()

    def _check_stall(
        self, name: str, holder: str, keys: Keys, valid_holders: dict[str, str]
    ) -> None:
        if name in valid_holders or not any(self._wants(waiter) for waiter in keys.waiters):
            self.idle_since.pop(name, None)
            self.ran_out.discard(name)
            return
        since, of = self.idle_since.get(name, (0.0, None))
        if of != holder:
            since = self.simulator.time
            self.idle_since[name] = (since, holder)
        # An extension may be in time for the server, and too late for the client.
        hold = self.is_valid.get(holder)
        lost = hold is not None and hold.state is State.LOST
        # The waiters notice the end of a lease when they ask again.
        if keys.holder and self._ended(keys):
            self.ran_out.add(name)
        quiet = RECHECK_MS / 1000 if name in self.ran_out else 0.0
        limit = quiet + CALM_STALL if self.calm and not lost else self.stall
        if self.simulator.time - since > limit:
            raise Violation("progress", f"{name!r} was idle for {limit} s with a waiter")

    def _wants(self, holder: str) -> bool:
        machine = self.machines[holder.partition(".")[0]]
        able = machine.alive and machine.frozen_until <= self.simulator.time
        return able and not self._gave_up(holder)

    def at_rest(self) -> None:
        """All waiters were served, and nothing is left."""
        self.all_were_served()
        for name in self.scenario.names:
            keys = self._keys(name)
            if keys.holder and not self._ended(keys):
                raise Violation("left behind", f"{name!r} is held without an owner: {keys.holder}")
            if any(map(self._wants, keys.waiters)):
                raise Violation("left behind", f"a waiter is left in the queue of {name!r}")
        self.all_was_released()
