"""Scenarios about elections and about runs that happen once per period.

In `Elections` each machine campaigns, writes with its fencing token to a resource while it leads,
resigns now and then, and has a watcher. On Redis machines are partitioned from the server, which
restarts; on ZooKeeper servers are partitioned from each other. In `Periods` each machine tries
again and again to run once per period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.judge import Judge, Violation
from verification.simulation.redis import RedisScenario
from verification.simulation.redis_judge import RedisJudge
from verification.simulation.scenario import HEAL, TIMEOUT, Scenario
from verification.simulation.simulator import Machine
from verification.simulation.sql import SqlJudge, SqlScenario
from verification.simulation.user import User
from verification.simulation.zoo import EnsembleScenario

from leaselock._backends.redis.keys import keys_of
from leaselock._core.client.client_core import ClientCore
from leaselock._core.contract.backend import WATCH_INTERVAL
from leaselock._core.contract.effects import Sleep
from leaselock._core.rows.rules import COOLING
from leaselock.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.redis_judge import Keys
    from verification.simulation.simulator import Faults

    from leaselock._backends.redis.backend import RedisBackend
    from leaselock._core.client.election import Candidacy, Term
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.backend import HoldRecord
    from leaselock._core.rows.entry_row import Entry

# In calm scenarios a change is reported within this many seconds. The end of a fixed lease is one.
REPORTED_WITHIN = 0.5
PERIODS = (0.5, 2.0, 5.0)
# The longest partition. A watcher tolerates three times as much.
PARTITIONED = 10.0
# The end of the owner that is left of a hold on Redis that cools down.
RELEASED = ":released"
# What the sums of floats may differ by.
ROUNDING = 1e-3


def same(handle: Any) -> Any:
    """What a leader gets instead of a lease."""
    return handle


class AsyncMachine(Machine):
    """A machine whose bodies can be interrupted, as those of asyncio."""

    def body_interrupter(self) -> Body:
        """What interrupts the process that takes this step, or the body that it calls."""
        return Body(self)


class Body:
    """Interrupts one body when its lease is lost."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.owner = machine.owner()
        self.interrupted = False

    def interrupt(self) -> None:
        """Interrupt the body, unless it takes this step itself."""
        if self.interrupted or self.machine.owner() is self.owner:
            return
        self.interrupted = True
        runs = [run for run in self.machine.runs if run.owner is self.owner]
        self.machine.simulator.interrupt(runs[-1])

    def finish(self, exception: BaseException | None) -> bool:
        """Return whether this object has interrupted the body."""
        return self.interrupted and exception is not None


class Candidate(User):
    """A process that stands for election."""

    scenario: Elections
    leading: LeaseHandle | None = None

    async def _once(self) -> None:
        lease = self.chance.choice(self.scenario.leases)
        name = self.chance.choice(self.scenario.names)
        part = self.service.election(name, lease=lease, protocol=None, label=None)
        self.terms = 0
        self.part = part
        try:
            result = await part.run(self._lead, same)
        except StoreError as error:
            if self.terms:
                raise Violation("answer", f"run has ended with the store: {error}") from None
            raise
        if result != "done":
            raise Violation("answer", f"run has ended, but the work was {result}")

    async def _lead(self, handle: LeaseHandle) -> str:
        self.leading = handle
        try:
            return await self._act(handle)
        finally:
            self.leading = None

    async def _act(self, handle: LeaseHandle) -> str:
        self.terms += 1
        term = self.part.terms.get(self.part.mutex.name)
        if term is None or term.handle is not handle:
            raise Violation("token", "a leader has no term")
        steps = self.chance.choice((1, 2, 4))
        for _ in range(steps):
            await self._pause(self.chance.choice(self.scenario.works))
            if handle.released or handle.lost():
                return "interrupted"
            if self.chance.random() < 0.1:
                await self._resign(term, handle)
                return "resigned"
        return "done"

    async def _resign(self, term: Term, handle: LeaseHandle) -> None:
        try:
            await self.part.resign()
        except (LeaseLost, StoreError):
            return
        if not (handle.released or handle.lost()):
            raise Violation("exclusion", "a leader that has resigned leads on")


