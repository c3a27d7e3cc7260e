"""FastAPI under uvicorn and Django under gunicorn, each with four workers: what is killed when.

The README beside this file says what these tests show.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from testkit.servers.process import HOST, accepts, eventually, free_port

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from testkit.servers.redis import Redis
    from tests.contrib.conftest import Program, Programs

pytestmark = pytest.mark.nightly

LIMIT = 300.0
# Seconds. The lease of a killed holder ends after it.
LEASE = 3.0
WORKERS = 4
EVENT = """
    def event(*words):
        with open("events", "a") as file:
            file.write(" ".join(map(str, words)) + "\\n")
"""
FASTAPI = """
    import asyncio, os
    from typing import Annotated
    from fastapi import FastAPI
    from leaselock import AsyncLease
    from leaselock.contrib.fastapi import lifespan, locked
    from work import event

    app = FastAPI(lifespan=lifespan(os.environ["REDIS"]))
    Locked = Annotated[AsyncLease, locked("order:{order}", timeout=300, lease=3.0)]

    @app.post("/orders/{order}")
    async def charge(order: str, lease: Locked, until: str = ""):
        event("start", order, os.getpid())
        while until and not os.path.exists(until):
            await asyncio.sleep(0.02)
        event("end", order, os.getpid())
        return {"pid": os.getpid(), "fence": lease.token}
"""
SETTINGS = """
    import os

    ALLOWED_HOSTS = ["*"]
    INSTALLED_APPS = ["leaselock.contrib.django"]
    LEASELOCK = {"store": os.environ["REDIS"]}
    ROOT_URLCONF = "urls"
    SECRET_KEY = "of a test"
    USE_TZ = True
"""
URLS = """
    import os, time
    from django.http import JsonResponse
    from django.urls import path
    from django.views.decorators.csrf import csrf_exempt
    from leaselock.contrib.django import client
    from work import event

    @csrf_exempt
    def charge(request, order):
        with client().lock(f"order:{order}", timeout=300, lease=3.0) as lease:
            event("start", order, os.getpid())
            until = request.GET.get("until")
            while until and not os.path.exists(until):
                time.sleep(0.02)
                lease.ensure()
            event("end", order, os.getpid())
        return JsonResponse({"pid": os.getpid(), "fence": lease.token})

    urlpatterns = [path("orders/<str:order>", charge)]
"""
WSGI = """
    import os
    from django.core.wsgi import get_wsgi_application

    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    application = get_wsgi_application()
"""


class Reply(NamedTuple):
    """The answer to a request: its status, the worker, and the token."""

    status: int
    pid: int = 0
    fence: int = 0


class Site:
    """An application, and its server with four workers."""

    def __init__(self, programs: Programs, redis: Redis, framework: str) -> None:
        self.programs, self.redis = programs, redis
        self.threads = ThreadPoolExecutor(16)
        programs.write("work.py", EVENT)
        if framework == "fastapi":
            programs.write("app.py", FASTAPI)
            self.words = ["uvicorn", "app:app", "--host", HOST, "--port"]
            self.ready = "Application startup complete"
        else:
            for name, text in (("settings", SETTINGS), ("urls", URLS), ("wsgi", WSGI)):
                programs.write(f"{name}.py", text)
            self.words = ["gunicorn", "wsgi:application", "--timeout", "600", "--bind"]
            self.ready = "Booting worker"
        self.framework = framework
        self.client = leaselock.Client(redis.url)
        self.start()

    def start(self) -> None:
        """Start the server, and wait until its workers are ready."""
        self.port = free_port()
        at = str(self.port) if self.framework == "fastapi" else f"{HOST}:{self.port}"
        words = [*self.words, at, "--workers", str(WORKERS)]
        self.server: Program = self.programs.start(*words, env={"REDIS": self.redis.url})
        eventually(lambda: self.server.output().count(self.ready) == WORKERS, LIMIT)
        eventually(lambda: accepts(self.port), LIMIT)

    def post(self, order: str, until: str = "") -> Future[Reply]:
        """Send a request, by a connection of its own."""
        url = f"http://{HOST}:{self.port}/orders/{order}?until={until}"

        def send() -> Reply:
            reply = httpx.post(url, timeout=LIMIT)
            found = reply.json() if reply.status_code == 200 else {}
            return Reply(reply.status_code, **found)

        return self.threads.submit(send)

    def events(self, kind: str, order: str) -> list[int]:
        """The workers in which requests for the order have started, or ended."""
        found = [line.split() for line in self.programs.lines("events")]
        return [int(pid) for which, name, pid in found if (which, name) == (kind, order)]

    def holder(self, order: str) -> int:
        """The worker of the first request for the order, when it has started."""
        eventually(lambda: bool(self.events("start", order)), LIMIT)
        return self.events("start", order)[0]

    def waiters(self, count: int) -> list[int]:
        """The workers of the requests for order a that wait, when there are that many."""
        lock = self.client.lock("order:a")
        eventually(lambda: len(lock.waiters()) >= count, LIMIT)
        return [waiter.pid for waiter in lock.waiters()]

    def close(self) -> None:
        """End the threads and the client; the programs end with the test."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()


