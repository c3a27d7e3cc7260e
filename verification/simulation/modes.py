"""Scenarios with readers, writers, updates and permits: the rules of the memory store, and SQL.

The judge has a table of compatible modes of its own, and checks the store as well as what the
clients count on.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from verification.models.sqlite_model import Model
from verification.simulation.judge import CALM_STALL, Judge, Violation
from verification.simulation.scenario import LEASES, Scenario
from verification.simulation.simulator import Interrupted
from verification.simulation.sql import SessionsJudge, SessionsScenario, SqlJudge, SqlScenario
from verification.simulation.user import User

from leaselock._backends.memory.store import CAPABILITIES, MemoryRow
from leaselock._core.client.hold import State
from leaselock._core.contract.backend import Acquire, Convert, Release, Resize
from leaselock._core.contract.marks import slots_of
from leaselock._core.rows import rules
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import LeaseLost, LimitMismatch, StoreError, WouldDeadlock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex
    from leaselock._core.contract.backend import Claim, HoldRecord, Mode
    from leaselock._core.rows.entry_row import Entry

SEMAPHORE, LIMIT = "s", 3
# What an operator changes the limit to, in some scenarios.
LIMITS = (2, 3, 4)
LOCK_MODES: tuple[Mode, ...] = ("shared", "shared", "shared", "exclusive", "update", "update")
TOGETHER = {("shared", "shared"), ("shared", "update"), ("update", "shared")}
# Beside an upgrade that waits, the readers that were there before.
WAITING = TOGETHER | {("shared", "upgrading"), ("upgrading", "shared")}
RELEASE_PAUSE = 0.05
TICK = 1e-6
# Seconds between two checks of the judge while no request is sent.
LOOK = 0.1
# Requests that end with a look at what can be granted.
GRANTING = (Acquire, Convert, Release, Resize)


def conflict(one: HoldRecord | Claim, other: HoldRecord | Claim) -> bool:
    """Whether two claims conflict by their modes; all claims of a semaphore do, in a queue."""
    return (one.mode, other.mode) not in TOGETHER


class Numbered(NamedTuple):
    """A hold as a table or a document has it."""

    id: str
    token: int
    permits: int
    slots: tuple[int, ...]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Numbered:
        """Read a record."""
        return cls(row["id"], row["token"], row.get("permits", 1), slots_of(row["metadata"]) or ())


def check_numbers(holds: Collection[HoldRecord | Numbered], known: set[tuple[str, int]]) -> None:
    """Each permit has the lowest number that was free when it was granted; *known* are the holds
    of the last check. The tokens say in which order one step has granted several.
    """
    taken: set[int] = set()
    before = {(hold.id, hold.token) for hold in holds}
    # Those that are known were there before any new one.
    for hold in sorted(holds, key=lambda each: ((each.id, each.token) not in known, each.token)):
        if (hold.id, hold.token) not in known and hold.slots:
            free = (number for number in count() if number not in taken)
            lowest = tuple(islice(free, hold.permits))
            if hold.slots != lowest:
                raise Violation(
                    "answer", f"{hold.id} has the numbers {hold.slots}, and {lowest} were free"
                )
        taken.update(hold.slots)
    known.clear()
    known.update(before)


class ModesModel(Model):
    """The store, and which claim asked last, for which name."""

    asker, asked_for, asked_at = "", "", 0.0

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Execute a request."""
        if isinstance(request, GRANTING) and machine not in self.dead:
            claim = None if isinstance(request, Resize) else request.claim
            refused = claim is not None and claim.id in self.table.tombstones
            self.asker = claim.id if claim is not None else ""
            name = request.name if isinstance(request, Resize) else request.claim.name
            self.asked_for = "" if refused and isinstance(request, Acquire) else name
        else:
            self.asker = self.asked_for = ""
        self.asked_at = self.table.now()
        super().ask(machine, request, reply)