class Elections(Scenario):
    """One seed of elections, on any store, with a watcher on each machine."""

    works = (0.05, 0.5, 2.0)
    # All partitions end before a watcher gives up.
    watchers_go_on = True

    def _machine(self, name: str) -> None:
        machine = self.simulator.chance.choice((Machine, AsyncMachine))(self.simulator, name)
        backend = self.make_backend(machine)
        service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=TIMEOUT)
        self.judge.enrol(machine, service)
        user = Candidate(self, machine, service)
        machine.start(user.live(), "user0")
        machine.start(self._resigner(machine, user), "resigner")
        for watched in self.names:
            machine.start(self._follow(machine, service, watched), "watcher")

    def _faults(self) -> Faults:
        faults = super()._faults()
        # A frozen process takes the time that passes for a silence of the store.
        self.watchers_go_on = self.watchers_go_on and not faults.freeze
        return faults

    async def _resigner(self, machine: Machine, user: Candidate) -> None:
        """Another thread of the machine, which resigns for it."""
        while self.simulator.time < HEAL:
            await Sleep(machine.now() + self.simulator.chance.expovariate(0.2))
            part: Candidacy | None = getattr(user, "part", None)
            term = part.terms.get(part.mutex.name) if part is not None else None
            if part is None or term is None or term.handle is None:
                continue
            handle = term.handle
            try:
                resigned = await part.resign()
            except StoreError:
                continue
            if resigned and handle.hold.is_valid(machine.now()):
                raise Violation("loss", "the lease of a leader that has resigned is valid")
            if resigned and isinstance(machine, AsyncMachine) and user.leading is handle:
                raise Violation("loss", "the body of a leader that has resigned goes on")

    async def _follow(self, machine: Machine, service: ClientCore, name: str) -> None:
        watcher = service.election(name, lease=1.0, protocol=None, label=None).watch()
        reported = False
        while True:
            try:
                change = await watcher.next()
            except StoreError as error:
                if reported and self.watchers_go_on:
                    raise Violation(
                        "answer", f"a watcher has ended with the store: {error}"
                    ) from None
                await Sleep(machine.now() + 1.0)
                continue
            reported = True
            self.told(machine, name, change.holder.token if change and change.holder else None)

    def told(self, machine: Machine, name: str, token: int | None) -> None:
        """A watcher reports the token of the leader."""

    def _cancel(self, machine: Machine) -> None:
        """A body is its process, too."""
        bodies = [run for run in machine.runs if run.name == "body"]
        for run in bodies[:1]:
            self.simulator.interrupt(run)
        if not bodies:
            super()._cancel(machine)


class Notified(Elections):
    """On a store that notifies watchers of each change."""

    def told(self, machine: Machine, name: str, token: int | None) -> None:
        """A watcher reports the token of the leader."""
        judge: Any = self.judge
        judge.reports[machine.name, name] = token


class ElectionScenario(Notified):
    """On the rules."""

    def make_judge(self) -> WatchingJudge:
        """With the reports of the watchers."""
        return WatchingJudge(self.simulator, self.model, self.calm, max(self.leases))


class RedisElectionScenario(Notified, RedisScenario):
    """On Redis. Machines are partitioned from the server for a while, which may be longer than a
    lease: what they send arrives afterwards, or what the server sends, or neither before.
    """

    def make_judge(self) -> RedisWatchingJudge:
        """With the reports of the watchers."""
        return RedisWatchingJudge(self, self.calm, max(self.leases))

    def troubles(self) -> list[Callable[[], None]]:
        """Mostly partitions."""
        return [*super().troubles(), self.partition, self.partition, self.partition]

    def partition(self) -> None:
        """Delay the messages of a machine, in one direction or in both."""
        chance = self.simulator.chance
        name = chance.choice(sorted(self.judge.machines))
        ways = chance.choice(((0,), (1,), (0, 1)))
        seconds = min(PARTITIONED, chance.expovariate(0.3))
        self.note(f"is partitioned from {name} for {seconds:.3f} s, in directions {ways}")
        for way in ways:
            self.net.partitioned[name, way] = self.simulator.time + seconds


class ZooElectionScenario(Elections, EnsembleScenario):
    """On ZooKeeper, whose servers are partitioned from each other."""

    watchers_go_on = False


