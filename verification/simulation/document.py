"""Scenarios on a store that compares and sets one value.

The store reports changes or not, returns the present document with a conflict or not, and tells its
time or not. The clocks of the machines have different rates, and that of the store is wrong by less
than it says.
"""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from verification.simulation.election import Periods
from verification.simulation.judge import ValidityJudge, Violation
from verification.simulation.modes import (
    LIMIT,
    LIMITS,
    SEMAPHORE,
    TOGETHER,
    WAITING,
    ManyHolds,
    ModesPlay,
    Numbered,
    PersistentUser,
    check_numbers,
)
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.simulator import EPOCH, Faults, Machine, Simulator
from verification.simulation.user import User

from leaselock._backends.document.adapter import (
    Changed,
    Changes,
    Conflict,
    Delete,
    Found,
    Get,
    List,
    Page,
    Put,
    Stored,
    Traits,
)
from leaselock._backends.document.backend import DocumentBackend
from leaselock._backends.url import TOKEN_TTL
from leaselock._core.client.hold import State
from leaselock._core.contract.effects import Call, Sleep
from leaselock._core.rows.rules import FORGET_AFTER
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.client.client_core import ClientCore

# How much the clocks of two machines may run apart, and how much later than the earliest of the
# servers the clocks of the others are; `Traits.clock_uncertainty` is more than that and a second.
RATE, APART = 0.0004, 0.9
TRAITS = Traits(soonest_poll=0.003)
# In calm scenarios, for how long a lock may be idle while others wait that poll.
POLLED_STALL = 2.5
# By how many seconds a period may be longer than it is: drift, margins and the way to the store.
LENGTHENED = 0.06
# The probability that a machine comes back after a crash, and when.
RETURNS, RETURN_MEAN = 0.5, 1.0


