"""All interleavings of two or three processes: ``python -m verification.simulation.explore``.

This is the simulator without chance. At each point the possible events are listed, and each choice
is played: the order of messages and steps, which message is lost, which process dies, and whether
time passes while a message is in flight. The last three are limited in number.
States seen before are pruned. The state consists of the answers that each process got so far, the
store, and the messages in flight. The steps of a process between two messages happen at once.
"""

from __future__ import annotations

import gc
import heapq
import sys
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from verification.models.redis_server import Server
from verification.models.sqlite_model import Model
from verification.simulation.judge import Judge, Violation
from verification.simulation.redis import ONE as SETTINGS
from verification.simulation.redis_judge import RedisJudge
from verification.simulation.redis_net import Connections, Network, SimulatedConnection
from verification.simulation.simulator import EPOCH, Faults, Machine, Simulator

from leaselock._backends.memory.store import CAPABILITIES as MEMORY
from leaselock._backends.redis.backend import CAPABILITIES as REDIS
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.store import RedisStore
from leaselock._backends.sqlite.store import CAPABILITIES as SQLITE
from leaselock._core.client.client_core import ClientCore
from leaselock._core.contract.backend import Listen
from leaselock._core.contract.effects import FOREVER, Call, Request
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.simulation.simulator import Run

# What takes no longer than this may come before or after anything else.
MOMENT = 0.0005
END = 60.0
LEASE = 2.0
NAME = "a"


Lost = Callable[[], object] | None


class Fixed(Random):
    """A generator without chance."""

    def random(self) -> float:
        """Return the minimum."""
        return 0.0


def _gone() -> None:
    """Do nothing when a message is lost."""


class Bounds(NamedTuple):
    """The numbers of processes, of acquisitions of each, and of faults in total."""

    processes: int = 2
    rounds: int = 1
    losses: int = 0
    deaths: int = 0
    delays: int = 0
    waits: bool = True


class Body(Request[None]):
    """The body of a `with`: a step that others may precede."""


class Found(NamedTuple):
    """The result of an exploration."""

    runs: int
    states: int
    grants: int
    violation: str | None
    path: tuple[int, ...]
    whole: bool
    """Whether the exploration was complete."""


class Pruned(Exception):
    """This state has been seen before."""