class WatchingJudge(Judge):
    """Compares what watchers reported last with what the store has."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        # By machine and name: the token of the holder, or None.
        self.reports: dict[tuple[str, str], int | None] = {}
        self.differs_since: dict[tuple[str, str], float] = {}

    def check(self) -> None:
        """After each step."""
        super().check()
        late = REPORTED_WITHIN if self.calm else 2 * WATCH_INTERVAL + self.stall
        for key, token in self.reports.items():
            machine = self.machines[key[0]]
            if not machine.alive or token == self._present(key[1]):
                self.differs_since.pop(key, None)
                continue
            since = self.differs_since.setdefault(key, self.simulator.time)
            if self.simulator.time > since + late:
                raise Violation("progress", f"{key[0]} has not reported a change of {key[1]!r}")

    def _present(self, name: str) -> int | None:
        entry = self.model.table.entries.get(name)
        holds = () if entry is None else entry.holds.values()
        alive = [h for h in holds if h.expires > self.simulator.time and self.model.alive(h.client)]
        return alive[0].token if alive else None


class RedisWatchingJudge(WatchingJudge, RedisJudge):
    """With Redis as the store."""

    def _present(self, name: str) -> int | None:
        keys = self._keys(name)
        return None if not keys.holder or self._ended(keys) else int(keys.token)


class Runner(User):
    """A process that runs once per period, if another has not."""

    scenario: Periods

    async def _once(self) -> None:
        await self._pause(0.3)
        handle = await self.service.once(
            "a",
            self.scenario.period,
            self.scenario.align,
            lease=self.chance.choice(self.scenario.leases),
            protocol=None,
            label=None,
        )
        if handle is None:
            return
        self.scenario.ran(handle)
        try:
            await self._pause(self.chance.choice(self.scenario.works))
        except GeneratorExit:
            raise
        except BaseException:
            await self._release(handle)
            raise
        await self._release(handle)


class Periods(Scenario):
    """One seed of runs per period, on any store whose tokens are its clock in microseconds."""

    works = (0.001, 0.3, 3.0)

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.period, self.align = 1.0, False
        self.last_run = 0
        super().__init__(seed, traced)

    def choose_periods(self) -> None:
        """Choose the length of the periods, and what they begin with."""
        self.period = self.simulator.chance.choice(PERIODS)
        self.align = self.simulator.chance.random() < 0.4
        self.rounds = (10, 20, 40)

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a process that runs once per period."""
        return Runner(self, machine, service)

    def ran(self, handle: LeaseHandle) -> None:
        """A run begins: it is in a later period than the one before."""
        before, now = self.last_run / 1e6, handle.hold.token / 1e6
        if self.align:
            again = now // self.period <= before // self.period
        else:
            again = now < before + self.period - ROUNDING
        if self.last_run and again and not self.judge.breaking:
            raise Violation(
                "period", f"{handle.hold.claim.id} runs in the period of the run before"
            )
        self.last_run = handle.hold.token


class PeriodScenario(Periods):
    """On the rules, whose state is checked, too."""

    def make_judge(self) -> PeriodJudge:
        """Of periods."""
        self.choose_periods()
        judge = PeriodJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.period, judge.align, judge.micros = self.period, self.align, self._micros
        return judge

    def ran(self, handle: LeaseHandle) -> None:
        """A run begins."""
        judge: Any = self.judge
        judge.used.add(handle.hold.token)
        super().ran(handle)


class SqlPeriodJudge(SqlJudge):
    """A hold that cools down has no owner."""

    def _is_abandoned(self, client: str, holder: str) -> bool:
        return not holder.startswith(COOLING) and super()._is_abandoned(client, holder)


class SqlPeriodScenario(Periods, SqlScenario):
    """On the tables of protocol "lease"."""

    def make_judge(self) -> SqlPeriodJudge:
        """Of tables, in which a lock may cool down."""
        self.choose_periods()
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        return SqlPeriodJudge(self.simulator, self.model, self.calm, max(self.leases))


class PeriodJudge(Judge):
    """Checks that each period has one grant, and that no period passes without a reason."""

    period: float
    align: bool
    micros: Any

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        # The tokens of the grants that were used, and when each grant began.
        self.used: set[int] = set()
        self.begun: dict[int, float] = {}
        # When the period of the last used grant ends.
        self.next_from = 0.0

    def is_cooling(self, holder: str) -> bool:
        """A hold that cools down has no owner."""
        return holder.startswith(COOLING)

    def check(self) -> None:
        """After each step."""
        super().check()
        for entry in self.model.table.entries.values():
            self._check_period(entry)

    def _check_period(self, entry: Entry) -> None:
        for hold in entry.holds.values():
            if hold.token not in self.begun:
                self._begins(hold)
            if hold.token in self.used:
                self.next_from = self._end_of(self.begun[hold.token])
            if hold.lifetime == "cooling":
                self._check_cooling(hold)

    def _begins(self, hold: HoldRecord) -> None:
        now = self.simulator.time
        self.begun[hold.token] = now
        if now < self.next_from - ROUNDING and not self.breaking:
            raise Violation(
                "period", f"{hold.id} runs {self.next_from - now:.3f} s before the next period"
            )

    def _end_of(self, begun: float) -> float:
        if not self.align:
            return begun + self.period
        wall: float = self.micros() / 1e6 - self.simulator.time + begun
        return begun + self.period - wall % self.period

    def _check_cooling(self, hold: HoldRecord) -> None:
        if hold.token not in self.used:
            raise Violation("period", f"{hold.id} cools down, although it never ran")
        if hold.expires > self._end_of(self.begun[hold.token]) + ROUNDING:
            raise Violation("period", f"{hold.id} cools down for longer than its period")