@pytest.fixture(params=["fastapi", "django"])
def site(request: pytest.FixtureRequest, programs: Programs, redis: Redis) -> Iterator[Site]:
    made = Site(programs, redis, request.param)
    yield made
    made.close()


def test_a_worker_that_is_killed_in_a_request(site: Site) -> None:
    """The next request for the order begins when the lease has ended, in another worker."""
    first = site.post("a", "never")
    killed = site.holder("a")
    second = site.post("a")
    site.waiters(1)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(httpx.TransportError):
        first.result(LIMIT)
    other = site.post("b").result(LIMIT)
    assert other.status == 200
    served = second.result(LIMIT)
    assert served.status == 200
    assert served.pid != killed
    assert site.events("end", "a") == [served.pid]
    # The server has started another worker for the killed one.
    eventually(lambda: site.server.output().count(site.ready) == WORKERS + 1, LIMIT)


def test_a_worker_that_is_killed_while_its_requests_wait(site: Site) -> None:
    """All requests of other workers are served."""
    first = site.post("a", "go")
    holder = site.holder("a")
    # A worker of gunicorn has one request; a further one waits until a worker accepts it.
    count = 8 if site.framework == "fastapi" else WORKERS - 1
    others = [site.post("a") for _ in range(count)]
    waiting = site.waiters(count)
    victims = [pid for pid in waiting if pid != holder]
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    (site.programs.folder / "go").write_text("")
    assert first.result(LIMIT).status == 200
    failed = [other for other in others if other.exception(LIMIT) is not None]
    assert len(failed) == waiting.count(victims[0])
    served = [other.result().fence for other in others if other not in failed]
    assert len(set(served)) == count - len(failed)


def test_a_server_that_is_killed_with_all_its_workers(site: Site) -> None:
    """The order is free when the lease has ended, for the server that is started again."""
    first = site.post("a", "never")
    killed = site.holder("a")
    os.killpg(site.server.process.pid, signal.SIGKILL)
    with pytest.raises(httpx.TransportError):
        first.result(LIMIT)
    site.start()
    served = site.post("a").result(LIMIT)
    assert served.status == 200
    assert served.pid != killed


def test_a_store_that_stays_away_for_longer_than_the_lease(site: Site) -> None:
    """The request ends without success, and the next one is served when the store is back."""
    first = site.post("a", "never")
    site.holder("a")
    site.redis.kill()
    # The lease is lost: FastAPI cancels the function, and `ensure` of the view raises.
    assert first.result(LIMIT).status == (503 if site.framework == "fastapi" else 500)
    assert site.events("end", "a") == []
    site.redis.restart()
    assert site.post("a").result(LIMIT).status == 200
