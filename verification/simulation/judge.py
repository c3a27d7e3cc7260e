"""The invariants that hold at every step of a scenario, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from leaselock._backends.memory.store import MemoryRow
from leaselock._core.client.hold import State
from leaselock._core.contract.effects import FOREVER
from leaselock._core.rows import rules
from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.models.sqlite_model import Model
    from verification.simulation.simulator import Machine, Simulator

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.hold import Hold
    from leaselock._core.rows.entry_row import Entry

# In addition to the lease: CONFIRM_WITHIN for each waiter that may be frozen, and slow replies.
STALL = 8 * CONFIRM_WITHIN + 10.0
CALM_STALL = 0.5
MOST_SPINS = 2000
# The maximal delay of a check if only the time has changed.
SOON = 0.05
# For how long a loss may be unnoticed: the lease or its extension, and this much longer.
EXTENSION, NOTICED = 3.0, 0.1


Invariant = Literal[
    "exclusion",
    "token",
    "order",
    "loss",
    "left behind",
    "progress",
    "answer",
    "period",
    "spin",
    "listing",
]
"""What a violation is of: at most one holder; rising tokens; first come, first served; every loss
reported, and none without a reason; nothing left in the store; no lock idle before a waiter; the
answers that callers get; one run in a period; no loop without a wait; every lock in the index.
"""


class Violation(Exception):
    """An invariant was violated."""

    def __init__(self, invariant: Invariant, text: str) -> None:
        super().__init__(text)
        self.invariant = invariant


class Judge:
    """Checks the invariants after every step."""

    def __init__(self, simulator: Simulator, model: Model, calm: bool, longest: float) -> None:
        self.simulator = simulator
        self.model = model
        self.calm = calm
        self.services: dict[str, ClientCore] = {}
        self.machines: dict[str, Machine] = {}
        self.registry: dict[str, ClaimRegistry] = {}
        # Until when the release of an abandoned claim is repeated.
        self.given_up_by: dict[str, float] = {}
        self.breaking = False
        self.grants = 0
        # Pairs of holds that overlap, and since when, in scenarios that show overlaps.
        self.overlaps: dict[tuple[str, str], float] = {}
        self.shows = False
        self.highest: dict[str, int] = {}
        self.stall = STALL + longest
        self.is_valid: dict[str, Hold] = {}
        # The state at the last check, and when to check again even without a change.
        self.state: tuple[object, ...] = ()
        self.check_by = 0.0
        # The valid holders at the last check, the number of moves, and when the first hold ends.
        self.valid_now: dict[str, str] = {}
        self.moves = -1
        self.next_end = 0.0
        self.tickets = 0
        self.moment = 0.0
        self.spins = 0
        self.places: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.queued_before: dict[int, set[str]] = {}
        # The claims that had not asked for too long when a hold began.
        self.passed_over: dict[str, set[str]] = {}
        self.asked_before: dict[str, float] = {}
        self.idle_since: dict[str, tuple[float, str]] = {}

    def enrol(self, machine: Machine, service: ClientCore) -> None:
        """Add a machine."""
        name = machine.name
        self.machines[name], self.services[name] = machine, service
        self.registry[name] = service.contexts[None].registry

    def check(self) -> None:
        """After each step."""
        self.check_time()
        if self.is_unchanged(self.model.changes):
            return
        entries = self.model.table.entries.values()
        for entry in entries:
            self._record_places(entry)
        valid_holders = self.valid_holders()
        for entry in entries:
            self._check_entry(entry)
        self._check_stalls(valid_holders)

    def is_unchanged(self, changes: object) -> bool:
        """Return whether nothing but the time has changed since the last check."""
        state = (self.simulator.moves, changes)
        if state == self.state and self.simulator.time < self.check_by:
            return True
        self.state, self.check_by = state, self.simulator.time + SOON
        return False

    def check_time(self) -> None:
        """A process that never waits would never end."""
        self.spins = self.spins + 1 if self.simulator.time == self.moment else 0
        self.moment = self.simulator.time
        if self.spins > MOST_SPINS:
            raise Violation("spin", "a process loops without waiting")

    def valid_holders(self) -> dict[str, str]:
        """The valid holder of each name; there is at most one, and tokens increase."""
        simulator = self.simulator
        if simulator.moves == self.moves and simulator.time < self.next_end:
            return self.valid_now
        self.moves, self.next_end, self.valid_now = simulator.moves, FOREVER, {}
        for name, registry in self.registry.items():
            machine = self.machines[name]
            if registry.table and machine.alive:
                now = machine.now()
                for hold in list(registry.table.values()):
                    if hold.is_valid(now):
                        self.next_end = min(self.next_end, hold.valid_until / machine.rate)
                        self._record_valid(hold, machine, self.valid_now)
        return self.valid_now

    def record_given_up(self) -> None:
        """Record until when each pending release is repeated."""
        for name, registry in self.registry.items():
            if registry.table and self.machines[name].alive:
                for hold in registry.pending():
                    self.given_up_by[hold.claim.id] = hold.release_until

    def _record_valid(self, hold: Hold, machine: Machine, valid_holders: dict[str, str]) -> None:
        name, holder = hold.claim.name, hold.claim.id
        if holder not in self.is_valid:
            self._granted(hold, machine)
        elif self.is_valid[holder] is not hold:
            raise Violation(
                "exclusion",
                f"{machine.name} has a valid hold of {holder}, which another process holds",
            )
        other = valid_holders.setdefault(name, holder)
        if other != holder:
            self._overlap(name, other, holder)

    def _overlap(self, name: str, one: str, other: str) -> None:
        """Two valid holds overlap. Where this is allowed, the older one must end in time."""
        if not (self.breaking or self.shows):
            raise Violation("exclusion", f"{name!r} is held by {one} and by {other} at once")
        if (one, other) not in self.overlaps:
            self.overlaps[one, other] = self.simulator.time
        old = min(self.is_valid[one], self.is_valid[other], key=lambda hold: hold.token)
        if (
            self.simulator.time - self.overlaps[one, other]
            > max(old.claim.lease, EXTENSION) + NOTICED
        ):
            raise Violation("loss", f"{one} and {other} both continue to hold {name!r}")

    def _granted(self, hold: Hold, machine: Machine) -> None:
        name = hold.claim.name
        self.is_valid[hold.claim.id] = hold
        self.grants += 1
        self._check_order(hold)
        self.simulator.note(machine, f"holds {name} with token {hold.token}")
        # A frozen holder of a broken lock may become valid late, with its old token.
        late = self.breaking or self.shows
        if hold.token <= self.highest.get(name, 0) and not late:
            raise Violation(
                "token", f"token {hold.token} of {name!r} does not rise above {self.highest[name]}"
            )
        self.highest[name] = max(hold.token, self.highest.get(name, 0))

    def _check_order(self, hold: Hold) -> None:
        """No live waiter is overtaken by a later one."""
        place = self.served[hold.claim.id]
        for claim in self.model.table.entries[hold.claim.name].queue.values():
            passed = claim.id in self.passed_over.get(hold.claim.id, ())
            earlier = self.places[claim.id] < place and not passed
            if earlier and not self.breaking and self.model.alive(claim.client):
                raise Violation("order", f"{hold.claim.id} overtook {claim.id}, which came earlier")

    def _record_places(self, entry: Entry) -> None:
        for holder in entry.holds:
            if holder in self.places or holder not in self.served:
                self.served[holder] = self._place(holder)
                self.passed_over[holder] = {
                    claim.id
                    for claim in entry.queue.values()
                    if claim.last_seen < entry.lapsed_offer
                }
                self.places.pop(holder, None)
        # One that was dropped because it had not asked for long has lost its place.
        for holder in self.queued_before.get(id(entry), set()) - entry.queue.keys():
            self.places.pop(holder, None)
        self.queued_before[id(entry)] = set(entry.queue)
        for holder, claim in entry.queue.items():
            # It may have been dropped, and have come back, in one request.
            if (
                claim.last_seen - self.asked_before.get(holder, claim.last_seen)
                >= rules.FORGET_AFTER
            ):
                self.places.pop(holder, None)
            self.asked_before[holder] = claim.last_seen
            self.places[holder] = self._place(holder)

    def _place(self, holder: str) -> int:
        self.tickets += 1
        return self.places.get(holder, self.tickets)

    def _check_entry(self, entry: Entry) -> None:
        """Each claim in the store belongs to a live acquisition, hold or pending release."""
        for claim in entry.queue.values():
            hold = self.is_valid.get(claim.id)
            # A late request of a holder: its release removes the claim, with a tombstone.
            unended = hold is not None and hold.state is not State.ENDED
            if not (unended or self.is_cooling(claim.id)) and self._is_abandoned(
                claim.client, claim.id
            ):
                raise Violation("left behind", f"{claim.id} waits in the queue without an owner")
        for held in entry.holds.values():
            hold = self.is_valid.get(held.id)
            if hold is not None and hold.state is State.ENDED and not self.is_cooling(held.id):
                raise Violation("left behind", f"{held.id} was released, and holds again")
            if (
                hold is None
                and not self.is_cooling(held.id)
                and self._is_abandoned(held.client, held.id)
            ):
                raise Violation("left behind", f"{held.id} holds without an owner")

    def is_cooling(self, holder: str) -> bool:
        """Return whether the hold in the store was released, and has no owner."""
        return False

    def _is_abandoned(self, client: str, holder: str) -> bool:
        machine = self.machines.get(self.model.machines.get(client, ""))
        if machine is None or not machine.alive:
            return False
        registry = self.registry[machine.name]
        return holder not in registry.table

    def _check_stalls(self, valid_holders: dict[str, str]) -> None:
        """A lock with waiters must not be without a valid holder for long."""
        for name, entry in self.model.table.entries.items():
            waits = any(self._ready(claim.client) for claim in entry.queue.values())
            if not waits or name in valid_holders:
                self.idle_since.pop(name, None)
                continue
            holder = " ".join(entry.holds)
            since, of = self.idle_since.get(name, (0.0, None))
            if of != holder:
                since = self.simulator.time
                self.idle_since[name] = (since, holder)
            limit = CALM_STALL if self.calm and not self._over(name) else self.stall
            if self.simulator.time - since > limit:
                raise Violation("progress", f"{name!r} was idle for {limit} s with a waiter")

    def _ready(self, client: str) -> bool:
        machine = self.machines.get(self.model.machines.get(client, ""))
        return machine is not None and machine.frozen_until <= self.simulator.time

    def _over(self, name: str) -> bool:
        # A fixed lease has ended or is about to: the waiters notice that only when they ask again.
        holds = self.model.table.entries[name].holds.values()
        return any(held.expires <= self.simulator.time + CALM_STALL for held in holds)

    def all_were_served(self) -> None:
        """No acquire is left at the end."""
        for user in self.users():
            raise Violation("progress", f"{user} waits for ever")

    def users(self) -> Iterator[str]:
        """Those who have not ended."""
        for machine in self.machines.values():
            names = (run.name for run in machine.runs)
            yield from (f"{machine.name} {name}" for name in names if name.startswith("user"))

    def all_was_released(self) -> None:
        """No pending release is left at the end."""
        for name, registry in self.registry.items():
            if self.machines[name].alive and registry.pending():
                raise Violation("left behind", "a pending release was never executed")

    def at_rest(self) -> None:
        """At the end all waiters were served, and nothing is left in the store."""
        self.all_were_served()
        for name, entry in self.model.table.entries.items():
            row = MemoryRow(self.model.table, "", name)
            for held in entry.holds.values():
                if not rules.expired(row, held):
                    raise Violation("left behind", f"{name!r} is held without an owner: {held.id}")
        self.all_was_released()


class ValidityJudge(Judge):
    """Checks only validity, tokens and the state at the end: the store shows neither the queue nor
    the order of grants.
    """

    def check(self) -> None:
        """After each step: no two valid holds overlap, and tokens increase."""
        self.check_time()
        self.valid_holders()

    def _check_order(self, hold: Hold) -> None:
        """Do nothing: the store decides on the order."""