class RedisPeriodScenario(Periods, RedisScenario):
    """On Redis, whose scripts keep a lock taken."""

    form = "hash"

    def make_judge(self) -> RedisPeriodJudge:
        """Of the keys."""
        self.choose_periods()
        # A grant that is not confirmed by replicas is given back, which ends its period.
        self.settings = self.settings._replace(replicas=0)
        return RedisPeriodJudge(self, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> RedisBackend:
        """Make the production backend."""
        backend = super().make_backend(machine)
        backend.capabilities = backend.capabilities._replace(min_hold=True)
        return backend

    def ran(self, handle: LeaseHandle) -> None:
        """A run begins. Tokens are not the time after the clock was set back."""
        judge: Any = self.judge
        judge.is_used(handle.hold.token)


class RedisPeriodJudge(RedisJudge):
    """Checks that each period has one run, by the server's clock at the grants."""

    def __init__(self, scenario: RedisPeriodScenario, calm: bool, longest: float) -> None:
        super().__init__(scenario, calm, longest)
        self.period = round(scenario.period * 1000)
        self.align = scenario.align
        # The highest time of the server's clock, in ms. A period that has ended does not begin
        # anew when the clock is set back.
        self.latest = 0
        # By token, on that clock: when the grant began, and when its period ends.
        self.begun: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.used: set[int] = set()

    def check(self) -> None:
        """After each step."""
        self.latest = max(self.latest, self.scenario.micros() // 1000)
        super().check()

    def is_used(self, token: int) -> None:
        """The grant with this token was reported to its user, who runs."""
        self.used.add(token)
        if token not in self.ends:
            raise Violation(
                "period", f"a run begins, and the end of its period was not noted: {token}"
            )
        for later, begun in self.begun.items():
            if later > token:
                self._check_apart(token, later, begun)

    def is_cooling(self, holder: str) -> bool:
        """A hold that cools down has no owner."""
        return holder.endswith(RELEASED)

    def _check_token(self, name: str, holder: str, word: bytes) -> None:
        if not self.is_cooling(holder):
            super()._check_token(name, holder, word)

    def _check_change(self, name: str, holder: str, keys: Keys) -> None:
        super()._check_change(name, holder, keys)
        if not holder:
            return
        now, token = keys.data.micros() // 1000, int(keys.token)
        if token not in self.begun:
            self.begun[token] = self.latest
            for used in self.used:
                self._check_apart(used, token, self.latest)
        lock: Any = keys.data.values[keys_of(name).lock.encode()]
        if b"free_from" in lock:
            self._check_kept(holder, token, int(lock[b"free_from"]), now)
            if keys.end < self.ends[token] - 1:
                raise Violation("period", f"{holder} can end before its period")
        if self.is_cooling(holder):
            self._check_cooling(holder, token, keys)

    def _check_apart(self, token: int, later: int, begun: int) -> None:
        if begun < self.ends[token] and not self.breaking:
            raise Violation(
                "period", f"{later} runs {self.ends[token] - begun} ms before the next period"
            )

    def _check_kept(self, holder: str, token: int, free_from: int, now: int) -> None:
        first = token not in self.ends
        if self.ends.setdefault(token, free_from) != free_from:
            raise Violation("period", f"the period of {holder} was changed")
        left = free_from - now
        if not first:
            return
        if self.align and (free_from % self.period > 1 or not 0 < left <= self.period + 1):
            raise Violation("period", f"the period of {holder} does not end with one of the clock")
        if not (self.align or self.period <= left <= self.period + 1):
            raise Violation("period", f"the period of {holder} is {left} ms")

    def _check_cooling(self, holder: str, token: int, keys: Keys) -> None:
        if token not in self.used:
            raise Violation("period", f"{holder} cools down, although it never ran")
        if keys.end > self.ends[token] + 1:
            raise Violation("period", f"{holder} cools down for longer than its period")