class Documents:
    """The store. A conflict returns the *current* document, or does not."""

    def __init__(self, simulator: Simulator, current: bool, clock: bool) -> None:
        self.simulator, self.current, self.clock = simulator, current, clock
        self.documents: dict[str, tuple[bytes, int]] = {}
        self.parsed: dict[str, dict[str, Any]] = {}
        self.changes = 0
        self.machines: dict[str, str] = {}
        # What looks for changes, by the machine of the listener.
        self.watches: dict[str, Callable[[], None]] = {}
        self.granted: Callable[[str, dict[str, Any], dict[str, Any]], None] = _nothing

    def now(self) -> float | None:
        """What one of the servers says, in whole seconds as HTTP has it."""
        if not self.clock:
            return None
        return float(int(EPOCH + self.simulator.time + self.simulator.chance.uniform(0.0, APART)))

    def found(self, name: str) -> Found:
        """What there is."""
        value, version = self.documents.get(name, (None, None))
        return Found(value, version, self.now())

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Carry out one request."""
        if isinstance(request, Get):
            reply(self.found(request.name))
        elif isinstance(request, Put):
            reply(self._put(request))
        elif isinstance(request, Delete):
            reply(self._delete(request))
        elif isinstance(request, List):
            reply(Page([(name, None) for name in self.documents]))
        else:
            raise TypeError(f"not a request to the store: {request!r}")

    def _put(self, request: Put) -> Stored | Conflict:
        name = request.name
        if self.found(name).version != request.version:
            return Conflict(self.found(name) if self.current else None)
        self.changes += 1
        before, document = self.parsed.get(name, EMPTY), json.loads(request.value)
        for entry in (*document["holds"], *document["queue"]):
            self.machines.setdefault(entry["client"], entry["client"].partition(".")[0])
        self.granted(name, before, document)
        self.parsed[name] = document
        self.documents[name] = (request.value, self.changes)
        self._tell()
        return Stored(self.changes, self.now())

    def _delete(self, request: Delete) -> bool:
        if request.version is None or self.found(request.name).version != request.version:
            return False
        self.changes += 1
        del self.documents[request.name], self.parsed[request.name]
        self._tell()
        return True

    def _tell(self) -> None:
        for look in list(self.watches.values()):
            look()

    def die(self, machine: str) -> None:
        """Forget the watch of this machine."""
        self.watches.pop(machine, None)

    def alive(self, client: str) -> bool:
        """The store does not know which clients are alive."""
        return True

    @property
    def table(self) -> Any:
        """Holds and waiters by their names, for the judge of stalls."""
        entries = {}
        for name, document in self.parsed.items():
            entries[name] = SimpleNamespace(
                holds={hold["id"]: hold for hold in document["holds"]},
                queue={each["id"]: SimpleNamespace(**each) for each in document["queue"]},
            )
        return SimpleNamespace(entries=entries)


EMPTY: dict[str, Any] = {"n": 0, "token": 0, "lapsed_offer": 0, "holds": [], "queue": []}


def _nothing(name: str, before: dict[str, Any], document: dict[str, Any]) -> None:
    """No judge looks."""


class Listening:
    """The listener of each machine. Reports are delayed, and some are lost: with the connection, or
    so that only the names are known.
    """

    def __init__(self, store: Documents) -> None:
        self.store, self.simulator = store, store.simulator

    def handle(
        self,
        machine: Machine,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """Wait for changes."""
        simulator, request = self.simulator, call.request
        assert isinstance(request, Changes)
        done = found = False

        def end(answer: object) -> None:
            nonlocal done
            if not done:
                done = True
                request.interrupt.remove(wake)
                if self.store.watches.get(machine.name) is look:
                    del self.store.watches[machine.name]
                if wanted():
                    reply(answer)

        def wake() -> None:
            end(())

        def look() -> None:
            nonlocal found
            changes = self._changes(dict(request.versions))
            if changes and not (found or done):
                found = True
                answer = self._perhaps_lost(changes)
                simulator.after(simulator.delay(simulator.faults), lambda: end(answer))

        if request.interrupt.is_set:
            end(())
            return
        request.interrupt.wakers.append(wake)
        simulator.at(machine, call.until, wake)
        self.store.watches[machine.name] = look
        simulator.after(simulator.delay(simulator.faults), look)

    def _changes(self, versions: dict[str, Any]) -> list[Changed]:
        found = {name: self.store.found(name)._replace(now=None) for name in versions}
        return [
            Changed(name, found[name]) for name in versions if found[name].version != versions[name]
        ]

    def _perhaps_lost(self, changes: list[Changed]) -> object:
        chance = self.simulator.chance
        if chance.random() >= self.simulator.faults.lost_message:
            return changes
        if chance.random() < 0.5:
            return NotApplied("the watch was lost")
        return [change._replace(found=None) for change in changes]

    def die(self, client: str) -> None:
        """The store forgets the watch."""


class DocumentJudge(ValidityJudge):
    """Checks each write: numbers and tokens rise, holds are compatible, each belongs to an owner,
    and no waiter is overtaken that was not passed over.
    """

    model: Any

    def __init__(self, simulator: Simulator, model: Any, calm: bool, longest: float) -> None:
        super().__init__(simulator, model, calm, longest)
        model.granted = self._check_write
        # When each sign of life of a waiter was written.
        self.alive_at: dict[tuple[str, int], float] = {}
        if calm:
            self.stall = POLLED_STALL

    def _check_write(self, name: str, before: dict[str, Any], document: dict[str, Any]) -> None:
        if document["token"] < before["token"]:
            raise Violation("token", f"the token of {name!r} goes back")
        if document["n"] <= before["n"]:
            raise Violation("answer", f"the number of writes of {name!r} goes back")
        holds = document["holds"]
        pairs = [(a, b) for a in holds for b in holds if a is not b]
        for one, other in pairs:
            pair = (mode_of(one), mode_of(other))
            if pair not in WAITING and pair != ("permits", "permits"):
                raise Violation(
                    "exclusion", f"{name!r} is held by {one['id']} and {other['id']}: {pair}"
                )
        for claim in document["queue"]:
            self.alive_at.setdefault((claim["id"], claim["beat"]), self.simulator.time)
        had = {hold["id"] for hold in before["holds"]}
        for hold in holds:
            known = self.is_valid.get(hold["id"])
            if hold["id"] not in had:
                self._check_overtaken(hold, before, document)
                if known is not None and known.state is State.ENDED:
                    raise Violation("left behind", f"{hold['id']} was released, and holds again")

    def _check_overtaken(
        self, hold: dict[str, Any], before: dict[str, Any], document: dict[str, Any]
    ) -> None:
        queue = {claim["id"]: claim for claim in before["queue"]}
        order = list(queue)
        ahead = order[: order.index(hold["id"])] if hold["id"] in queue else order
        for claim in document["queue"]:
            if claim["id"] not in ahead or beside(claim, hold):
                continue
            passed = claim["beat"] < document["lapsed_offer"]
            # One that was dropped because it showed no sign of life for long, and has come back in
            # the same write, has lost its place.
            silent_since = self.alive_at[claim["id"], queue[claim["id"]]["beat"]]
            silent = self.simulator.time - silent_since >= FORGET_AFTER * (1.0 - 2.0 * RATE)
            back = claim["beat"] == document["n"] and silent
            if not (passed or back):
                raise Violation("order", f"{hold['id']} overtook {claim['id']}, which came earlier")

    def check(self) -> None:
        """After each step."""
        super().check()
        if not self.is_unchanged(self.model.changes):
            self._check_stalls(self.valid_now)

    def _over(self, name: str) -> bool:
        return True

    def _ready(self, client: str) -> bool:
        machine = self._machine(client)
        return machine is not None and machine.alive and super()._ready(client)

    def _machine(self, client: str) -> Machine | None:
        return self.machines.get(self.model.machines.get(client, ""))

    def at_rest(self) -> None:
        """All were served. The entries of a client that is dead or has lost them stay until another
        client asks for the lock.
        """
        self.all_were_served()
        self.all_was_released()
        for name, document in self.model.parsed.items():
            for claim in document["queue"]:
                machine = self._machine(claim["client"])
                if machine is not None and machine.alive:
                    raise Violation(
                        "left behind", f"a waiter is left in the queue of {name!r}: {claim['id']}"
                    )
            for hold in document["holds"]:
                machine, known = self._machine(hold["client"]), self.is_valid.get(hold["id"])
                alive = machine is not None and machine.alive
                if alive and known is None and not hold.get("offered"):
                    raise Violation(
                        "left behind", f"{name!r} is held without an owner: {hold['id']}"
                    )


def mode_of(entry: dict[str, Any]) -> str:
    """The mode of a hold or a waiter."""
    mode: str = entry.get("mode", "exclusive")
    return mode


def beside(claim: dict[str, Any], hold: dict[str, Any]) -> bool:
    """Whether a waiter may be overtaken by a hold that it does not conflict with."""
    return (mode_of(claim), mode_of(hold)) in TOGETHER


class DocumentScenario(Scenario):
    """Exclusive locks."""

    backend: type[DocumentBackend] = DocumentBackend

    def make_model(self) -> Any:
        """Make the store."""
        chance = self.simulator.chance
        self.watch, current, clock = (chance.random() < 0.5 for _ in range(3))
        return Documents(self.simulator, current, clock)

    def make_judge(self) -> Any:
        """Make the judge."""
        self.simulator.models = {"store": self.model, "listener": Listening(self.model)}
        return DocumentJudge(self.simulator, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> DocumentBackend:
        """Make the backend of a machine, whose clock has a rate of its own."""
        machine.rate = 1.0 + self.simulator.chance.uniform(-RATE, RATE)
        return self.backend(
            "store",
            "listener" if self.watch else None,
            TRAITS,
            describe=described,
            now=machine.now,
            wall=machine.wall,
            random=machine.random,
            random_id=machine.random_id,
            token_ttl=TOKEN_TTL,
        )

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """The child has the clock of its parent."""
        child.rate = parent.rate
        return {}

    def _disturb(self) -> None:
        before = [machine for machine in self.judge.machines.values() if machine.alive]
        super()._disturb()
        for machine in before:
            chance = self.simulator.chance
            if not machine.alive and self.simulator.time < HEAL and chance.random() < RETURNS:
                name = f"{machine.name}again"
                self.simulator.after(
                    chance.expovariate(1 / RETURN_MEAN), partial(self._machine, name)
                )


def described(name: str) -> tuple[str, str]:
    """How messages name a document, and its removal."""
    return f"the document {name!r}", "delete it"


class DocumentModesJudge(ManyHolds, DocumentJudge):
    """Checks the limit of a semaphore in each write, too."""

    def _check_write(self, name: str, before: dict[str, Any], document: dict[str, Any]) -> None:
        super()._check_write(name, before, document)
        if name == SEMAPHORE:
            had = {hold["id"] for hold in before["holds"]}
            entered = [hold for hold in document["holds"] if hold["id"] not in had]
            used = sum(hold.get("permits", 1) for hold in document["holds"])
            if entered and used > document["limit"]:
                raise Violation("exclusion", f"more than {document['limit']} permits are held")
            check_numbers([Numbered.of(hold) for hold in document["holds"]], self.numbered)


class DocumentModesScenario(ModesPlay, DocumentScenario):
    """Readers, writers, updates and permits."""

    judge: Any

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.resizes = SEMAPHORE in self.names and self.simulator.chance.random() < self.resized
        if self.resizes:
            self.judge.most = max(LIMIT, *LIMITS)

    def make_judge(self) -> DocumentModesJudge:
        """Make the judge."""
        super().make_judge()
        judge = DocumentModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class NumberedDocumentScenario(DocumentModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)


class DocumentPeriodJudge(DocumentJudge):
    """In calm scenarios a lock does not stay taken for longer than its period. Drift and margin are
    added once to the time that a write says, and may have been once before.
    """

    period: float
    align: bool

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        # When each grant that was used began.
        self.begun: dict[int, float] = {}

    def _check_write(self, name: str, before: dict[str, Any], document: dict[str, Any]) -> None:
        super()._check_write(name, before, document)
        for hold in document["holds"]:
            begun = self.begun.setdefault(hold["token"], self.simulator.time)
            # From the write that has changed the hold, which may be an earlier one.
            free = hold.get("free", 0.0) if hold["beat"] == document["n"] else 0.0
            longer = self.simulator.time + free > begun + self.period + LENGTHENED
            if self.calm and not self.align and free > LENGTHENED and longer:
                raise Violation("period", f"{hold['id']} stays for longer than its period")

    def at_rest(self) -> None:
        """All were served."""
        self.all_were_served()
        self.all_was_released()


class DocumentPeriodScenario(Periods, DocumentScenario):
    """Runs once per period."""

    def make_judge(self) -> Any:
        """Make the judge."""
        self.choose_periods()
        super().make_judge()
        judge = DocumentPeriodJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.period, judge.align = self.period, self.align
        return judge


class PersistentDocumentScenario(DocumentModesScenario):
    """Conversions that follow an interrupted one."""

    user = PersistentUser
    lock_modes = ("shared", "update", "update")
    kinds = (["a"],)


# The scenario of stopped waiters, in seconds: when they stop, when the lock is released, and how
# soon after that the living ones behind them must have had it. An offer lasts two seconds.
STOPPED_AT, RELEASED_AT, SERVED_WITHIN = 8.0, 10.0, 4.0
LIVING = 2
# The scenario of processes that only try: their lease, how often one tries, and how long after the
# end of the holder's lease one must have the lock. It is twice what the store's time may be wrong.
TRIED_LEASE, TRY_EACH, TRIED_WITHIN = 3.0, 0.7, 4.5


class Queuer(User):
    """Waits for the lock once; the first one has it until RELEASED_AT."""

    scenario: StoppedWaitersScenario

    async def live(self) -> None:
        """Acquire and release."""
        number = int(self.machine.name[1:])
        await Sleep(self.machine.now() + 0.1 + 0.5 * number)
        handle = await self._mutex().acquire(None)
        if number == 0:
            await Sleep(RELEASED_AT * self.machine.rate)
        self.scenario.serve(number)
        await self._release(handle)


class StoppedWaitersScenario(DocumentScenario):
    """The first waiters are dead when the lock is released. They delay the living ones behind them
    by one offer in all.
    """

    users = (1,)
    end = 40.0

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.served: list[int] = []
        super().__init__(seed, traced)
        self.names, self.leases, self.children_left = ["a"], (20.0,), 0
        self.judge.stall = RELEASED_AT
        self.simulator.faults = self._faults()
        self.begin()

    def begin(self) -> None:
        """Choose who stops."""
        dead = self.simulator.chance.choice((3, 4, 5))
        for number in range(len(self.judge.machines), 1 + dead + LIVING):
            self._machine(f"m{number}")
        for number in range(1, 1 + dead):
            self.simulator.after(STOPPED_AT, self.judge.machines[f"m{number}"].crash)
        self.simulator.after(RELEASED_AT + SERVED_WITHIN, self._check)

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return Queuer(self, machine, service)

    def serve(self, number: int) -> None:
        """The living ones answer the offer to the dead one before them, and keep their order."""
        if self.served and number < self.served[-1]:
            raise Violation("order", f"m{self.served[-1]} overtook m{number}, which came earlier")
        self.served.append(number)

    def _faults(self) -> Faults:
        return Faults(delay=self.simulator.chance.choice((0.0005, 0.005)))

    def _disturb(self) -> None:
        """No other faults."""

    def _check(self) -> None:
        if len(self.served) < 1 + LIVING:
            raise Violation("progress", "dead waiters delay the living ones one after the other")


# The scenario of a far client: for how long its writes are on their way, until when the others
# contend, how many they are and for how long each of them holds.
FAR, FAR_WAY, RUSH, NEAR, NEAR_HOLD = "m0", 0.2, 6.0, 4, 0.02
# When the users of the far client begin, and how long each waits; None: without end.
FAR_FROM, FAR_TIMEOUTS = 0.5, (0.0, 3.0, None)


class FarDocuments(Documents):
    """The store. A write of the far client is on its way for long."""

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Carry out one request."""
        arrive = partial(super().ask, machine, request, reply)
        if machine == FAR and isinstance(request, Put):
            self.simulator.after(FAR_WAY, arrive)
        else:
            arrive()


