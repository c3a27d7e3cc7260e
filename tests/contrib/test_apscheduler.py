"""APScheduler: of several processes with the same jobs, the leader runs them."""

from __future__ import annotations

import itertools
import signal
import threading
import uuid
from typing import TYPE_CHECKING

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from testkit.servers.process import eventually

import leaselock
from leaselock.contrib.apscheduler import NAME, leading

if TYPE_CHECKING:
    from tests.contrib.conftest import Programs

PROGRAM = """
    import os, signal, threading
    from apscheduler.schedulers.background import BackgroundScheduler
    from leaselock.contrib.apscheduler import leading

    def job():
        with open("jobs", "a") as file:
            file.write(f"{os.getpid()}\\n")

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    scheduler = BackgroundScheduler()
    scheduler.add_job(job, "interval", seconds=0.05)
    with leading(scheduler, "sqlite:///locks.db"):
        stopped.wait()
"""


@pytest.mark.heavy
def test_another_process_takes_over(programs: Programs) -> None:
    programs.write("schedule.py", PROGRAM)
    three = {str(p.process.pid): p for p in (programs.start("schedule") for _ in range(3))}
    leaders: list[str] = []
    # The first leader is killed, the second one is stopped.
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
        seen = len(programs.lines("jobs"))
        programs.wait_for_lines("jobs", seen + 3)
        leaders.append(programs.lines("jobs")[-1])
        process = three[leaders[-1]].process
        process.send_signal(number)
        process.wait(60)
    # Each ran jobs until the next one did, and not after that.
    turns = [pid for pid, _ in itertools.groupby(programs.lines("jobs"))]
    assert turns == leaders
    assert sorted(leaders) == sorted(three)


def leader(election: leaselock.Election) -> str | None:
    """The label of the leader."""
    found = election.leader()
    return found and found.label


def test_a_leader_that_has_lost_its_lease_starts_no_job() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    runs = threading.Semaphore(0)
    schedulers = []
    for _ in range(2):
        scheduler = BackgroundScheduler()
        scheduler.add_job(runs.release, "interval", seconds=0.01)
        schedulers.append(scheduler)
    first, second = schedulers
    with leading(first, url, label="first") as election:
        runs.acquire()
        with leading(second, url, label="second"), leaselock.Client(url) as client:
            eventually(lambda: client.lock(NAME).waiters())
            assert leader(election) == "first"
            assert election.resign()
            eventually(lambda: leader(election) == "second")
            eventually(lambda: first.state == 2)  # paused
            while runs.acquire(blocking=False):
                pass
            runs.acquire()
        eventually(lambda: first.state == 1)  # runs again: the second one was stopped
        runs.acquire()
    assert not first.running


def test_a_store_that_does_not_answer_is_an_error() -> None:
    scheduler = BackgroundScheduler()
    with pytest.raises(leaselock.StoreError), leading(scheduler, "redis://127.0.0.1:1/0"):
        pass
    assert not scheduler.running


def test_a_scheduler_that_the_block_has_shut_down_hides_no_error() -> None:
    scheduler = BackgroundScheduler()
    url = f"memory://{uuid.uuid4().hex}"

    def body() -> None:
        with leading(scheduler, url) as election:
            eventually(lambda: leader(election) is not None)
            scheduler.shutdown()
            raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body"):
        body()
    assert not [one for one in threading.enumerate() if one.name == "apscheduler leader"]
