"""How many calls the server carries out for each operation, as it counts them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.redis import Redis
from tests.redis_calls import calls_during, calls_of_scripts
from verification.models.sides import claim_of

from leaselock._backends.redis.blocking import BlockingConnection
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.scripted_backend import ScriptedBackend
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.backend import Acquire, Claim, Grant, Release, Renew
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator


FIRST, SECOND, THIRD = (claim_of(f"{n}" * 32, "a", n, 30.0) for n in (1, 2, 3))


class Counted:
    """A client, and the calls of each of its requests."""

    def __init__(self, server: Redis, form: str) -> None:
        self.server = server
        self.scripts = 0
        store = RedisStore(settings_of(server.url), now, BlockingConnection)
        self.driver = Threads((store,))
        self.form = form
        backend = store.backend(form)
        assert isinstance(backend, ScriptedBackend)
        self.backend = backend

    def ask(self, request: Any) -> tuple[object, int]:
        """The answer, and how many calls it took."""
        answers: list[object] = []

        def step() -> None:
            answers.append(self.driver.run(self.backend.request(request, now() + 5.0)))

        calls = calls_during(self.server, step)
        self.scripts = calls.get("evalsha", 0)
        # Each connection that is opened says HELLO, and reads the layout marker.
        return answers[0], calls_of_scripts(calls) - calls.get("hello", 0)

    def queue(self, claim: Claim) -> int:
        """How many calls it takes to enter the queue of a lock that was contended just now."""
        self.backend.queue.note_contention(claim.name)
        return self.ask(Acquire(claim, True))[1]


@pytest.fixture(params=["hash", "string"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    with Redis() as server:
        counted = Counted(server, request.param)
        # The scripts are loaded by their first use.
        for claim in (FIRST, SECOND):
            counted.ask(Acquire(claim, True))
        counted.ask(Renew([FIRST]))
        for claim in (SECOND, FIRST):
            counted.ask(Release(claim, False))
            counted.backend.forget(claim)
        yield counted
        counted.driver.end(_nothing())


async def _nothing() -> None:
    pass


def again(claim: Claim, number: int) -> Claim:
    """Another claim of the same client."""
    return claim._replace(id=f"{claim.client}:{number}")


def test_each_operation_takes_few_calls(counted: Counted) -> None:
    holder, waiter, last = (again(c, 9) for c in (FIRST, SECOND, THIRD))
    _, acquiring = counted.ask(Acquire(holder, False))
    _, renewing = counted.ask(Renew([holder]))
    _, releasing = counted.ask(Release(holder, False))
    assert acquiring <= 6
    assert renewing <= (3 if counted.form == "hash" else 4)
    assert acquiring + releasing <= 10
    holder = again(FIRST, 10)
    counted.ask(Acquire(holder, False))
    assert counted.queue(waiter) <= 10
    assert counted.queue(last) <= 10
    _, handing_over = counted.ask(Release(holder, False))
    assert handing_over <= 10


def test_a_hold_that_outlasts_its_release_is_one_request(counted: Counted) -> None:
    """A process that dies after it leaves the lock taken for the whole time."""
    if counted.form != "hash":
        return  # it has no min_hold
    claim = again(FIRST, 9)._replace(min_hold=100.0)
    for waits in (False, True):
        answer, _ = counted.ask(Acquire(claim, waits))
        assert isinstance(answer, Grant)
        assert counted.scripts == 1
        assert counted.server.ask("PTTL", "lock:a") > 90_000
    counted.ask(Release(claim, False))
    counted.server.ask("FLUSHALL")
    # The same for a grant that is handed over and confirmed.
    counted.ask(Acquire(again(FIRST, 10), False))
    waiter = again(SECOND, 9)._replace(min_hold=100.0)
    counted.ask(Acquire(waiter, True))
    counted.ask(Release(again(FIRST, 10), False))
    answer, _ = counted.ask(Acquire(waiter, True))
    assert isinstance(answer, Grant)
    assert counted.scripts == 1
    assert counted.server.ask("PTTL", "lock:a") > 90_000