class Near(User):
    """Acquires and releases without a pause."""

    async def live(self) -> None:
        """Contend until the end of the rush."""
        while self.machine.now() < RUSH * self.machine.rate:
            handle = await self._mutex().acquire(None)
            await Sleep(self.machine.now() + NEAR_HOLD)
            await self._release(handle)


class FarUser(User):
    """Acquires once, among those who are always faster."""

    scenario: FarScenario

    async def live(self) -> None:
        """Get the lock, or a refusal. That others are faster is no error."""
        await Sleep(self.machine.now() + FAR_FROM)
        try:
            handle = await self._mutex().try_acquire(self.scenario.far_timeouts.pop())
        except StoreError as error:
            raise Violation("answer", f"an acquire that others outrun ended: {error}") from None
        if handle is not None:
            await self._release(handle)


class FarScenario(StoppedWaitersScenario):
    """The writes of one client take longer than the others need to change the document. Its claims
    have no place in the queue until these are done, and are not refused with an error.
    """

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.far_timeouts: list[float | None] = [*FAR_TIMEOUTS]
        super().__init__(seed, traced)

    def make_model(self) -> Any:
        """The store has a far client."""
        made = super().make_model()
        return FarDocuments(self.simulator, made.current, made.clock)

    def begin(self) -> None:
        """Have enough contend."""
        for number in range(len(self.judge.machines), 1 + NEAR):
            self._machine(f"m{number}")
        machine, service = self.judge.machines[FAR], self.judge.services[FAR]
        for number in range(1, len(FAR_TIMEOUTS)):
            machine.start(self.make_user(machine, service).live(), f"user{number}")

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return (FarUser if machine.name == FAR else Near)(self, machine, service)


