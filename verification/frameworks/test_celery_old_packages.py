"""Tasks of celery-once and celery-singleton beside those of `unique`, with real workers.

docs/how-to/migrate.md says what these tests show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Program, Programs

pytestmark = pytest.mark.nightly

# Both programs have the tasks `once` and `singleton`, which write a line to `runs`.
COMMON = """
    import os
    from celery import Celery

    URL = os.environ["REDIS"]
    app = Celery("moved", broker=URL, backend=URL)
    app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)

    def run(self, account):
        with open("runs", "a") as file:
            file.write(f"{account} {self.request.id}\\n")
"""
OLD = """
    from celery_once import QueueOnce
    from celery_singleton import Singleton
    from common import URL, app, run

    app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": URL}}
    app.conf.singleton_backend_url = URL
    app.task(run, bind=True, base=QueueOnce, name="once", once={"keys": ["account"]})
    app.task(run, bind=True, base=Singleton, name="singleton", unique_on=["account"])
"""
NEW = """
    from common import URL, app, run
    from leaselock.contrib.celery import unique

    for name in ("once", "singleton"):
        app.task(run, bind=True, base=unique(name + ":{account}", store=URL), name=name)
"""
SEND = """
    import importlib, sys
    from celery_once import AlreadyQueued

    program, task, account = sys.argv[1:]
    try:
        print(importlib.import_module(program).app.tasks[task].delay(account).id)
    except AlreadyQueued:
        print("refused")
"""


class Moving:
    """The two programs, and their common broker."""

    def __init__(self, programs: Programs, redis: Redis, task: str) -> None:
        self.programs, self.redis, self.task = programs, redis, task
        for name, text in (("common", COMMON), ("old", OLD), ("new", NEW), ("send", SEND)):
            programs.write(f"{name}.py", text)

    def start(self, *words: str) -> Program:
        """Start a module."""
        return self.programs.start(*words, env={"REDIS": self.redis.url})

    def worker(self, program: str) -> Program:
        """A worker of one of the programs, which is ready."""
        words = ("-A", program, "worker", "--pool", "solo", "--loglevel", "INFO")
        worker = self.start("celery", *words, "--without-mingle", "--without-gossip")
        eventually(lambda: " ready." in worker.output(), 300.0)
        return worker

    def send(self, program: str, account: str) -> str:
        """The id of the task that was sent or queued before, or "refused"."""
        return self.start("send", program, self.task, account).ended().strip()

    def ran(self, account: str) -> list[str]:
        """The ids of the tasks that have run."""
        lines = [line.split() for line in self.programs.lines("runs")]
        return [task_id for of, task_id in lines if of == account]

    def must_run(self, program: str, account: str) -> None:
        """Send it until it has run once more: it may be refused until the run before has ended."""
        before = len(self.ran(account))
        eventually(
            lambda: bool(self.send(program, account)) and len(self.ran(account)) > before, 300.0
        )

    def must_be_refused(self, program: str, account: str) -> None:
        """Nothing is sent: the task that is named instead has run."""
        assert self.send(program, account) in (*self.ran(account), "refused")


@pytest.mark.parametrize("task", ["once", "singleton"])
def test_a_worker_frees_only_what_its_own_package_has_locked(
    programs: Programs, redis: Redis, task: str
) -> None:
    moving = Moving(programs, redis, task)
    for program, other, account in (("old", "new", "a"), ("new", "old", "b")):
        worker = moving.worker(other)
        moving.must_run(program, account)
        moving.must_be_refused(program, account)
        for _ in range(2):
            moving.must_run(other, account)  # it does not see the lock of the other package
        moving.must_be_refused(program, account)
        worker.process.terminate()
        assert worker.process.wait(300.0) == 0