class ManyHolds(Judge):
    """Checks what clients count on: compatible holds, permits within the limit, and tokens."""

    most = LIMIT

    def begin(self) -> None:
        """Start with nothing seen."""
        self.present: dict[str, list[Hold]] = {}
        self.recorded: object = None
        self.tokens: dict[str, set[int]] = defaultdict(set)
        self.writes: dict[str, int] = defaultdict(int)
        self.seen_modes: dict[str, tuple[Mode, int]] = {}
        self.writers: dict[str, tuple[str, int]] = {}
        # The holds of the semaphore at the last check.
        self.numbered: set[tuple[str, int]] = set()
        # The greatest token that was granted while a hold of a name and mode was valid.
        self.granted_beside: dict[tuple[str, Mode], int] = {}

    def _record_valid(self, hold: Hold, machine: Machine, valid_holders: dict[str, str]) -> None:
        if valid_holders is not self.recorded:
            self.recorded, self.present = valid_holders, defaultdict(list)
        name, holder = hold.claim.name, hold.claim.id
        if holder not in self.is_valid:
            self._granted(hold, machine)
        if self.seen_modes.get(holder) != (hold.claim.mode, hold.token):
            self._check_token(hold)
        valid_holders.setdefault(name, holder)
        self.granted_beside[name, hold.claim.mode] = max(self.tokens[name], default=0)
        for other in self.present[name]:
            pair = (other.claim.mode, hold.claim.mode)
            if pair not in TOGETHER and pair != ("permits", "permits"):
                self._overlap(name, other.claim.id, holder)
            if set(other.slots) & set(hold.slots):
                self._overlap(name, other.claim.id, holder)
        self.present[name].append(hold)
        if sum(each.claim.permits for each in self.present[name]) > self.most and name == SEMAPHORE:
            self._overlap(name, self.present[name][0].claim.id, holder)

    def _check_token(self, hold: Hold) -> None:
        """A write has the greatest token so far; no two grants have the same."""
        name, holder, mode = hold.claim.name, hold.claim.id, hold.claim.mode
        before = self.seen_modes.get(holder)
        self.seen_modes[holder] = (mode, hold.token)
        if self.breaking:
            return
        if before is None and hold.token in self.tokens[name]:
            raise Violation("token", f"{holder} has the token {hold.token} of another grant")
        became = mode == "exclusive" and (before is None or before[0] != "exclusive")
        if became and self.writers.get(name) == (holder, hold.token):
            return  # its downgrade was never applied: it has been the writer all the time
        if became and hold.token <= max(self.tokens[name], default=0):
            raise Violation("token", f"the write {holder} has no greater token than grants before")
        if mode != "permits" and before is None and hold.token < self.writes[name]:
            raise Violation("token", f"{holder} was granted after a write that has a greater token")
        if mode != "permits" and before is None:
            self._check_grant_order(name, hold)
        self.tokens[name].add(hold.token)
        if mode == "exclusive":
            self.writes[name] = max(self.writes[name], hold.token)
            self.writers[name] = holder, hold.token

    def _check_grant_order(self, name: str, hold: Hold) -> None:
        """A grant has a greater token than all that were granted before a conflicting hold ended,
        because it was granted after that.
        """
        for (other, mode), token in self.granted_beside.items():
            conflicts = other == name and (mode, hold.claim.mode) not in TOGETHER
            if conflicts and hold.token < token:
                raise Violation(
                    "token", f"{hold.claim.id} was granted {hold.token} after the token {token}"
                )

    def _granted(self, hold: Hold, machine: Machine) -> None:
        self.is_valid[hold.claim.id] = hold
        self.grants += 1
        wanted = hold.claim.permits if hold.claim.is_numbered else 0
        if len(hold.slots) != wanted or max(hold.slots, default=0) >= self.most:
            raise Violation("answer", f"{hold.claim.id} has the numbers {hold.slots}")
        self._check_order(hold)
        self.simulator.note(machine, f"holds {hold.claim.name}, {hold.claim.mode}, {hold.token}")


