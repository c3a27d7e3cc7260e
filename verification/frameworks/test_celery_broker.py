"""Unique tasks of Celery whose broker is killed.

The README beside this file says what these tests show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from celery.exceptions import OperationalError, Reject
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from verification.frameworks.test_celery_unique import held, runs, start_worker, tasks

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contrib.conftest import Programs

pytestmark = pytest.mark.nightly

__all__ = ["tasks"]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A broker apart from the store. A test names it before `tasks`, which reads its address."""
    with Redis(appendonly=True) as server:
        monkeypatch.setenv("BROKER", server.url)
        yield server


def let_go(programs: Programs) -> None:
    """Let the tasks end that wait."""
    (programs.folder / "go").write_text("")


def test_a_broker_that_dies_while_a_task_runs_lets_no_equal_one_in(
    broker: Redis, programs: Programs, redis: Redis, tasks: Any
) -> None:
    """Its message was not acknowledged, so it is delivered again when the broker is back."""
    start_worker(programs, redis)
    task = tasks.sync.delay("a", "go")
    programs.wait_for_lines("events", 1)
    broker.kill()
    assert tasks.sync.delay("a").id == task.id
    with pytest.raises(OperationalError):
        tasks.sync.delay("b")
    assert held(redis) == {"sync:a"}

    broker.restart()
    # A worker of Celery 5.7 ends with the connection to a Redis broker, and lets its tasks finish.
    again = start_worker(programs, redis, VISIBILITY="1")
    eventually(lambda: "could not acquire 'sync:a'" in again.output(), 120.0)
    assert tasks.sync.delay("a").id == task.id
    assert runs(programs) == []
    let_go(programs)
    assert task.get(timeout=120) == "a"
    eventually(lambda: runs(programs) == ["a", "a"] and held(redis) == set(), 120.0)


def test_a_task_that_ends_without_its_broker_frees_its_name(
    broker: Redis, programs: Programs, redis: Redis, tasks: Any
) -> None:
    """Acknowledged when it was received, so nothing is delivered again."""
    start_worker(programs, redis)
    task = tasks.early.delay("a", "go")
    programs.wait_for_lines("events", 1)
    broker.kill()
    let_go(programs)
    assert task.get(timeout=120) == "a"
    eventually(lambda: held(redis) == set())
    broker.restart()
    again = tasks.early.delay("a")
    assert again.id != task.id
    assert again.get(timeout=120) == "a"
    assert runs(programs) == ["a", "a"]


def test_a_retry_that_cannot_be_sent_frees_its_name(
    broker: Redis, programs: Programs, redis: Redis, tasks: Any
) -> None:
    """Celery gives up such a task."""
    start_worker(programs, redis)
    task = tasks.retried.delay("a", 1, 0.1, "go")
    programs.wait_for_lines("events", 1)
    broker.kill()
    let_go(programs)
    eventually(lambda: held(redis) == set())
    broker.restart()
    with pytest.raises(Reject):
        task.get(timeout=120)
    again = tasks.retried.delay("a", 1, 0.1)
    assert again.id != task.id
    assert again.get(timeout=120) == 1
    assert runs(programs) == ["a"] * 3


def test_a_queued_message_that_the_broker_keeps_runs_once(
    broker: Redis, programs: Programs, redis: Redis, tasks: Any
) -> None:
    task = tasks.sync.delay("a")
    broker.kill()
    assert tasks.sync.delay("a").id == task.id
    broker.restart()
    assert tasks.sync.delay("a").id == task.id
    start_worker(programs, redis)
    assert task.get(timeout=120) == "a"
    eventually(lambda: held(redis) == set())
    assert runs(programs) == ["a"]


def test_a_message_that_the_broker_has_lost_keeps_its_name_until_it_is_broken(
    broker: Redis, programs: Programs, redis: Redis, tasks: Any
) -> None:
    lost = tasks.sync.delay("a")
    broker.kill()
    broker.restart(keep_data=False)
    assert tasks.sync.delay("a").id == lost.id
    with leaselock.Client(redis.url) as client:
        client.break_lock("sync:a:queued")
    start_worker(programs, redis)
    again = tasks.sync.delay("a")
    assert again.id != lost.id
    assert again.get(timeout=120) == "a"
    assert runs(programs) == ["a"]


def test_a_broker_that_is_the_store_and_keeps_its_data_loses_no_lock(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    start_worker(programs, redis)
    task = tasks.early.delay("a", "go")
    programs.wait_for_lines("events", 1)
    eventually(lambda: held(redis) == {"sync:a"})
    redis.kill()
    redis.restart()
    assert tasks.early.delay("a").id == task.id
    let_go(programs)
    assert task.get(timeout=120) == "a"
    eventually(lambda: held(redis) == set())
    assert runs(programs) == ["a"]


def test_a_broker_that_is_the_store_and_loses_its_data_lets_an_equal_task_in(
    programs: Programs, redis: Redis, tasks: Any
) -> None:
    """As with every lock of a store that has forgotten it."""
    start_worker(programs, redis)
    task = tasks.early.delay("a", "go")
    programs.wait_for_lines("events", 1)
    redis.kill()
    redis.restart(keep_data=False)
    again = tasks.early.delay("a")
    assert again.id != task.id
    assert again.get(timeout=120) == "a"
    let_go(programs)
    programs.wait_for_lines("events", 4)
