"""Celery: prefork workers, one of them killed in the middle of a task."""

from __future__ import annotations

import datetime
import os
import signal
import uuid
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, Task
from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    OperationalError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    TaskRevokedError,
)
from celery.local import Proxy
from kombu.connection import Connection
from kombu.transport.memory import Channel
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock
from leaselock.contrib import celery as contrib
from leaselock.contrib.celery import client_of, on_client, single, unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contrib.conftest import Programs

HOUR = datetime.timedelta(hours=1)
# Nothing listens on port 1.
CLOSED = "redis://127.0.0.1:1/0"
# What a task does is written to `events`: "start NAME PID" and "end NAME PID".
TASKS = """
    import os, time
    from celery import Celery
    from leaselock.contrib.celery import single

    url = os.environ["REDIS"]
    app = Celery("tasks", broker=url, backend=url)
    app.conf.update(
        task_reject_on_worker_lost=True, worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
    )

    def event(*words):
        with open("events", "a") as file:
            file.write(" ".join(map(str, words)) + "\\n")

    def wait_for(name):
        while not os.path.exists(name):
            time.sleep(0.02)

    @app.task(bind=True, acks_late=True, max_retries=None)
    @single("sync:{account}", store=url, countdown=0.2, lease=3.0)
    def sync(self, account, name, until=None):
        event("start", name, os.getpid())
        if until:
            wait_for(until)
        event("end", name, os.getpid())
        return name

    @app.task(bind=True)
    @single("sync:{account}", store=url, busy="skip")
    def skipped(self, account):
        event("not skipped")

    @app.task(bind=True, soft_time_limit=1.0)
    @single("limited", store=url, lease=600.0)
    def limited(self):
        event("start limited")
        wait_for("never")
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def tasks_of(url: str) -> Celery:
    """The application, as the process sees it that sends tasks."""
    return Celery("tasks", broker=url, backend=url)


@pytest.mark.heavy
def test_prefork_workers_one_killed_in_mid_task(programs: Programs, redis: Redis) -> None:
    programs.write("tasks.py", TASKS)
    words = ["celery", "-A", "tasks", "worker", "--concurrency", "2", "--pool", "prefork"]
    worker = programs.start(*words, "--loglevel", "INFO", env={"REDIS": redis.url})
    app = tasks_of(redis.url)

    first = app.send_task("tasks.sync", ("a", "first", "go"))
    (started,) = programs.wait_for_lines("events", 1)
    second = app.send_task("tasks.sync", ("a", "second"))
    other = app.send_task("tasks.sync", ("b", "other"))
    app.send_task("tasks.skipped", ("a",))
    assert other.get(timeout=120) == "other"
    eventually(lambda: "Retry in 0.2s" in worker.output())

    os.kill(int(started.split()[2]), signal.SIGKILL)
    # The lease ends by itself, then either of the two tasks of account a runs, and then the other.
    (programs.folder / "go").write_text("")
    assert first.get(timeout=120) == "first"
    assert second.get(timeout=120) == "second"
    inside = None
    for kind, name, pid in (line.split() for line in programs.lines("events")[1:]):
        if name == "other":
            continue
        if kind == "start":
            assert inside is None
            inside = name, pid
        else:
            assert inside == (name, pid)
            inside = None

    # The lease is long, so the lock is free only because it was released.
    limited = app.send_task("tasks.limited")
    limited.get(timeout=120, propagate=False)
    assert limited.state == "FAILURE"
    with leaselock.Client(redis.url) as client:
        assert not client.lock("limited").locked()
    assert "not skipped" not in programs.lines("events")
    app.close()


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def task_of(url: str, **options: Any) -> Any:
    """A task that is called in this process."""
    app = Celery("here")

    @app.task(bind=True, max_retries=None)  # type: ignore[untyped-decorator]
    @single("sync:{account}", store=url, **options)
    def sync(self: Any, account: str) -> str:
        return account

    return sync


def test_the_clients_of_a_process_are_instrumented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrib, "_hooks", [])
    seen: list[leaselock.Client] = []
    urls = [f"memory://{uuid.uuid4().hex}" for _ in range(2)]
    before = client_of(urls[0])
    on_client(seen.append)
    after = client_of(urls[1])
    assert client_of(urls[1]) is after
    assert [client for client in seen if client in (before, after)] == [before, after]
    before.close()
    after.close()


def test_a_task_runs_under_its_lock(url: str) -> None:
    assert task_of(url)("a") == "a"
    assert task_of(url)(account="a") == "a"


@pytest.mark.parametrize(
    ("busy", "error"), [("retry", Retry), ("skip", Ignore), ("reject", Reject)]
)
def test_a_busy_task_is_put_off(url: str, busy: str, error: type[Exception]) -> None:
    with leaselock.Client(url) as other, other.lock("sync:a"):
        with pytest.raises(error):
            task_of(url, busy=busy)("a")
        assert task_of(url, busy=busy)("b") == "b"
    assert task_of(url, busy=busy)("a") == "a"


def test_errors_of_a_task_stay_its_own(url: str) -> None:
    app = Celery("here")

    @app.task(bind=True)  # type: ignore[untyped-decorator]
    @single("sync", store=url)
    def nested(self: Any) -> None:
        with leaselock.Client(url) as client, client.lock("another", timeout=0):
            pass

    other = leaselock.Client(url)
    with other, other.lock("another"), pytest.raises(leaselock.AcquireTimeout, match="another"):
        nested()
    nested()


def test_a_wrong_word_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"'retry', 'skip', 'reject'.*'ignore' is 'skip' now"):
        task_of(url, busy="ignore")


def test_a_task_without_retries_left_names_the_lock_and_its_holder(url: str) -> None:
    app = Celery("here", set_as_current=False)

    @app.task(bind=True, max_retries=0)  # type: ignore[untyped-decorator]
    @single("sync", store=url)
    def sync(self: Any) -> None: ...

    other = leaselock.Client(url, label="the other")
    with other, other.lock("sync"):
        failed = sync.apply().result
    assert isinstance(failed, MaxRetriesExceededError)
    assert "could not acquire 'sync'" in str(failed)
    assert "the other" in str(failed)


def test_a_task_that_is_not_bound_is_refused_at_once(url: str) -> None:
    app = Celery("here", set_as_current=False)

    @app.task  # type: ignore[untyped-decorator]
    @single("sync:{account}", store=url)
    def sync(account: str) -> None: ...

    @app.task  # type: ignore[untyped-decorator]
    @single("all", store=url)
    def everything() -> None: ...

    for call in (lambda: sync("a"), everything):
        with pytest.raises(TypeError, match="bind=True"):
            call()


def test_single_above_the_task_is_refused(url: str) -> None:
    """A worker, beat or `send_task` would run the function inside, without the lock."""
    app = Celery("here", set_as_current=False)

    @app.task(bind=True)  # type: ignore[untyped-decorator]
    def sync(self: Any) -> None: ...

    evaluated = sync._get_current_object()
    shared = Proxy(lambda: evaluated)  # what shared_task returns
    for task in (sync, evaluated, shared):
        with pytest.raises(TypeError, match=r"write @app\.task first, and @single"):
            single("sync", store=url)(task)
    with pytest.raises(TypeError, match=r"base=unique\(...\)"):
        unique("sync", store=url)(sync)


def test_a_name_that_the_task_cannot_complete_is_refused_when_it_is_decorated(url: str) -> None:
    with pytest.raises(ValueError, match="needs 'y', which is no parameter"):
        single("a:{y}", store=url)(lambda self, x: None)
    with pytest.raises(TypeError, match="'timout': did you mean timeout="):
        single("a", store=url, timout=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'timout': did you mean timeout="):
        unique("a", store=url, timout=5)  # type: ignore[call-arg]


def unique_task(url: str, template: str = "sync:{account}", **options: Any) -> Any:
    """A unique task, which is sent to a broker in this process."""
    app = Celery("here", broker="memory://", backend="cache+memory://", set_as_current=False)

    @app.task(bind=True, base=unique(template, store=url, **options))  # type: ignore[untyped-decorator]
    def sync(self: Any, account: str) -> str:
        return account

    return sync


def sent(task: Any) -> int:
    """How many messages are in the queue of the broker."""
    with task.app.connection_for_read() as connection, connection.channel() as channel:
        found: int = channel.queue_declare("celery").message_count
        return found


def locks(url: str) -> list[str]:
    """The names of the locks that are held."""
    with leaselock.Client(url) as client:
        return [info.name for info in client.locks() if info.holder]


@pytest.fixture(autouse=True)
def an_empty_broker() -> None:
    """The broker in this process is one for all applications."""
    Channel.queues.clear()


def test_a_unique_task_is_sent_once(url: str) -> None:
    task = unique_task(url)
    first = task.delay("a")
    assert task.delay(account="a").id == first.id
    assert task.delay("b").id != first.id
    assert sent(task) == 2
    assert sorted(locks(url)) == ["sync:a:queued", "sync:b:queued"]


def test_a_unique_task_is_not_sent_while_another_program_holds_its_lock(url: str) -> None:
    task = unique_task(url)
    with leaselock.Client(url) as other, other.lock("sync:a"):
        refused = task.delay("a")
        assert sent(task) == 0
        with pytest.raises(TaskRevokedError, match="'sync:a' is queued or runs already"):
            refused.get(timeout=1)
    assert locks(url) == []
    task.delay("a")
    assert sent(task) == 1


def test_a_refused_task_whose_id_was_chosen_ends_as_revoked(url: str) -> None:
    task = unique_task(url)
    task.delay("a")
    assert task.apply_async(("a",), task_id="chosen").id == "chosen"
    with pytest.raises(TaskRevokedError):
        task.AsyncResult("chosen").get(timeout=1)


def test_a_unique_task_that_is_busy_raises_if_asked_to(url: str) -> None:
    task = unique_task(url, busy="raise")
    first = task.delay("a")
    with pytest.raises(leaselock.AcquireTimeout, match=first.id):
        task.delay("a")


@pytest.mark.parametrize("awaited", [{"link": "other"}, {"chord": "body"}])
def test_a_task_whose_end_something_waits_for_is_always_sent(
    url: str, awaited: dict[str, Any]
) -> None:
    task = unique_task(url)
    task.delay("a")
    task.apply_async(("a",), **dict.fromkeys(awaited, task.si("b")))
    assert sent(task) == 2


def test_a_task_that_could_not_be_sent_keeps_none_out(url: str) -> None:
    task = unique_task(url)
    closed = Connection(CLOSED)  # type: ignore[no-untyped-call]
    with pytest.raises(OperationalError):
        task.apply_async(("a",), connection=closed)
    assert locks(url) == []


def test_a_unique_task_that_is_called_or_eager_takes_no_lock(url: str) -> None:
    task = unique_task(url)
    with leaselock.Client(url) as other, other.lock("sync:a"):
        assert task("a") == "a"
        assert task.apply(("a",)).get() == "a"
        task.app.conf.task_always_eager = True
        assert task.delay("a").get() == "a"


def test_wrong_arguments_of_unique_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="'skip', 'raise'"):
        unique("sync", busy="retry")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="queued is a number of seconds"):
        unique("sync", queued=0)
    with pytest.raises(ValueError, match="'acount', which is no parameter"):
        unique_task(url, "sync:{acount}").delay("a")


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        # Made by the test: it may run long after it was collected.
        (dict, 0.0),
        (lambda: {"countdown": 5}, 5.0),
        (lambda: {"eta": datetime.datetime.now(datetime.UTC) + HOUR}, 3600.0),
        (lambda: {"eta": (datetime.datetime.now() + HOUR).isoformat()}, 3600.0),
    ],
)
def test_the_bound_begins_when_the_task_is_due(
    url: str, options: Callable[[], dict[str, Any]], seconds: float
) -> None:
    task = unique_task(url, queued=1000.0)
    task.apply_async(("a",), **options())
    with leaselock.Client(url) as client:
        holder = client.lock("sync:a:queued").holder()
    assert holder is not None
    assert holder.remaining == pytest.approx(1000.0 + seconds, abs=100.0)


def run(task: Any, task_id: str, token: int, account: str = "a") -> Any:
    """Run a message as a worker does. *token* is that of the lease of the queue."""
    headers = {"leaselock_name": f"sync:{account}", "leaselock_token": token}
    context = {"id": task_id, "headers": headers, "args": (account,), "kwargs": {}, "retries": 0}
    kept = dict.fromkeys(("callbacks", "errbacks", "chord", "chain"))
    task.push_request(called_directly=False, delivery_info={}, **context, **kept)
    try:
        return task(account)
    finally:
        task.pop_request()


def queued(url: str, account: str = "a") -> int:
    """Take the lease of the queue, as the sender of a message does; return its token."""
    lock = client_of(url).lock(f"sync:{account}:queued", lease=3600.0, renew=False, owner="lock")
    lease = lock.acquire()
    lease.detach()
    return lease.token


def test_a_message_that_runs_before_its_sender_is_done_leaves_nothing_locked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sender and worker are threads of one process."""
    task = unique_task(url)
    extend = leaselock.Lease.extend
    tokens: list[int] = []

    def overtaken(self: leaselock.Lease, seconds: float) -> None:
        extend(self, seconds)
        if not tokens:
            tokens.append(self.token)
            worker = Thread(target=run, args=(task, "x", self.token))
            worker.start()
            worker.join()

    monkeypatch.setattr(leaselock.Lease, "extend", overtaken)
    task.delay("a")
    assert len(tokens) == 1
    assert locks(url) == []