class ModesJudge(ManyHolds):
    """Checks the store in memory, too: its holds, their order, and that nothing stands still."""

    model: ModesModel

    def begin(self) -> None:
        """Start with nothing seen."""
        super().begin()
        self.upgrading: dict[str, set[str]] = defaultdict(set)
        self.late: dict[tuple[str, str], float] = {}
        # The holds that the store had at some time.
        self.known: set[str] = set()

    def _check_order(self, hold: Hold) -> None:
        """No live waiter is overtaken by a later one that conflicts with it."""
        place = self.served.get(hold.claim.id)
        for claim in self.model.table.entries[hold.claim.name].queue.values():
            earlier = place is not None and self.places[claim.id] < place
            passed = claim.id in self.passed_over.get(hold.claim.id, ())
            alive = not self.breaking and self.model.alive(claim.client)
            if earlier and not passed and alive and conflict(claim, hold.claim):
                raise Violation("order", f"{hold.claim.id} overtook {claim.id}, which came earlier")

    def _check_entry(self, entry: Entry) -> None:
        super()._check_entry(entry)
        holds = list(entry.holds.values())
        name = next((n for n, each in self.model.table.entries.items() if each is entry), "")
        for one, other in ((a, b) for a in holds for b in holds if a is not b):
            pair = (one.mode, other.mode)
            if pair not in WAITING and pair != ("permits", "permits"):
                raise Violation("exclusion", f"{name!r} is held by {one.id} and {other.id}: {pair}")
        waiting = {hold.id for hold in holds if hold.mode == "upgrading"}
        new = [h for h in holds if h.id not in self.known and h.lifetime != "cooling"]
        entered = [hold for hold in new if hold.id not in waiting]
        self.known |= {hold.id for hold in holds}
        if name == SEMAPHORE:
            self._check_permits(entry, holds, entered)
            check_numbers(holds, self.numbered)
        for hold in entered:
            lasts = hold.expires - self.simulator.time
            if hold.id != self.model.asker and lasts > rules.CONFIRM_WITHIN + TICK:
                raise Violation("progress", f"{hold.id} was granted {lasts:.1f} s without asking")
        if entered and waiting & self.upgrading[name]:
            raise Violation("order", f"{entered[0].id} entered while an upgrade waits")
        self.upgrading[name] = waiting
        self._check_modes(entry)
        self._check_progress(name, entry)

    def _check_permits(
        self, entry: Entry, holds: list[HoldRecord], entered: list[HoldRecord]
    ) -> None:
        """No grant exceeds the limit, which may have become smaller; no claim waits for more."""
        if entered and sum(hold.permits for hold in holds) > entry.limit:
            raise Violation("exclusion", f"more than {entry.limit} permits are held")
        for claim in entry.queue.values():
            if claim.permits > entry.limit:
                raise Violation(
                    "progress", f"{claim.id} waits for {claim.permits} of {entry.limit} permits"
                )

    def _check_modes(self, entry: Entry) -> None:
        """The store has a hold in the mode that its owner counts on, when nothing is in flight."""
        for held in entry.holds.values():
            hold = self.is_valid.get(held.id)
            machine = self.machines.get(self.model.machines.get(held.client, ""))
            if hold is None or machine is None or not hold.is_valid(machine.now()):
                continue
            if hold.has_operation() or hold.pending_conversion:
                continue
            if held.mode != hold.claim.mode:
                raise Violation(
                    "exclusion", f"{held.id} is {held.mode}, its owner has {hold.claim.mode}"
                )

    def _check_progress(self, name: str, entry: Entry) -> None:
        """What can be granted is granted soon, and an upgrade whose hold is alone is completed."""
        row = MemoryRow(self.model.table, "", name)
        holds = [hold for hold in entry.holds.values() if not rules.expired(row, hold)]
        possible = [h.id for h in holds if h.mode == "upgrading" and len(entry.holds) == 1]
        ahead: list[Claim] = []
        for claim in entry.queue.values():
            late = (
                claim.last_seen < entry.lapsed_offer
                or claim.last_seen + rules.FORGET_AFTER <= row.now
            )
            if late or not self.model.alive(claim.client):
                continue
            others: list[HoldRecord | Claim] = [*holds, *ahead]
            if claim.mode == "permits":
                fits = sum(each.permits for each in others) + claim.permits <= entry.limit
            else:
                fits = not any(conflict(each, claim) for each in others)
            possible += [claim.id] if fits else []
            ahead.append(claim)
        now = self.simulator.time
        if possible and self.model.asked_for == name and self.model.asked_at == now:
            raise Violation(
                "progress", f"a request left {possible[0]} waiting, which could be granted"
            )
        for key in [key for key in self.late if key[0] == name and key[1] not in possible]:
            del self.late[key]
        # The first waiter knows when a hold ends. After a death, another has to ask first.
        first = next(iter(entry.queue), "")
        for claim_id in possible:
            since = self.late.setdefault((name, claim_id), now)
            noticed = len(holds) == len(entry.holds) or claim_id == first
            if now - since > (CALM_STALL if self.calm and noticed else self.stall):
                raise Violation(
                    "progress", f"{claim_id} could have been granted {now - since:.1f} s ago"
                )

    def _over(self, name: str) -> bool:
        return True  # `_check_progress` is stricter


