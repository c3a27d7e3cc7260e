"""Beat of Celery under `leaselock lead`, on two machines: the leader is killed."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, cast

import pytest
import redis as redis_py
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Program, Programs

pytestmark = pytest.mark.nightly

BEATS = """
    import os
    from celery import Celery
    from celery.signals import beat_init

    app = Celery("beats", broker=os.environ["REDIS"])
    app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 0.2}}

    @beat_init.connect
    def begun(**_):
        with open("begun", "a") as file:
            file.write(f"{os.getpid()} {os.getppid()}\\n")
"""


def start(programs: Programs, redis: Redis, number: int) -> Program:
    words = ["leaselock", "lead", "--url", redis.url, "--lease", "2s", "beat", "--"]
    words += [sys.executable, "-m", "celery", "-A", "beats", "beat", "--pidfile="]
    words += ["--schedule", str(programs.folder / f"schedule-{number}")]
    return programs.start(*words, env={"REDIS": redis.url})


@pytest.mark.parametrize("killed", ["leaselock lead", "beat"])
def test_the_beat_of_another_process_takes_over(
    programs: Programs, redis: Redis, killed: str
) -> None:
    programs.write("beats.py", BEATS)
    both = [start(programs, redis, number) for number in range(2)]
    programs.wait_for_lines("begun", 1)
    with redis_py.Redis.from_url(redis.url) as broker, leaselock.Client(redis.url) as client:

        def sent() -> int:
            return cast("int", broker.llen("celery"))

        eventually(lambda: sent() > 2, 120.0)
        eventually(lambda: client.lock("beat").waiters(), 120.0)
        ((beat, leader),) = [map(int, line.split()) for line in programs.lines("begun")]
        assert leader in {each.process.pid for each in both}
        os.kill(leader if killed == "leaselock lead" else beat, signal.SIGKILL)
        eventually(lambda: len(programs.lines("begun")) > 1, 120.0)
        assert int(programs.lines("begun")[1].split()[1]) != leader
        with pytest.raises(ProcessLookupError):
            os.kill(beat, 0)
        before = sent()
        eventually(lambda: sent() > before + 2, 120.0)
