"""What the screenshots of the documentation show: the locks of an invented company, as a store
would list them. No test judges the library by it.
"""

from __future__ import annotations

import time

from leaselock import Holder, LockInfo, Waiter

URL = "redis://locks.example:6379/0"
VERSION = "1.0.0"
THREAD = "MainThread"


class ExampleStore:
    """Stands for a client whose store changes at each read."""

    url = URL

    def __init__(self) -> None:
        self.began = time.time()
        self.reads = 0

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """The locks now."""
        self.reads += 1
        return [*self._deadlock(), *self._orders(), *self._shared(), *self._jobs()]

    async def aclose(self) -> None:
        """There is nothing to close."""

    def hold(self, who: str, ago: float, lease: float | None = 30.0, **more: object) -> Holder:
        """A hold that began that many seconds before the first read, and is renewed."""
        since = self.began - ago
        host, pid, thread = _parts(who)
        token = int(since * 1e6)
        left = None if lease is None else lease - (time.time() - since) % (lease / 3)
        fields = {"label": None, "version": VERSION, "owner": who} | more
        return Holder(host, pid, thread, since, token=token, remaining=left, **fields)  # type: ignore[arg-type]

    def wait(self, who: str, ago: float, **more: object) -> Waiter:
        """A wait that began that many seconds before the first read."""
        host, pid, thread = _parts(who)
        fields = {"label": None, "version": VERSION, "owner": who} | more
        return Waiter(host, pid, thread, self.began - ago, **fields)  # type: ignore[arg-type]

    def _deadlock(self) -> list[LockInfo]:
        names = ("account:118", "account:240", "account:731")
        owners = ("pay-1:4711/transfer-3", "pay-2:812/transfer-1", "pay-2:812/transfer-6")
        found = []
        for i, name in enumerate(names):
            waiters = [self.wait(owners[i - 1], 12.0 - 4 * i, label="transfer")]
            if i == 0:
                waiters.append(self.wait("web-4:2090/worker-2", 7, label="show balance"))
            holder = self.hold(owners[i], 14.5 - i, label="transfer")
            found.append(LockInfo(name, holder, tuple(waiters), (holder,)))
        return found

    def _orders(self) -> list[LockInfo]:
        found = []
        for number in range(5001, 5012):
            holder = self.hold(f"web-{number % 4 + 1}:80{number % 10}0/worker-{number % 3}", 0.4)
            found.append(LockInfo(f"order:{number}", holder, (), (holder,)))
        late = self.hold("web-3:8121/worker-2", 41.0, label="charge the card")
        waiters = tuple(
            self.wait(f"web-{i % 4 + 1}:{8100 + i}/worker-{i % 3}", 38.0 - 5 * i) for i in range(7)
        )
        found.append(LockInfo("order:5012", late, waiters, (late,)))
        if self.reads > 1:  # granted and released while people look
            holder = self.hold("web-1:8010/worker-1", 0.2)
            found.append(LockInfo(f"order:{6000 + self.reads}", holder, (), (holder,)))
        return found

    def _shared(self) -> list[LockInfo]:
        readers = tuple(
            self.hold(f"shop-{i}:310{i}", 3.0 + i, mode="shared", label="render") for i in (1, 2, 3)
        )
        writer = self.wait("import-1:77", 2.2, mode="exclusive", label="nightly import")
        slots = tuple(
            self.hold(f"train-{i}:9{i}", 4000.0 * i, mode="permits", permits=2) for i in (1, 2)
        )
        queue = (self.wait("train-3:93", 600.0, mode="permits", permits=1),)
        return [
            LockInfo("catalog", readers[0], (writer,), readers),
            LockInfo("gpus", slots[0], queue, slots, 4),
        ]

    def _jobs(self) -> list[LockInfo]:
        leader = self.hold("cron-1:77", 187_000.0, 15.0, label="scheduler")
        migration = self.hold("deploy-9:1", 310.0, 600.0, detached=True, label="alembic upgrade")
        report = self.hold("cron-2:3020", 723.0, 30.0, label="nightly close")
        locks = {"scheduler": leader, "migrations": migration, "job:report": report}
        return [LockInfo(name, hold, (), (hold,)) for name, hold in locks.items()]


def _parts(who: str) -> tuple[str, int, str]:
    host, _, rest = who.partition(":")
    pid, _, thread = rest.partition("/")
    return host, int(pid), thread or THREAD
