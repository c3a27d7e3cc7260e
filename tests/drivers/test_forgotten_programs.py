"""Clients that are forgotten, not closed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.people import script

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

SLOW = pytest.mark.heavy
STORES = ["sqlite", pytest.param("redis", marks=SLOW), pytest.param("memory", marks=SLOW)]

COUNTED = """
import gc, json, os, sys, threading, time, warnings, leaselock

def threads():
    return sum(thread.name.startswith("leaselock") for thread in threading.enumerate())

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return condition()

url, count = os.environ["LEASELOCK_URL"], int(sys.argv[1])
"""

FORGOTTEN = (
    COUNTED
    + """
warnings.simplefilter("always")
said = []
warnings.showwarning = lambda message, category, *_: said.append((category.__name__, str(message)))

def forget():
    client = leaselock.Client(url)
    other = leaselock.Client(url)
    with client.lock("a"):
        # One waits, so that each has everything that a client may need.
        other.lock("a").try_acquire(timeout=0.001)

forget()
eventually(lambda: threads() == 0)
before = descriptors()
for _ in range(count):
    forget()
gone = eventually(lambda: threads() == 0 and descriptors() <= before)
print(json.dumps({
    "threads": threads(), "descriptors": descriptors() - before,
    "warnings": len([w for w in said if w[0] == "ResourceWarning"]), "said": said[:1],
}))
"""
)

AIO = (
    COUNTED
    + """
import asyncio
warnings.simplefilter("always")
said = []
warnings.showwarning = lambda message, category, *_: said.append((category.__name__, str(message)))

async def forget():
    client = leaselock.AsyncClient(url)
    other = leaselock.AsyncClient(url)
    async with client.lock("a"):
        await other.lock("a").try_acquire(timeout=0.001)

async def main():
    await forget()
    for _ in range(100):
        gc.collect()
        await asyncio.sleep(0.01)
    before = descriptors()
    for _ in range(count):
        await forget()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        gc.collect()
        await asyncio.sleep(0.01)
        tasks = len(asyncio.all_tasks())
        if threads() == 0 and descriptors() <= before and tasks == 1:
            break
    print(json.dumps({
        "threads": threads(), "descriptors": descriptors() - before, "tasks": tasks - 1,
        "warnings": len([w for w in said if w[0] == "ResourceWarning"]), "said": said[:1],
    }))

asyncio.run(main())
"""
)


def url_of(store: str, redis: Redis, folder: Path) -> str:
    """The URL of a store."""
    urls = {"sqlite": f"sqlite:///{folder}/locks.db", "redis": redis.url, "memory": "memory://"}
    return urls[store]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("colour", ["threads", pytest.param("asyncio", marks=SLOW)])
def test_forgotten_clients_leave_nothing(
    redis: Redis, tmp_path: Path, store: str, colour: str
) -> None:
    url = url_of(store, redis, tmp_path)
    ended = script(FORGOTTEN if colour == "threads" else AIO, "10", url=url)
    assert ended.returncode == 0, ended
    found = json.loads(ended.stdout)
    assert (found["threads"], found.get("tasks", 0)) == (0, 0), found
    assert found["descriptors"] <= 0, found
    assert found["warnings"] >= 20, found
    assert "was never closed" in found["said"][0][1]


ONE_THREAD = (
    COUNTED
    + """
client = leaselock.Client(url)
lock = client.lock("a")
none = threads()
with client.lock("b"):
    held = threads()
with leaselock.Client(url) as other, other.lock("a"):
    lock.try_acquire(timeout=0.01)
    seen = {t.name for t in threading.enumerate() if t.name.startswith("leaselock")}
print(json.dumps({"none": none, "held": held, "most": threads(), "names": sorted(seen)}))
client.close()
print(json.dumps(threads()))
"""
)


@pytest.mark.parametrize("store", STORES)
def test_client_needs_one_background_thread_at_most(
    redis: Redis, tmp_path: Path, store: str
) -> None:
    ended = script(ONE_THREAD, "0", url=url_of(store, redis, tmp_path))
    found, after = map(json.loads, ended.stdout.splitlines())
    assert found["none"] == 0
    assert found["held"] <= 1, found
    # The other client is closed by now. On Redis one more thread ends the subscription of a wait,
    # a second after it.
    assert found["most"] <= (2 if store == "redis" else 1), found
    assert after == 0