class ExhaustiveSimulator(Simulator):
    """One run along a path of choices; after its end, the first choice each time."""

    def __init__(self, path: tuple[int, ...], bounds: Bounds, seen: set[int]) -> None:
        super().__init__(0, {}, Faults(delay=0.0))
        self.chance = Fixed()
        self.path = path
        self.bounds = bounds
        self.seen = seen
        self.left = [bounds.losses, bounds.deaths, bounds.delays]
        self.counts: list[int] = []
        self.ready: dict[int, tuple[Callable[[], object], object, Lost]] = {}
        # What a machine does by itself, between two messages, comes at once and in one order.
        self.steps_due: dict[int, Callable[[], object]] = {}
        self.timers: list[tuple[float, int, int, Callable[[], object]]] = []
        self.logs: dict[str, int] = {}
        self.current, self.children = 0, 0
        self.salt: object = None
        self.lane: object = None
        self.lost: Lost = None
        self.travels = False
        self.machines: dict[str, Machine] = {}
        self.state: Callable[[], object] = lambda: None

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Add a possible event. Its identifier is a hash of its cause and its content."""
        self.children += 1
        name = hash((self.current, self.children, repr(self.salt)))
        if seconds < MOMENT and self.travels:
            self.ready[name] = (action, self.lane, self.lost)
        elif seconds < MOMENT:
            self.steps_due[name] = action
        else:
            heapq.heappush(self.timers, (self.time + seconds, self.children, name, action))
        self.salt, self.lane, self.lost, self.travels = None, None, None, False

    def message(
        self, salt: object, arrive: Callable[[], object], lane: object = None, lost: Lost = None
    ) -> None:
        """Something that travels, in its lane; *lost* is what happens when it does not arrive."""
        self.lane, self.salt, self.lost, self.travels = lane, salt, lost, True
        self.after(0.0, arrive)

    def step(self, run: Run, turn: int, answer: object, error: BaseException | None) -> None:
        """What a machine has seen, and in which order, is its state."""
        if not run.ended and run.turn == turn:
            name = run.machine.name
            entry = (self.logs.get(name, 0), run.name, turn, repr(answer), repr(error))
            self.logs[name] = hash(entry)
        super().step(run, turn, answer, error)

    def _call(self, run: Run, call: Call[Any], resume: Callable[..., None]) -> None:
        if call.node == "body":
            self.message(None, resume)
            return
        if isinstance(call.node, SimulatedConnection):

            def answered(answer: object) -> None:
                self.salt = answer
                self.after(0.0, lambda: self._arrive(run, answer, resume))

            call.node.start(call.request, call.until, answered)
            return
        node: Any = self.models[call.node]
        machine = run.machine.name
        if isinstance(call.request, Listen):
            # What a listener receives is not lost: it is in the process that asks it.
            def heard(claims: tuple[str, ...], hear: Callable[[tuple[str, ...]], None]) -> None:
                self.message(claims, lambda: hear(claims))

            self.listener(run, call, node, resume, heard)()
            return

        def reply(answer: object) -> None:
            self.message(answer, lambda: self._arrive(run, answer, resume), lost=_gone)

        self.at(run.machine, call.until, lambda: resume(None, StoreErrorNow()))
        self.message(call.request, lambda: node.ask(machine, call.request, reply), lost=_gone)

    # --- choosing -------------------------------------------------------------------------------

    def play(self, until: float) -> None:
        """To the end, or to a state that was seen."""
        while self.time <= until:
            if self.steps_due:
                self._step_due()
                continue
            options = [*self._options()]
            if not options:
                break
            options[self._choose(len(options))]()
            self.check()
        self.time = until

    def _step_due(self) -> None:
        name = next(iter(self.steps_due))
        self.current, self.children = name, 0
        self.steps_due.pop(name)()
        self.check()

    def _options(self) -> Iterator[Callable[[], object]]:
        lanes: set[object] = set()
        messages: list[int] = []
        for name, (_, lane, lost) in self.ready.items():
            if lane is None or lane not in lanes:
                yield self._happening(name)
                messages += [name] if lost is not None else []
            lanes.add(lane)
        if self.left[0]:
            yield from (self._losing(name) for name in messages)
        if self.left[1] and self.ready:
            yield from (self._dying(m) for m in self.machines.values() if m.alive and m.runs)
        if self.timers and (not self.ready or self.left[2]):
            yield self._waiting

    def _choose(self, count: int) -> int:
        place = len(self.counts)
        self.counts.append(count)
        if place < len(self.path):
            return self.path[place]
        names = frozenset(self.ready)
        timers = frozenset((round(at, 6), name) for at, _, name, _ in self.timers)
        logs = tuple(sorted(self.logs.items()))
        state = hash((round(self.time, 6), names, timers, logs, repr(self.state()), *self.left))
        if state in self.seen:
            self.counts.pop()
            raise Pruned
        self.seen.add(state)
        return 0

    def _happening(self, name: int) -> Callable[[], object]:
        def happen() -> None:
            action, _, _ = self.ready.pop(name)
            self.current, self.children = name, 0
            action()

        return happen

    def _losing(self, name: int) -> Callable[[], object]:
        def lose() -> None:
            self.left[0] -= 1
            _, _, lost = self.ready.pop(name)
            self.current, self.children = hash((name, "lost")), 0
            if lost is not None:
                lost()

        return lose

    def _dying(self, machine: Machine) -> Callable[[], object]:
        def die() -> None:
            self.left[1] -= 1
            self.current, self.children = hash((machine.name, "dies")), 0
            machine.crash()

        return die

    def _waiting(self) -> None:
        self.left[2] -= bool(self.ready)
        self.time, _, name, action = heapq.heappop(self.timers)
        self.current, self.children = name, 0
        action()


class StoreErrorNow(StoreError):
    """No answer in time."""

    def __init__(self) -> None:
        super().__init__("no answer in time")


class Lane(SimulatedConnection):
    """A connection that keeps its order, whatever comes between."""

    number = 0

    def _travel(self, way: int, arrive: Callable[[], object]) -> None:
        simulator: Any = self.net.simulator
        simulator.message(
            None,
            lambda: self._pass(arrive),
            (self.machine.name, self.number, way),
            # A message alone is not lost: nothing passes any more, and neither end knows.
            lambda: self.cut(aloud=False),
        )


class Direct(Network):
    """A server, and connections without chance."""

    def __init__(self, simulator: ExhaustiveSimulator) -> None:
        super().__init__(simulator)
        self.master = Address("master", 1)
        self.server = Server(lambda: int((EPOCH + simulator.time) * 1e6))
        self.listen(self.master, self.server)
        self.names = [NAME]
        # What the judge looks for in a scenario.
        self.model = self.net = self
        self.numbers = 0

    def state(self) -> object:
        """What the server has, and who listens."""
        heard = {c: len(its) for c, its in self.server.channels.items() if its}
        return self.server.data.values, self.server.data.ends, heard

    def delay(self) -> float:
        """None."""
        return 0.0

    def happens(self, chance: float) -> bool:
        """What happens is chosen elsewhere."""
        return False

    def connection(self, kind: Connections, address: Address, changed: Any) -> SimulatedConnection:
        """One that keeps its order."""
        self.numbers += 1
        made = Lane(kind, address, changed)
        made.number = self.numbers
        return made

    def arrive_connected(
        self, connection: SimulatedConnection, arrive: Callable[[], object]
    ) -> None:
        """At once."""
        self.simulator.after(0.0, arrive)

    def die(self, name: str) -> None:
        """The connections of a machine are cut, and the server knows."""
        for host in self.hosts.values():
            for link in [link for link in host.links if link.machine.name == name]:
                link.open = link.whole = False
                link.server_side.close()


def table_state(model: Model) -> object:
    """The state of a table and of its listeners."""
    entries = {
        # When a claim has asked matters only where some are passed over.
        n: (e.holds, e.token, e.lapsed_offer, e.queue if e.lapsed_offer else list(e.queue))
        for n, e in model.table.entries.items()
    }
    return (
        entries,
        model.table.tombstones,
        model.undelivered,
        sorted(model.listeners),
        model.machines,
    )


async def user(service: ClientCore, bounds: Bounds) -> None:
    """Take the lock, have it, give it back."""
    mutex = service.mutex(
        NAME, lease=LEASE, renew=True, timeout=None, reentrant=True, protocol=None, label=None
    )
    for _ in range(bounds.rounds):
        try:
            handle = await mutex.try_acquire(None if bounds.waits else 0.0)
            if handle is None:
                continue
            await Call("body", Body(), FOREVER)
            await handle.release()
        except (StoreError, LeaseLost):
            continue


def simulator_of(
    store: str, path: tuple[int, ...], bounds: Bounds, seen: set[int]
) -> tuple[ExhaustiveSimulator, Judge]:
    """The processes of one run, on their store."""
    simulator = ExhaustiveSimulator(path, bounds, seen)
    if store.startswith("redis"):
        direct = Direct(simulator)
        simulator.models = {"store": direct}  # type: ignore[dict-item]
        simulator.state = direct.state
        judge: Judge = RedisJudge(direct, False, LEASE)
    else:
        model = Model(lambda: simulator.time, lambda: int((EPOCH + simulator.time) * 1e6))
        simulator.models = {"store": model, "listener": model}
        simulator.state = lambda: table_state(model)
        judge = Judge(simulator, model, False, LEASE)
    simulator.check = judge.check
    for number in range(bounds.processes):
        _process(simulator, judge, store, f"m{number}", bounds)
    return simulator, judge


def _process(
    simulator: ExhaustiveSimulator, judge: Judge, store: str, name: str, bounds: Bounds
) -> None:
    machine = Still(simulator, name)
    if store.startswith("redis"):
        direct: Any = simulator.models["store"]
        connections = Connections(direct, machine, store == "redis tasks")
        backend: Any = RedisStore(SETTINGS, machine.now, connections, machine.random).backend(
            "hash"
        )
        backend.capabilities = REDIS
    else:
        backend = NodeBackend(MEMORY if store == "memory" else SQLITE, "store", "listener")
    service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=1.0)
    judge.enrol(machine, service)
    simulator.machines[name] = machine
    simulator.salt = name
    machine.start(user(service, bounds), "user0")


class Still(Machine):
    """A machine without chance."""

    def random(self) -> float:
        """The middle."""
        return 0.5


def explore(store: str, bounds: Bounds, most: int = 10**9) -> Found:
    """All runs, at most *most* of them; the first violation ends it."""
    seen: set[int] = set()
    stack: list[tuple[int, ...]] = [()]
    runs = grants = 0
    while stack and runs < most:
        path = stack.pop()
        simulator, judge = simulator_of(store, path, bounds, seen)
        runs += 1
        violation = _played(simulator, judge)
        grants += judge.grants
        taken = (*path, *([0] * (len(simulator.counts) - len(path))))
        if violation is not None:
            return Found(runs, len(seen), grants, violation, taken, False)
        for place in range(len(path), len(simulator.counts)):
            stack += [(*taken[:place], other) for other in range(1, simulator.counts[place])]
    return Found(runs, len(seen), grants, None, (), not stack)


def _played(simulator: ExhaustiveSimulator, judge: Judge) -> str | None:
    gc.disable()
    try:
        simulator.play(END)
        judge.at_rest()
    except Pruned:
        return None
    except Violation as found:
        return str(found)
    finally:
        for machine in simulator.machines.values():
            if machine.alive:
                machine.crash()
        gc.enable()
    return None


STORES = ("memory", "sqlite", "redis threads", "redis tasks")
WIDE = (
    Bounds(2, 1),
    Bounds(2, 1, losses=1),
    Bounds(2, 1, deaths=1),
    Bounds(2, 1, delays=1),
    Bounds(2, 2),
    Bounds(3, 1),
)
MOST = 20_000
HEAD = ("store", "processes", "rounds", "lost", "dead", "late", "runs", "states", "grants", "")


def row(store: str, bounds: Bounds, found: Found) -> str:
    """One of the table."""
    end = "all" if found.whole else found.violation or "bounded"
    columns = (store, *bounds[:5], found.runs, found.states, found.grants, end)
    return ROW.format(*columns)


ROW = "{:<14} {:>9} {:>6} {:>5} {:>5} {:>5} {:>7} {:>7} {:>8} {}"


def main() -> int:
    """Explore all stores, each with a limited number of runs."""
    most = int(sys.argv[1]) if sys.argv[1:] else MOST
    failed = 0
    print(ROW.format(*HEAD))
    for store in STORES:
        for bounds in WIDE:
            began = time.monotonic()
            found = explore(store, bounds, most)
            print(row(store, bounds, found), f"{time.monotonic() - began:.1f} s", flush=True)
            failed += found.violation is not None
    return failed


if __name__ == "__main__":
    sys.exit(main())