class Trying(User):
    """Tries once, and dies with the lock if it gets it."""

    scenario: TriesScenario

    async def live(self) -> None:
        """Try."""
        mutex = self.service.mutex(
            "a",
            lease=TRIED_LEASE,
            renew=True,
            timeout=0.0,
            reentrant=True,
            protocol=None,
            label=None,
        )
        if await mutex.try_acquire() is not None:
            self.scenario.grants += 1
            self.simulator.after(0.0, self.machine.crash)

    @property
    def simulator(self) -> Simulator:
        """Where it lives."""
        return self.scenario.simulator


class TriesScenario(StoppedWaitersScenario):
    """Processes that try once and end, as those of cron. The first of them dies with the lock.
    Where the store tells its time, another one takes it over.
    """

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.grants = 0
        super().__init__(seed, traced)

    def make_model(self) -> Any:
        """The store tells its time."""
        self.watch = False
        return Documents(self.simulator, self.simulator.chance.random() < 0.5, True)

    def begin(self) -> None:
        """One process after the other."""
        chance = self.simulator.chance
        for number in range(10):
            self.simulator.after(
                TRY_EACH * (number + chance.random()), partial(self._machine, f"t{number}")
            )
        self.simulator.after(TRIED_LEASE + TRIED_WITHIN, self._check)

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return Trying(self, machine, service)

    def _check(self) -> None:
        if self.grants < 2:
            raise Violation("progress", "processes that only try never take a dead hold over")