class ModesUser(User):
    """Acquires in all modes, nests, upgrades and downgrades."""

    scenario: ModesPlay

    def _mutex(self) -> Mutex:
        name = self.chance.choice(self.scenario.names)
        lease, renew = (
            self.chance.choice(self.scenario.leases),
            self.chance.random() < self.scenario.renewed,
        )
        if name == SEMAPHORE:
            return self._semaphore(lease, renew)
        return self._side(name, self.chance.choice(self.scenario.lock_modes), lease, renew)

    def _semaphore(self, lease: float, renew: bool) -> Mutex:
        options: dict[str, Any] = {"lease": lease, "renew": renew, "timeout": None}
        limit, numbered = self.scenario.limit, self.scenario.numbered
        options |= {"protocol": None, "label": None, "min_hold": self.scenario.period}
        return self.service.semaphore(SEMAPHORE, limit, numbered=numbered, **options)

    def _side(self, name: str, mode: Mode, lease: float = 20.0, renew: bool = True) -> Mutex:
        options = {"lease": lease, "renew": renew, "timeout": None, "reentrant": True}
        sides = self.service.rwlock(name, protocol=None, label=None, **options)
        return sides[mode]

    async def _once(self) -> None:
        if self.scenario.resizes and self.chance.random() < 0.3:
            await self._resize()
        mutex = self._mutex()
        permits = 1
        if mutex.options.mode == "permits":
            permits = self.chance.choice((1, 1, 2, 3))
        timeout = self.chance.choice((None, None, None, 0.0, 0.05, 1.0, 10.0))
        if mutex.options.mode == "permits" and permits > self.scenario.limit:
            return  # more than there are is refused without a request
        last_seen = self.machine.now()
        try:
            handle = await mutex.try_acquire(timeout, permits)
        except LimitMismatch:
            if self.scenario.resizes:
                return
            raise Violation("answer", "a semaphore of one limit has another") from None
        if handle is None:
            self._refused(timeout, self.machine.now() - last_seen)
            return
        try:
            await self._work(mutex, handle)
        except GeneratorExit:
            raise
        except BaseException:
            await self._release(handle)
            raise
        await self._release(handle)

    async def _work(self, mutex: Mutex, handle: LeaseHandle) -> None:
        await self._pause(self.chance.choice(self.scenario.works))
        mode, name = handle.mode, mutex.name
        if mode == "permits" or handle.lost():
            return
        try:
            if mode == "update" and self.chance.random() < 0.7:
                await self._upgrade(name, handle)
            elif mode == "exclusive" and self.chance.random() < 0.5:
                await self._downgrade(name, handle)
            elif mode == "shared" and self.chance.random() < 0.2:
                await self._forbidden(name)
        except LeaseLost:
            if self.scenario.calm and handle.hold.renew:
                raise Violation("loss", "a lease was lost without a fault") from None
            return
        await self._pause(self.chance.choice(self.scenario.works))

    async def _resize(self) -> None:
        limit = self.chance.choice(LIMITS)
        await self._semaphore(20.0, True).resize(limit)
        self.scenario.limit = limit

    async def _upgrade(self, name: str, handle: LeaseHandle) -> None:
        timeout = self.chance.choice((None, 0.0, 0.3, 2.0))
        if self.chance.random() < 0.5:
            if await handle.upgrade(timeout):
                await self._pause(RELEASE_PAUSE)
            return
        inner = await self._side(name, "exclusive").try_acquire(timeout)
        if inner is not None:
            await self._use(inner, RELEASE_PAUSE)

    async def _use(self, inner: LeaseHandle, mean: float) -> None:
        try:
            await self._pause(mean)
        except Interrupted:
            await self._release(inner)
            raise
        await self._release(inner)

    async def _downgrade(self, name: str, handle: LeaseHandle) -> None:
        inner = await self._side(name, "shared").try_acquire()
        if inner is None or inner.hold is not handle.hold:
            raise Violation("answer", "a writer cannot read")
        try:
            await self._release(handle)
        except Interrupted:
            await self._release(inner)
            raise
        await self._use(inner, self.chance.choice(self.scenario.works))

    async def _forbidden(self, name: str) -> None:
        try:
            await self._side(name, "exclusive").acquire(self.chance.choice((None, 0.0)))
        except WouldDeadlock:
            return
        raise Violation("exclusion", "a reader became a writer")