def test_a_message_that_ends_while_it_waits_for_its_lock_leaves_nothing_locked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, token = unique_task(url), queued(url)
    enter = leaselock.Lock.__enter__

    def limited(self: leaselock.Lock) -> leaselock.Lease:
        if self.name == "sync:a":
            raise SoftTimeLimitExceeded
        return enter(self)

    monkeypatch.setattr(leaselock.Lock, "__enter__", limited)
    with pytest.raises(SoftTimeLimitExceeded):
        run(task, "x", token)
    assert locks(url) == []


def test_a_message_that_cannot_be_put_off_leaves_nothing_locked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, token = unique_task(url), queued(url)

    def down(*_: object, **__: object) -> None:
        raise OperationalError("the broker is away")

    with leaselock.Client(url) as other, other.lock("sync:a"):
        monkeypatch.setattr(Task, "apply_async", down)
        with pytest.raises(OperationalError):
            run(task, "x", token)
    assert locks(url) == []


def test_a_task_that_is_sent_again_with_its_id_is_not_revoked(url: str) -> None:
    task = unique_task(url)
    first = task.apply_async(("a",), task_id="again")
    assert task.apply_async(("a",), task_id="again").id == "again"
    assert first.state == "PENDING"
    assert sent(task) == 1


def test_a_send_that_fails_to_look_leaves_nothing_locked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = unique_task(url)

    def away(self: leaselock.Lock) -> None:
        raise leaselock.StoreUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(leaselock.Lock, "holder", away)
        with pytest.raises(leaselock.StoreUnreachable):
            task.delay("a")
    assert locks(url) == []
