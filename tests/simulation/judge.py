"""What must be true at every step of a story, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.memory.store import MemoryRow
from leaselock.core import rules
from leaselock.core.effects import FOREVER
from leaselock.core.hold import State
from leaselock.core.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from tests.models.sqlite_model import Model
    from tests.simulation.world import Machine, World

    from leaselock.backends.memory.store import Entry
    from leaselock.core.client_core import ClientCore
    from leaselock.core.hold import Hold
    from leaselock.core.hold_registry import HoldRegistry

# Beside the lease: a claim time for each waiter that may be frozen, and slow answers.
STALL = 8 * CONFIRM_WITHIN + 10.0
CALM_STALL = 0.5
MOST_SPINS = 2000
# Where nothing but the time has changed, what that means is seen so late, at most.
SOON = 0.05
# Beside the lease, or what an extension made of it: for how long a loss may not be noticed.
EXTENSION, TOLD = 3.0, 0.1


class Violation(Exception):
    """A promise was broken."""


class Judge:
    """Looks at every step."""

    def __init__(self, world: World, model: Model, calm: bool, longest: float) -> None:
        self.world = world
        self.model = model
        self.calm = calm
        self.services: dict[str, ClientCore] = {}
        self.machines: dict[str, Machine] = {}
        self.registry: dict[str, HoldRegistry] = {}
        # Until when a claim that was given up is looked after.
        self.given_up_by: dict[str, float] = {}
        self.breaking = False
        self.grants = 0
        # Since when which two believe, where the store promises no better and the story shows that.
        self.overlaps: dict[tuple[str, str], float] = {}
        self.shows = False
        self.highest: dict[str, int] = {}
        self.stall = STALL + longest
        self.is_valid: dict[str, Hold] = {}
        # What was so when it was looked last, and when to look again, though nothing changes.
        self.state: tuple[object, ...] = ()
        self.look_by = 0.0
        # Who believed when it was looked last, after how many moves, and when the first lapses.
        self.believing: dict[str, str] = {}
        self.moves = -1
        self.lapse = 0.0
        self.tickets = 0
        self.moment = 0.0
        self.spins = 0
        self.places: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.idle_since: dict[str, tuple[float, str]] = {}

    def enrol(self, machine: Machine, service: ClientCore) -> None:
        """One more to look at."""
        name = machine.name
        self.machines[name], self.services[name] = machine, service
        self.registry[name] = service.contexts[None].registry

    def check(self) -> None:
        """After each step."""
        self.check_time()
        if self.looked_at(self.model.changes):
            return
        entries = self.model.table.entries.values()
        for entry in entries:
            self._remember_places(entry)
        believers = self.believers()
        for entry in entries:
            self._check_entry(entry)
        self._check_stalls(believers)

    def looked_at(self, changes: object) -> bool:
        """Whether all is as it was a moment ago, but for the time."""
        state = (self.world.moves, changes)
        if state == self.state and self.world.time < self.look_by:
            return True
        self.state, self.look_by = state, self.world.time + SOON
        return False

    def check_time(self) -> None:
        """Something that never waits never ends."""
        self.spins = self.spins + 1 if self.world.time == self.moment else 0
        self.moment = self.world.time
        if self.spins > MOST_SPINS:
            raise Violation("something goes round and round while no time passes")

    def believers(self) -> dict[str, str]:
        """Who may believe to hold what: no two the same, and each with a token above the last."""
        world = self.world
        if world.moves == self.moves and world.time < self.lapse:
            return self.believing
        self.moves, self.lapse, self.believing = world.moves, FOREVER, {}
        for name, registry in self.registry.items():
            machine = self.machines[name]
            if registry.holds and machine.alive:
                now = machine.now()
                for reference in list(registry.holds.values()):
                    hold = reference()
                    if hold is not None and hold.is_valid(now):
                        self.lapse = min(self.lapse, hold.valid_until / machine.rate)
                        self._believer(hold, machine, self.believing)
        return self.believing

    def remember_orphans(self) -> None:
        """Nobody tries for ever to give back what ends by itself, or is passed over."""
        for name, registry in self.registry.items():
            if registry.pending_releases and self.machines[name].alive:
                for release_later in registry.pending_releases:
                    self.given_up_by[release_later.claim.id] = release_later.until

    def _believer(self, hold: Hold, machine: Machine, believers: dict[str, str]) -> None:
        name, holder = hold.claim.name, hold.claim.id
        if holder not in self.is_valid:
            self._granted(hold, machine)
        elif self.is_valid[holder] is not hold:
            raise Violation(f"{machine.name} believes in {holder}, which another process holds")
        other = believers.setdefault(name, holder)
        if other != holder:
            self._overlap(name, other, holder)

    def _overlap(self, name: str, one: str, other: str) -> None:
        """Two believe. Where that may be, whoever lost the lock is told, or ends by itself."""
        if not (self.breaking or self.shows):
            raise Violation(f"{name!r} is believed held by {one} and by {other} at once")
        if (one, other) not in self.overlaps:
            self.overlaps[one, other] = self.world.time
        old = min(self.is_valid[one], self.is_valid[other], key=lambda hold: hold.token)
        if self.world.time - self.overlaps[one, other] > max(old.claim.lease, EXTENSION) + TOLD:
            raise Violation(f"{one} and {other} go on believing that they hold {name!r}")

    def _granted(self, hold: Hold, machine: Machine) -> None:
        name = hold.claim.name
        self.is_valid[hold.claim.id] = hold
        self.grants += 1
        self._check_order(hold)
        self.world.note(machine, f"holds {name} with token {hold.token}")
        # What an operator broke while its holder was frozen is believed late, with its token.
        late = self.breaking or self.shows
        if hold.token <= self.highest.get(name, 0) and not late:
            raise Violation(
                f"token {hold.token} of {name!r} does not rise above {self.highest[name]}"
            )
        self.highest[name] = max(hold.token, self.highest.get(name, 0))

    def _check_order(self, hold: Hold) -> None:
        """Nobody who can be served is overtaken by one who came later."""
        place = self.served[self.in_store(hold)]
        for claim in self.model.table.entries[hold.claim.name].queue.values():
            earlier = self.places[claim.id] < place
            if earlier and not self.breaking and self.model.alive(claim.client):
                raise Violation(f"{hold.claim.id} overtook {claim.id}, which came before")

    def in_store(self, hold: Hold) -> str:
        """By which claim the store knows a hold."""
        return hold.claim.id

    def _remember_places(self, entry: Entry) -> None:
        if entry.held is not None:
            holder = entry.held.id
            if holder in self.places or holder not in self.served:
                self.served[holder] = self._place(holder)
                self.places.pop(holder, None)
        for holder in entry.queue:
            self.places[holder] = self._place(holder)

    def _place(self, holder: str) -> int:
        self.tickets += 1
        return self.places.get(holder, self.tickets)

    def _check_entry(self, entry: Entry) -> None:
        """What the store has is what somebody wants."""
        for claim in entry.queue.values():
            hold = self.is_valid.get(claim.id)
            # A late question of one who holds: its release takes it out, and buries it.
            unended = hold is not None and hold.state is not State.FREE
            if not (unended or self.shared(claim.id)) and self._is_ghost(claim.client, claim.id):
                raise Violation(f"{claim.id} waits in the queue for nobody")
        held = entry.held
        if held is None:
            return
        hold = self.is_valid.get(held.id)
        if hold is not None and hold.state is State.FREE and not self.shared(held.id):
            raise Violation(f"{held.id} was released, and holds again")
        if hold is None and not self.shared(held.id) and self._is_ghost(held.client, held.id):
            raise Violation(f"{held.id} holds for nobody")

    def hold_of(self, holder: str) -> Hold | None:
        """The hold that the store has under that claim."""
        return self.is_valid.get(holder)

    def shared(self, holder: str) -> bool:
        """Whether the claim that the store knows stands for others of its client, too."""
        return False

    def _is_ghost(self, client: str, holder: str) -> bool:
        machine = self.machines.get(self.model.machines.get(client, ""))
        if machine is None or not machine.alive:
            return False
        registry = self.registry[machine.name]
        return not registry.in_flight.active and holder not in registry.pending_releases

    def _check_stalls(self, believers: dict[str, str]) -> None:
        """Nobody holds, somebody waits: how long has that been so?"""
        for name, entry in self.model.table.entries.items():
            waits = any(self._ready(claim.client) for claim in entry.queue.values())
            if not waits or name in believers:
                self.idle_since.pop(name, None)
                continue
            holder = entry.held.id if entry.held else ""
            since, of = self.idle_since.get(name, (0.0, None))
            if of != holder:
                since = self.world.time
                self.idle_since[name] = (since, holder)
            limit = CALM_STALL if self.calm and not self._over(name) else self.stall
            if self.world.time - since > limit:
                raise Violation(f"{name!r} was idle for {limit} s while somebody waited")

    def _ready(self, client: str) -> bool:
        machine = self.machines.get(self.model.machines.get(client, ""))
        return machine is not None and machine.frozen_until <= self.world.time

    def _over(self, name: str) -> bool:
        # A fixed lease has run out, or is about to: it is the waiters who find that out.
        held = self.model.table.entries[name].held
        return held is not None and held.expires <= self.world.time + CALM_STALL

    def all_were_served(self) -> None:
        """Nobody waits at the end."""
        for machine in self.machines.values():
            for run in machine.runs:
                if run.name.startswith("user"):
                    raise Violation(f"{machine.name} {run.name} waits for ever")

    def all_was_given_back(self) -> None:
        """No claim is left to a keeper at the end."""
        for name, registry in self.registry.items():
            if self.machines[name].alive and registry.pending_releases:
                raise Violation("an orphan was never given back")

    def at_rest(self) -> None:
        """After the end: everybody was served, and nothing is left."""
        self.all_were_served()
        for name, entry in self.model.table.entries.items():
            place = MemoryRow(self.model.table, "", name)
            if entry.held is not None and not rules.expired(place, entry.held):
                raise Violation(f"{name!r} is held by nobody: {entry.held.id}")
            if any(self.model.alive(claim.client) for claim in entry.queue.values()):
                raise Violation(f"somebody is left in the queue of {name!r}")
        self.all_was_given_back()


class BeliefsJudge(Judge):
    """Where nothing but what clients believe, and what is left at the end, can be judged: the store
    says neither who is next nor in which order the locks were granted.
    """

    def check(self) -> None:
        """After each step: no two believe, and tokens rise."""
        self.check_time()
        self.believers()

    def _check_order(self, hold: Hold) -> None:
        """It is the store's, or a courtesy."""