class PersistentUser(ModesUser):
    """Wants to write again after a conversion was interrupted, before anything else."""

    async def _upgrade(self, name: str, handle: LeaseHandle) -> None:
        try:
            await super()._upgrade(name, handle)
        except Interrupted:
            await self._again(name, handle)
            raise

    async def _again(self, name: str, handle: LeaseHandle) -> None:
        timeout = self.chance.choice((0.3, 2.0))
        try:
            if self.chance.random() < 0.5:
                await handle.upgrade(timeout)
                await self._pause(RELEASE_PAUSE)
                return
            inner = await self._side(name, "exclusive").try_acquire(timeout)
            if inner is not None:
                await self._use(inner, RELEASE_PAUSE)
        except (LeaseLost, StoreError) as error:
            if self.scenario.calm and handle.hold.renew:
                raise Violation("answer", f"without a fault: {error}") from None


class ModesPlay(Scenario):
    """Readers, writers, updates and permits, on any store."""

    user: type[ModesUser] = ModesUser

    users = (1, 2, 3)
    limit = LIMIT
    resizes = False
    # The part of the scenarios in which an operator changes the number of permits.
    resized = 0.3
    numbered = False
    # For how many seconds a permit stays taken.
    period = 0.0
    lock_modes = LOCK_MODES
    # What the names of a scenario may be.
    kinds: tuple[list[str], ...] = (["a"], ["a"], [SEMAPHORE], ["a", SEMAPHORE])

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.names = self.simulator.chance.choice(self.kinds)
        self.children_left = 0

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return self.user(self, machine, service)


class ModesScenario(ModesPlay):
    """The rules of the memory store."""

    judge: ModesJudge

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        # Without other faults the death of a client is noticed at once, too.
        self.crashes = self.crashes or (self.calm and self.simulator.chance.random() < 0.5)
        self.resizes = SEMAPHORE in self.names and self.simulator.chance.random() < self.resized
        if self.resizes:
            self.judge.most = max(LIMITS)

    def make_model(self) -> ModesModel:
        """Make the store."""
        return ModesModel(lambda: self.simulator.time, self._micros)

    def make_judge(self) -> ModesJudge:
        """Make the judge."""
        judge = ModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> Any:
        """Make the backend of a machine."""
        return NodeBackend(CAPABILITIES, "store", "listener")


class QuietScenario(ModesScenario):
    """No faults of the network, and few requests: a waiter that is not notified sleeps until it
    asks by itself. The judge also checks the store between requests.
    """

    one_calm_in = 1
    kinds = (["a"],)

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self._look()

    def _look(self) -> None:
        if not self.simulator.time or any(self.judge.users()):
            self.simulator.after(LOOK, self._look)


