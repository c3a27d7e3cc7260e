"""Unique tasks of Celery, with prefork workers and a broker: each end is killed at each moment.

The README beside this file says what these tests show.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis as redis_py
from celery.exceptions import TaskRevokedError
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Program, Programs

pytestmark = pytest.mark.nightly

# "start NAME PID RETRIES" and "end NAME PID" are written to `events`.
TASKS = """
    import os, signal, time
    from celery import Celery, chord, signals
    from leaselock.contrib import celery as integration
    from leaselock.contrib.celery import unique

    URL = os.environ["REDIS"]
    integration.SENDING = 3.0
    app = Celery("tasks", broker=os.environ.get("BROKER", URL), backend=URL)
    app.conf.update(
        task_reject_on_worker_lost=True, worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
        broker_transport_options={
            "visibility_timeout": float(os.environ.get("VISIBILITY", 3600)),
            "polling_interval": 0.1,
        },
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    once = unique("sync:{account}", store=URL, countdown=0.3, lease=3.0)

    def event(*words):
        with open("events", "a") as file:
            file.write(" ".join(map(str, words)) + "\\n")

    def wait_for(name):
        while not os.path.exists(name):
            time.sleep(0.02)

    def body(self, account, until):
        event("start", account, os.getpid(), self.request.retries)
        if until:
            wait_for(until)
        event("end", account, os.getpid())
        return account

    @app.task(bind=True, acks_late=True, max_retries=None, base=once)
    def sync(self, account, until=None):
        return body(self, account, until)

    @app.task(bind=True, base=once)
    def early(self, account, until=None):
        return body(self, account, until)

    @app.task(bind=True, max_retries=3, base=once)
    def retried(self, account, times, countdown, until=None):
        event("start", account, os.getpid(), self.request.retries)
        if until:
            wait_for(until)
        event("end", account, os.getpid())
        if self.request.retries < times:
            raise self.retry(countdown=countdown)
        return self.request.retries

    @app.task(base=unique("all", store=URL))
    def unbound(values):
        return sorted(values)

    if "KILL_AT_SEND" in os.environ:
        @signals.before_task_publish.connect
        def die(**_):
            os.kill(os.getpid(), signal.SIGKILL)
"""
SENDER = """
    from tasks import sync
    sync.delay("a")
"""


@pytest.fixture
def tasks(
    programs: Programs, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The module of the tasks, as the process imports it that sends them."""
    programs.write("tasks.py", TASKS)
    monkeypatch.setenv("REDIS", redis.url)
    name = f"tasks_{uuid.uuid4().hex}"
    spec = importlib.util.spec_from_file_location(name, programs.folder / "tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    for task in (module.sync, module.early, module.retried, module.unbound):
        # The name by which a worker knows it.
        module.app.tasks[task.name.replace(name, "tasks")] = module.app.tasks.pop(task.name)
        type(task._get_current_object()).name = task.name.replace(name, "tasks")
    yield module
    module.integration.client_of(redis.url).close()
    module.integration._clients.clear()
    module.app.close()
    del sys.modules[name]


def start_worker(programs: Programs, redis: Redis, **env: str) -> Program:
    """Start a worker with two processes, and wait until it is ready."""
    words = ["celery", "-A", "tasks", "worker", "--concurrency", "2", "--pool", "prefork"]
    words += ["--loglevel", "INFO", "--without-mingle", "--without-gossip"]
    worker = programs.start(*words, env={"REDIS": redis.url, **env})
    eventually(lambda: " ready." in worker.output(), 300.0)
    return worker


def runs(programs: Programs) -> list[str]:
    """The accounts of the runs that have ended; fail if two of one account were beside each other.

    A run that was killed writes no end, and its next start takes its place.
    """
    inside: dict[str, str] = {}
    ended = []
    for kind, name, pid, *_ in (line.split() for line in programs.lines("events")):
        if kind == "start":
            if name in inside:
                with pytest.raises(ProcessLookupError):
                    os.kill(int(inside[name]), 0)
            inside[name] = pid
        else:
            assert inside.pop(name) == pid
            ended.append(name)
    return ended


def held(redis: Redis) -> set[str]:
    """The names of the locks that are held."""
    with leaselock.Client(redis.url) as client:
        return {info.name for info in client.locks() if info.holder}


def test_equal_tasks_are_queued_once_and_a_killed_worker_loses_none(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    first = tasks.sync.delay("a", "go")
    assert {tasks.sync.delay("a").id for _ in range(3)} == {first.id}
    other = tasks.sync.delay("b")
    start_worker(programs, redis)
    assert other.get(timeout=120) == "b"
    started = programs.wait_for_lines("events", 1)[0].split()
    eventually(lambda: held(redis) == {"sync:a"})
    assert tasks.sync.delay("a").id == first.id

    pid = next(int(line.split()[2]) for line in programs.lines("events") if " a " in line)
    assert started
    os.kill(pid, signal.SIGKILL)
    assert tasks.sync.delay("a").id == first.id  # the lease of the dead one
    (programs.folder / "go").write_text("")
    assert first.get(timeout=120) == "a"
    assert sorted(runs(programs)) == ["a", "b"]
    eventually(lambda: held(redis) == set())
    again = tasks.sync.delay("a")
    assert again.id != first.id
    assert again.get(timeout=120) == "a"
    assert sorted(runs(programs)) == ["a", "a", "b"]


def test_a_task_that_is_lost_with_its_process_is_free_when_its_lease_ends(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    """Acknowledged when it is received, so the broker does not deliver it again."""
    start_worker(programs, redis)
    lost = tasks.early.delay("a", "never")
    pid = int(programs.wait_for_lines("events", 1)[0].split()[2])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: held(redis) == set(), 120.0)
    again = tasks.early.delay("a")
    assert again.id != lost.id
    assert again.get(timeout=120) == "a"


def test_a_retry_keeps_others_out_until_it_has_run(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    start_worker(programs, redis)
    task = tasks.retried.delay("a", 2, 1.0)
    for number in (1, 2):
        programs.wait_for_lines("events", 2 * number)
        eventually(lambda: held(redis) == {"sync:a:queued"})
        assert tasks.retried.delay("a", 2, 1.0).id == task.id
    assert task.get(timeout=120) == 2
    assert runs(programs) == ["a"] * 3
    assert [line.split()[3] for line in programs.lines("events")[::2]] == ["0", "1", "2"]
    eventually(lambda: held(redis) == set())


def test_a_countdown_counts_as_queued(programs: Programs, redis: Redis, tasks: Any) -> None:
    later = tasks.sync.apply_async(("a",), countdown=600)
    assert tasks.sync.delay("a").id == later.id
    with leaselock.Client(redis.url) as client:
        holder = client.lock("sync:a:queued").holder()
    assert holder is not None
    assert 4100 < (holder.remaining or 0) <= 4200


def test_a_revoked_and_an_expired_task_are_free(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    start_worker(programs, redis)
    revoked = tasks.sync.apply_async(("a",), countdown=600)
    eventually(lambda: any(tasks.app.control.inspect(timeout=2).scheduled() or {}), 120.0)
    tasks.app.control.revoke(revoked.id)
    # A worker looks at what it has scheduled when it is due; one that it receives it drops at once.
    expired = tasks.sync.apply_async(("b",), expires=-1)
    with pytest.raises(TaskRevokedError):
        expired.get(timeout=120)
    eventually(lambda: held(redis) == {"sync:a:queued"}, 120.0)
    assert tasks.sync.delay("b").get(timeout=120) == "b"


def test_a_task_that_was_revoked_before_a_worker_had_it_is_free(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    start_worker(programs, redis)
    blocking = [tasks.sync.delay(name, "go") for name in ("x", "y")]
    programs.wait_for_lines("events", 2)
    task = tasks.sync.delay("a")
    answers = tasks.app.control.revoke(task.id, reply=True, timeout=60, limit=1)
    assert answers
    (programs.folder / "go").write_text("")
    with pytest.raises(TaskRevokedError):
        task.get(timeout=120)
    assert [each.get(timeout=120) for each in blocking] == ["x", "y"]
    eventually(lambda: held(redis) == set())
    assert tasks.sync.delay("a").get(timeout=120) == "a"


def test_equal_members_of_a_chord_run_one_after_the_other(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    start_worker(programs, redis)
    header = [tasks.sync.s("a"), tasks.sync.s("a"), tasks.sync.s("b")]
    result = tasks.chord(header)(tasks.unbound.s())
    assert result.get(timeout=120) == ["a", "a", "b"]
    assert sorted(runs(programs)) == ["a", "a", "b"]
    eventually(lambda: held(redis) == set())


def test_a_sender_that_dies_keeps_others_out_for_seconds(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    """It dies with the lock, before the message is sent."""
    programs.write("sender.py", SENDER)
    sender = programs.start("sender", env={"REDIS": redis.url, "KILL_AT_SEND": "1"})
    assert sender.process.wait(120) == -signal.SIGKILL
    assert held(redis) == {"sync:a:queued"}
    eventually(lambda: held(redis) == set(), 60.0)
    start_worker(programs, redis)
    assert tasks.sync.delay("a").get(timeout=120) == "a"
    assert runs(programs) == ["a"]


def test_a_message_that_is_delivered_twice_does_not_run_beside_itself(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    """As by a broker whose visibility timeout is shorter than the task."""
    task = tasks.sync.delay("a", "go")
    with redis_py.Redis.from_url(redis.url) as broker:
        message = json.loads(cast("bytes", broker.lindex("celery", 0)))
        worker = start_worker(programs, redis)
        programs.wait_for_lines("events", 1)
        message["properties"]["delivery_tag"] = str(uuid.uuid4())
        broker.lpush("celery", json.dumps(message))
    eventually(lambda: "could not acquire 'sync:a'" in worker.output(), 120.0)
    assert runs(programs) == []
    (programs.folder / "go").write_text("")
    assert task.get(timeout=120) == "a"
    eventually(lambda: held(redis) == set(), 120.0)
    assert runs(programs) == ["a", "a"]


def test_a_task_sent_by_its_name_is_dropped_by_the_worker_if_an_equal_one_is_queued(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    queued = tasks.sync.apply_async(("a",), countdown=600)
    start_worker(programs, redis)
    dropped = tasks.app.send_task("tasks.sync", ("a",))
    with pytest.raises(TaskRevokedError, match="an equal task is queued"):
        dropped.get(timeout=120)
    assert tasks.app.send_task("tasks.sync", ("b",)).get(timeout=120) == "b"
    assert tasks.sync.delay("a").id == queued.id
    assert runs(programs) == ["b"]
