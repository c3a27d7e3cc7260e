"""One cell of the table: a trial of one hazard with one locking method, in processes of its own.

Each lock name is used once. A trial gives back the processes and closes the proxies that it used. A
failed first acquire of a free lock is an error of the trial, never an outcome.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Self

from testkit.polling import poll_until
from verification.hazards.interference import NetworkFault, ProcessFault, ProxiedConnection
from verification.hazards.outcome import TrialEnded, does_not_apply
from verification.hazards.register import Register
from verification.hazards.stores import SQL_SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.hazards.interference import PlannedFault
    from verification.hazards.methods import Method
    from verification.hazards.process_pool import ProcessPool, WorkerProcess
    from verification.hazards.stores import HazardStore
    from verification.hazards.worker import Result

# A lease that does not end during a trial.
LONG = 30.0
# After the end of a lease, a lock may take this long to be free: more than a busy machine needs.
GRACE = 3.0
SOON = 8.0
# Methods whose lease has whole seconds, or is the session timeout.
LEASES = {"setnx-expire": 1.0, "row": SQL_SESSION, "advisory": SQL_SESSION}
# At most this many accesses of an acquire or a release get a fault.
MOST_ACCESSES = 4
RETRIES = 3
# On a busy machine, a free lock may not be granted for this long.
BUSY = 20.0


class Trial:
    """The processes, the lock and the register of one cell."""

    def __init__(self, pool: ProcessPool, method: Method, store: HazardStore, number: int) -> None:
        self.pool = pool
        self.method = method
        self.store = store
        self.base = f"{store.prefix}.{number}"
        self.name = self.base
        self.url = store.cell_url(number, ours=method.ours)
        self.workers: list[WorkerProcess] = []
        self.connections: list[ProxiedConnection] = []
        self.register = Register()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.give_back()
        for connection in self.connections:
            connection.close()
        self.register.close()

    # --- workers ----------------------------------------------------------------------------------

    @property
    def lease(self) -> float:
        """A short lease; or the session timeout, where a hold ends with the session."""
        return LEASES.get(self.method.protocol, self.store.lease)

    @property
    def bound(self) -> float:
        """The longest time until the lock of a dead holder must be free."""
        return self.lease + self.store.uncertainty + GRACE

    @property
    def over(self) -> float:
        """The time after which a lock whose lease is not renewed is most probably free."""
        return self.lease + self.store.uncertainty + 1.5

    def worker(self, *, skew: float = 0.0) -> WorkerProcess:
        """Return a process that runs a program of this method."""
        worker = self.pool.take(fresh=bool(skew))
        self.workers.append(worker)
        worker.start_program(self.method, self.url, skew)
        return worker

    def observed_worker(self) -> ObservedWorker:
        """Return a process whose accesses to the store are counted and can get faults."""
        connection = ProxiedConnection(self.store, self.url)
        self.connections.append(connection)
        local = not self.store.networked
        worker = self.pool.take(fresh=local)
        self.workers.append(worker)
        worker.start_program(self.method, connection.url, count_calls=local)
        return ObservedWorker(self, worker, connection)

    def numbered_locks(self) -> Iterator[int]:
        """Yield 1, 2, 3, …, and use a new lock for each."""
        for number in range(1, MOST_ACCESSES + 1):
            self.name = f"{self.base}.{number}"
            yield number

    def require_network(self) -> None:
        """End the trial if there is no network between program and store."""
        if not self.store.networked:
            raise TrialEnded(does_not_apply("there is no network in between"))

    # --- operations -------------------------------------------------------------------------------

    def try_acquire(self, worker: WorkerProcess, lease: float = LONG, renew: bool = True) -> Result:
        """Try to acquire the lock once."""
        return worker.run("acquire", self.name, lease, renew, 0.0)

    def acquire_within(self, worker: WorkerProcess, timeout: float, lease: float = LONG) -> Result:
        """Wait for the lock."""
        return worker.run("acquire", self.name, lease, True, timeout)

    def must_acquire(
        self, worker: WorkerProcess, lease: float = LONG, *, renew: bool = True
    ) -> Result:
        """Acquire the free lock; on a busy machine this may take a while."""
        return acquire_free(worker, self.name, lease, renew)

    def release(self, worker: WorkerProcess) -> str:
        """Release the lock; return the reported error as text."""
        return describe_error(worker.run("release", self.name))


class ObservedWorker:
    """A worker with connections of its own, on which faults can be planned."""

    def __init__(self, trial: Trial, worker: WorkerProcess, connection: ProxiedConnection) -> None:
        self.trial = trial
        self.worker = worker
        self.connection = connection
        self.last: Result | None = None

    def warm_up(self) -> None:
        """Make it connect, so that a fault affects an operation and not a handshake."""
        name = f"{self.trial.name}.warm"
        acquire_free(self.worker, name, LONG, True)
        self.worker.run("release", name)

    def plan_fault(self, action: str, nth: int) -> PlannedFault:
        """Plan a fault for the *nth* access to the store from now on."""
        if self.connection.proxies:
            return NetworkFault(self.connection.proxies, action, nth)
        return ProcessFault(self.worker, nth)

    def begin(self, fault: PlannedFault, command: str, *arguments: Any) -> bool:
        """Begin a command; return whether the fault was triggered before its end."""
        self.worker.begin(command, *arguments)
        poll_until(lambda: fault.triggered() or self.worker.ready(), SOON)
        if fault.triggered():
            return True
        self.last = self.worker.result()
        fault.withdraw()
        return False

    def begin_acquire(self, fault: PlannedFault, lease: float = LONG) -> bool:
        """Begin to acquire the lock; return whether the fault was triggered."""
        return self.begin(fault, "acquire", self.trial.name, lease, True, 0.0)

    def result(self) -> Result:
        """Wait for the result of the command that was begun."""
        if self.last is None:
            self.last = self.worker.result()
        return self.last

    def kill(self) -> None:
        """Kill the process; the kernel closes its connections."""
        if self.worker.state() == "T":
            self.worker.signal(signal.SIGKILL)
        self.worker.kill()
        self.connection.cut()

    def accesses(self, timeout: float) -> int:
        """Return the number of accesses to the store during a vain wait of *timeout* seconds."""
        before = self.connection.requests() + self.worker.run("report").steps
        waited = self.trial.acquire_within(self.worker, timeout)
        if waited.held:
            raise RuntimeError("a lock that is held was granted")
        return self.connection.requests() + waited.steps - before

    def messages(self, seconds: float) -> int:
        """Return the number of messages sent within *seconds*."""
        before = self.connection.requests()
        # The length of the measurement, not a wait.
        time.sleep(seconds)
        return self.connection.requests() - before


def acquire_free(worker: WorkerProcess, name: str, lease: float, renew: bool) -> Result:
    """Acquire a lock that is free."""
    deadline = time.monotonic() + BUSY
    while not (result := worker.run("acquire", name, lease, renew, SOON)).held:
        if time.monotonic() > deadline:
            break
    else:
        return result
    raise RuntimeError(f"a lock that was free was not granted: {result.message}")


def plural(number: int, noun: str) -> str:
    """Return 1 step, 2 steps."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_error(result: Result) -> str:
    """Return the error that the program raised, as text."""
    return f"got {result.error}" if result.error else "got no error"