class EndingScenario(QuietScenario):
    """Most leases are not renewed, and expire while they are held."""

    renewed = 0.1
    works = (3.0, 6.0)

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.leases, self.crashes = (0.5, 1.0), False


class DeathsScenario(QuietScenario):
    """Clients crash while others hold for long."""

    renewed = 1.0
    works = (10.0,)
    # A dozen users hold the lock one after the other, each of them several times.
    end = 1000.0
    crash_chance = 0.4

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.leases, self.crashes, self.cancels = LEASES[0], True, False


class PersistentScenario(ModesScenario):
    """Conversions that follow an interrupted one."""

    user = PersistentUser
    lock_modes = ("shared", "update", "update")
    kinds = (["a"],)


class NumberedScenario(ModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)


class SqlModesJudge(ManyHolds, SqlJudge):
    """Checks the tables, too, between transactions."""

    def _check_rows(self) -> None:
        """The holds of each name are compatible, and have owners."""
        super()._check_rows()
        model: Any = self.model
        now = model.tables.micros()
        for name, row in model.tables.locks.items():
            if name in model.owners:
                continue
            shared = model.tables.holds.get(name, {}).values()
            valid = [each for each in shared if each["expires"] > now]
            modes = [each["mode"] for each in valid]
            if row["id"] is not None and (row["lifetime"] == "client" or row["expires"] > now):
                modes.append("exclusive")
            self._check_beside(name, modes, sum(each["permits"] for each in valid))
            if name == SEMAPHORE:
                check_numbers([Numbered.of(each) for each in shared], self.numbered)
            for each in valid:
                if each["lifetime"] != "cooling":
                    self._check_owner(each["id"], each["client"])

    def _check_beside(self, name: str, modes: list[Mode], permits: int) -> None:
        pairs = [(one, other) for n, one in enumerate(modes) for other in modes[:n]]
        if not all(pair in WAITING or pair == ("permits", "permits") for pair in pairs):
            raise Violation("exclusion", f"{name!r} is held as {modes}")
        if name == SEMAPHORE and permits > LIMIT:
            raise Violation("exclusion", f"more than {LIMIT} permits are held")

    def _check_owner(self, holder: str, client: str) -> None:
        hold = self.is_valid.get(holder)
        if hold is not None and hold.state is State.ENDED:
            raise Violation("left behind", f"{holder} was released, and holds again")
        if hold is None and self._is_abandoned(client, holder):
            raise Violation("left behind", f"{holder} holds without an owner")

    def at_rest(self) -> None:
        """Nothing is left."""
        super().at_rest()
        model: Any = self.model
        now = model.tables.micros()
        for name, holds in model.tables.holds.items():
            left = [each["id"] for each in holds.values() if each["expires"] > now]
            if left:
                raise Violation("left behind", f"{name!r} is held without an owner: {left}")


class SqlModesScenario(ModesPlay, SqlScenario):
    """Protocol "lease" of PostgreSQL."""

    def make_judge(self) -> SqlModesJudge:
        """Make the judge."""
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        judge = SqlModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class NumberedSqlScenario(SqlModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)


class SessionsModesJudge(ManyHolds, SessionsJudge):
    """Checks that the sessions have no locks at the end."""

    def at_rest(self) -> None:
        """All were served, and no session has a lock."""
        super().at_rest()
        model: Any = self.model
        for key, sessions in model.readers.items():
            for session in sessions:
                raise Violation(
                    "left behind", f"session {session.number} reads {key} without an owner"
                )


class SessionsModesScenario(ModesPlay, SessionsScenario):
    """Readers and writers by the protocols "row" and "advisory"."""

    lock_modes = ("shared", "shared", "exclusive")
    kinds = (["a"], ["a", "b"])

    def make_judge(self) -> SessionsModesJudge:
        """Make the judge."""
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        judge = SessionsModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge
