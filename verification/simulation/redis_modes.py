"""Scenarios with readers, writers, updates and permits on Redis, with the production scripts.

The judge reads the keys, and has a table of compatible modes of its own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from verification.models.redis_data import Hash, Sorted
from verification.simulation.judge import CALM_STALL, Violation
from verification.simulation.modes import (
    LIMIT,
    SEMAPHORE,
    WAITING,
    ManyHolds,
    ModesPlay,
    PersistentUser,
    check_numbers,
    conflict,
)
from verification.simulation.redis import RedisScenario
from verification.simulation.redis_judge import STALL, check_listed

from leaselock._backends.redis.keys import keys_of
from leaselock._backends.redis.records import held_of, waiter_of
from leaselock._backends.redis.waiters import RECHECK_MS
from leaselock._core.client.hold import State
from leaselock._core.contract.backend import ALL_MODES
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    from verification.models.redis_server import Server
    from verification.simulation.simulator import Machine

    from leaselock._backends.redis.backend import RedisBackend
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Claim, HoldRecord

# A stopped writer keeps readers out until all waiters must show that they live.
KEPT_OUT = 6 * RECHECK_MS / 1000
QUIET = RECHECK_MS / 1000


class Keys(NamedTuple):
    """The holds of a lock that have not ended, and its waiters."""

    holds: tuple[HoldRecord, ...]
    queue: tuple[Claim, ...]
    ended: bool
    """A hold has ended that is still on record."""


def read(server: Server, name: str) -> Keys:
    """Read the keys of a lock."""
    keys, data = keys_of(name), server.data
    key, now = keys.lock.encode(), data.micros() // 1000
    fields = data.values.get(key) or Hash()
    assert isinstance(fields, Hash)
    if fields and key not in data.ends:
        raise Violation("left behind", f"{name!r} is held without expiry")
    holds, ended = [], False
    for field, value in fields.items():
        if not field.startswith(b"about:"):
            continue
        owner = field.removeprefix(b"about:")
        hold = held_of(owner, value, 0)
        if hold is None or owner not in fields:
            raise Violation("left behind", f"{name!r} has a record without a hold")
        end = data.ends[key]
        if fields[b"mode"] != b"exclusive":
            end = int(fields[owner].split()[0])
            if end > data.ends[key]:
                raise Violation("left behind", f"{name!r} expires before a hold ends")
        if end < now:
            ended = True
        else:
            holds.append(hold)
    queue = data.values.get(keys.queue.encode()) or Sorted()
    assert isinstance(queue, Sorted)
    found = (waiter_of(name, member) for member in queue.in_order())
    waiters = tuple(waiter for waiter in found if waiter is not None)
    return Keys(tuple(holds), waiters, ended)


class RedisModesJudge(ManyHolds):
    """Checks many holds of one lock, by its keys."""

    scenario: RedisScenario

    def begin(self) -> None:
        """Start with nothing seen."""
        super().begin()
        self.upgrading: dict[str, set[str]] = defaultdict(set)
        self.late: dict[tuple[str, str], float] = {}
        # The holds that the store had at some time.
        self.known: set[str] = set()
        # The waiters of each lock before the last change, with their order of arrival.
        self.queues: dict[str, dict[str, Claim]] = {}
        self.arrivals: dict[str, int] = {}
        # Locks with a hold that has ended by itself.
        self.ran_out: set[str] = set()

    def check(self) -> None:
        """After each step."""
        self.check_time()
        server = self._server()
        if self.is_unchanged((server.data, len(server.changes))):
            return
        self.record_given_up()
        keys = {name: read(server, name) for name in self.scenario.names}
        for name, found in keys.items():
            check_listed(server.data, name)
            self._record_queue(name, found)
        self.valid_holders()
        for name, found in keys.items():
            self._check_keys(name, found)

    def _server(self) -> Server:
        server: Server = self.scenario.net.hosts[self.scenario.master].server
        return server

    def _record_queue(self, name: str, keys: Keys) -> None:
        """A claim arrives once, although a recalled waiter leaves the queue for a moment."""
        for claim_id in [hold.id for hold in keys.holds] + [claim.id for claim in keys.queue]:
            self.tickets += 1
            self.arrivals.setdefault(claim_id, self.tickets)
        self.queues[name] = {claim.id: claim for claim in keys.queue}

    def _check_order(self, hold: Hold) -> None:
        """A disconnected waiter loses its position, so the order is checked without faults only."""
        place = self.arrivals.get(hold.claim.id, self.tickets + 1)
        for claim in self.queues.get(hold.claim.name, {}).values() if self.calm else ():
            earlier = self.arrivals[claim.id] < place and claim.id != hold.claim.id
            if earlier and not self._gave_up(claim.id) and conflict(claim, hold.claim):
                raise Violation("order", f"{hold.claim.id} overtook {claim.id}, which came earlier")

    def _check_keys(self, name: str, keys: Keys) -> None:
        holds = keys.holds
        for one, other in ((a, b) for a in holds for b in holds if a is not b):
            pair = (one.mode, other.mode)
            if pair not in WAITING and pair != ("permits", "permits"):
                raise Violation("exclusion", f"{name!r} is held by {one.id} and {other.id}: {pair}")
        if name == SEMAPHORE and sum(hold.permits for hold in holds) > LIMIT:
            raise Violation("exclusion", f"more than {LIMIT} permits are held")
        if name == SEMAPHORE:
            check_numbers(holds, self.numbered)
        for held in holds:
            self._check_owner(name, held)
            self._check_mode(held)
        self._check_upgrades(name, holds)
        self._check_possible(name, keys)

    def _check_upgrades(self, name: str, holds: tuple[HoldRecord, ...]) -> None:
        """No hold begins while an upgrade waits."""
        waiting = {hold.id for hold in holds if hold.mode == "upgrading"}
        entered = [h for h in holds if h.id not in self.known and h.id not in waiting]
        self.known |= {hold.id for hold in holds}
        if entered and waiting & self.upgrading[name]:
            raise Violation("order", f"{entered[0].id} entered while an upgrade waits")
        self.upgrading[name] = waiting

    def _check_mode(self, held: HoldRecord) -> None:
        """The store has a hold in the mode that its owner counts on, when nothing is in flight."""
        hold, machine = self.is_valid.get(held.id), self.machine_of(held.client)
        if hold is None or machine is None or not hold.is_valid(machine.now()):
            return
        if hold.has_operation() or hold.pending_conversion:
            return
        if held.mode != hold.claim.mode:
            raise Violation(
                "exclusion", f"{held.id} is {held.mode}, its owner has {hold.claim.mode}"
            )

    def _check_owner(self, name: str, held: HoldRecord) -> None:
        if held.lifetime == "cooling":
            return
        hold = self.is_valid.get(held.id)
        if hold is not None and hold.state is State.ENDED:
            raise Violation("left behind", f"{held.id} was released, and holds {name!r} again")
        machine = self.machine_of(held.client)
        if hold is None and machine is not None and machine.alive and not self._gave_up(held.id):
            registry = self.registry[machine.name]
            if held.id not in registry.table:
                raise Violation("left behind", f"{held.id} holds {name!r} without an owner")

    def machine_of(self, client: str) -> Machine | None:
        """The identifiers of clients begin with the name of their machine."""
        return self.machines.get(client.partition(".")[0])

    def _gave_up(self, claim_id: str) -> bool:
        """Whether the client may have given up on the claim: releases are repeated for a time."""
        machine = self.machine_of(claim_id)
        return machine is None or self.given_up_by.get(claim_id, FOREVER) <= machine.now()

    def _wants(self, claim: Claim) -> bool:
        machine = self.machine_of(claim.client)
        able = machine is not None and machine.alive and machine.frozen_until <= self.simulator.time
        return able and not self._gave_up(claim.id)

    def _check_possible(self, name: str, keys: Keys) -> None:
        """What can be granted is granted soon, and an upgrade whose hold is alone is completed."""
        possible = [h.id for h in keys.holds if h.mode == "upgrading" and len(keys.holds) == 1]
        ahead: list[Claim] = []
        for claim in keys.queue:
            others: list[HoldRecord | Claim] = [*keys.holds, *ahead]
            if claim.mode == "permits":
                fits = sum(each.permits for each in others) + claim.permits <= LIMIT
            else:
                fits = not any(conflict(each, claim) for each in others)
            if fits and self._wants(claim):
                possible.append(claim.id)
            if self.calm or self._wants(claim):
                ahead.append(claim)
        if keys.ended:
            self.ran_out.add(name)
        if not possible:
            self.ran_out.discard(name)
        now = self.simulator.time
        for key in [key for key in self.late if key[0] == name and key[1] not in possible]:
            del self.late[key]
        for claim_id in possible:
            since = self.late.setdefault((name, claim_id), now)
            # The end of a lease is noticed by the next request.
            quiet = QUIET if name in self.ran_out else 0.0
            limit = quiet + CALM_STALL if self.calm else self.stall
            if now - since > limit:
                raise Violation(
                    "progress", f"{claim_id} could have been granted {now - since:.1f} s ago"
                )

    def at_rest(self) -> None:
        """All waiters were served, and nothing is left."""
        self.all_were_served()
        for name in self.scenario.names:
            keys = read(self._server(), name)
            if keys.holds:
                raise Violation(
                    "left behind", f"{name!r} is held without an owner: {keys.holds[0].id}"
                )
            if any(map(self._wants, keys.queue)):
                raise Violation("left behind", f"a waiter is left in the queue of {name!r}")
        self.all_was_released()


class RedisModesScenario(ModesPlay, RedisScenario):
    """Readers, writers, updates and permits on Redis."""

    form = "hash"

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        # The death of a client is noticed when its lease ends, or its connection.
        self.crashes = self.crashes and not self.calm

    def make_judge(self) -> RedisModesJudge:
        """Make the judge that reads the keys."""
        judge = RedisModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.scenario, judge.stall = self, self.stall()
        judge.begin()
        return judge

    def stall(self) -> float:
        """For how long a claim may wait for what it could be granted."""
        return STALL + KEPT_OUT + max(self.leases)

    def make_backend(self, machine: Machine) -> RedisBackend:
        """Make the production backend."""
        backend = RedisScenario.make_backend(self, machine)
        backend.capabilities = backend.capabilities._replace(modes=ALL_MODES)
        return backend


class PersistentRedisScenario(RedisModesScenario):
    """Conversions that follow an interrupted one."""

    user = PersistentUser
    lock_modes = ("shared", "update", "update")
    kinds = (["a"],)


class NumberedRedisScenario(RedisModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)
