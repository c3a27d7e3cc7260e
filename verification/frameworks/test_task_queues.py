"""The programs of docs/how-to/task-queues.md with real workers, one of them killed in a task."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.process import eventually

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Programs

pytestmark = pytest.mark.nightly

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "task-queues.md"
FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.M | re.S)
# Instead of the page's own: it says when it runs, and waits until the test lets it end.
WORK = """
    import os, time

    def event(*words):
        with open("events", "a") as file:
            file.write(" ".join(map(str, words)) + "\\n")

    def synchronise(account):
        event("start", account, os.getpid())
        if account == "a" and not os.path.exists("killed"):
            while True:
                time.sleep(0.05)
        event("end", account, os.getpid())
"""


class TaskQueue(NamedTuple):
    """How a framework sends a task and starts a worker."""

    name: str
    send: str
    worker: list[str]
    workers: int = 1


QUEUES = [
    TaskQueue(
        "dramatiq",
        "import sys\nimport dramatiq_tasks as t\nfor name in sys.argv[1]: t.sync.send(name)",
        ["dramatiq", "dramatiq_tasks", "--processes", "1", "--threads", "2"],
        workers=2,
    ),
    TaskQueue(
        "taskiq",
        """
        import asyncio, sys
        import taskiq_tasks as t
        async def send():
            await t.broker.startup()
            for name in sys.argv[1]:
                await t.sync.kiq(name)
            await t.broker.shutdown()
        asyncio.run(send())
        """,
        ["taskiq", "worker", "taskiq_tasks:broker", "--workers", "1"],
        workers=2,
    ),
    TaskQueue(
        "rq",
        """
        import os, sys
        import redis, rq, rq_tasks
        queue = rq.Queue(connection=redis.Redis.from_url(os.environ["REDIS"]))
        for name in sys.argv[1]:
            queue.enqueue(rq_tasks.sync, name)
        """,
        ["rq.cli", "worker", "--url", "REDIS"],
        workers=3,
    ),
    TaskQueue(
        "huey",
        "import sys\nimport huey_tasks as t\nfor name in sys.argv[1]: t.sync(name)",
        ["huey.bin.huey_consumer", "huey_tasks.huey", "--workers", "3", "--worker-type", "process"],
    ),
]


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: queue.name)
def test_a_worker_that_is_killed_in_a_task(
    queue: TaskQueue, programs: Programs, redis: Redis
) -> None:
    for name, text in FILE.findall(PAGE.read_text("utf-8")):
        programs.write(name, text.replace("redis://localhost:6379/0", redis.url))
    programs.write("work.py", WORK)
    programs.write("send.py", queue.send)
    env = {"REDIS": redis.url}
    words = [redis.url if word == "REDIS" else word for word in queue.worker]
    for _ in range(queue.workers):
        programs.start(*words, env=env)
    programs.start("send", "aab", env=env).ended()

    def events(kind: str) -> list[tuple[str, int]]:
        found = [line.split() for line in programs.lines("events")]
        return [(name, int(pid)) for which, name, pid in found if which == kind]

    # The other account's task has run, and of the two equal ones one has begun.
    eventually(lambda: [name for name, _ in events("end")] == ["b"], 300.0)
    ((_, pid),) = [each for each in events("start") if each[0] == "a"]
    (programs.folder / "killed").write_text("")
    os.kill(pid, signal.SIGKILL)

    def ran() -> bool:
        # taskiq looks for messages of killed workers when a new one has arrived.
        programs.start("send", "c", env=env).ended()
        return "a" in [name for name, _ in events("end")]

    eventually(ran, 300.0)
    second = [each for each in events("start") if each[0] == "a"][1]
    assert second[1] != pid
