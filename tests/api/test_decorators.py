"""Decorators that are written in the wrong order, and arguments that are misspelt."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leaselock
from leaselock._core.client.validation import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leaselock import Client


@pytest.fixture
def client() -> Iterator[Client]:
    with leaselock.Client("memory://") as made:
        yield made


def nothing() -> None:
    """What each framework wraps."""


async def nothing_async() -> None:
    """The same for taskiq."""


def older_fixture() -> None:
    """A fixture of pytest before version 8.4."""


older_fixture._pytestfixturefunction = SimpleNamespace()  # type: ignore[attr-defined]


def actor_of_dramatiq() -> Any:
    broker = pytest.importorskip("dramatiq.brokers.stub").StubBroker()
    return pytest.importorskip("dramatiq").actor(broker=broker, actor_name="a")(nothing)


# By the decorator that belongs above.
WRAPPED: dict[str, Callable[[], Any]] = {
    "@dramatiq.actor": actor_of_dramatiq,
    "@huey.task": lambda: pytest.importorskip("huey").MemoryHuey().task()(nothing),
    "@broker.task": lambda: pytest.importorskip("taskiq").InMemoryBroker().task(nothing_async),
    "@pytest.fixture": lambda: pytest.fixture(nothing),
    "@pytest": lambda: older_fixture,
    "@click.command": lambda: pytest.importorskip("click").command()(nothing),
    "@job": lambda: pytest.importorskip("rq.decorators").job("a", connection=1)(lambda: None),
}


@pytest.mark.parametrize("above", WRAPPED)
def test_a_lock_above_the_decorator_of_a_framework_is_refused(client: Client, above: str) -> None:
    wrapped = WRAPPED[above]()
    for decorator in (client.lock("a"), client.guard("a")):
        with pytest.raises(TypeError, match=f"would run without the lock: write {above}"):
            decorator(wrapped)


def test_a_misspelt_argument_is_corrected(client: Client) -> None:
    with pytest.raises(TypeError, match="no argument 'timout': did you mean timeout="):
        client.lock("a", timout=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"guard\(\) has no argument 'timout': did you mean timeou"):
        client.guard("a", timout=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no argument 'timout': did you mean timeout="):
        client.lock("a").acquire(timout=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no argument 'op_timout': did you mean op_timeout="):
        leaselock.Client("memory://", op_timout=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no argument 'zzz': there is no such argument"):
        client.lock("a", zzz=5)  # type: ignore[arg-type]


def test_the_arguments_that_are_suggested_are_those_of_the_methods() -> None:
    of_lock = list(inspect.signature(leaselock.Client.lock).parameters)[2:-1]
    assert sorted(ARGUMENTS["lock"]) == sorted(of_lock)
    assert sorted(ARGUMENTS["guard"]) == sorted([*of_lock, "busy"])
    assert leaselock.LockArguments.__annotations__.keys() == set(of_lock)
    of_client = list(inspect.signature(leaselock.Client).parameters)[1:-1]
    assert sorted(ARGUMENTS["Client"]) == sorted(of_client)
    acquire = list(inspect.signature(leaselock.Semaphore.acquire).parameters)[1:-1]
    assert sorted(ARGUMENTS["acquire"]) == sorted(ARGUMENTS["try_acquire"]) == sorted(acquire)


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("lock_timeout", "lease="),
        ("lease_duration", "lease="),
        ("lifetime", "lease="),
        ("retry_count", "timeout=None waits"),
        ("retry_interval", "do not poll"),
        ("retry_timeout", "timeout=None waits"),
        ("namespace", "prefix="),
        ("shared", r"rwlock\(name\).read"),
        ("max_leases", "semaphore"),
        ("xact", "leaselock.sql.lock"),
        ("id", "adopt"),
    ],
)
def test_what_others_call_it_is_understood(client: Client, argument: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"no argument '{argument}': .*{advice}"):
        client.lock("a", **{argument: 5})  # type: ignore[arg-type]


def test_one_name_is_not_several(client: Client) -> None:
    """A text is an iterable, of its characters."""
    with pytest.raises(TypeError, match=r"lock_all takes several names.*\['account:1'\]"):
        client.lock_all("account:1")
    with pytest.raises(TypeError, match="lock_all takes several names"):
        client.lock_all(b"account:1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attribute", "advice"),
    [
        ("is_locked", "locked"),
        ("is_acquired", "owned"),
        ("contenders", "waiters"),
        ("extend", "lease.extend"),
        ("break_", "break_lock"),
        ("reset", "break_lock"),
    ],
)
def test_what_others_have_on_a_lock_is_named(client: Client, attribute: str, advice: str) -> None:
    lock = client.lock("a")
    with pytest.raises(AttributeError, match=f"no attribute '{attribute}': here it is .*{advice}"):
        getattr(lock, attribute)
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        lock.zzz  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(client.rwlock("a").read, "__length_hint__")


def test_a_positional_timeout_is_refused_with_the_keyword(client: Client) -> None:
    for acquire in (client.lock("a").acquire, client.lock_all(["a"]).acquire):
        with pytest.raises(TypeError, match=r"by name, not 5: write timeout=5"):
            acquire(5)  # type: ignore[arg-type]
    for try_acquire in (client.lock("a").try_acquire, client.lock_all(["a"]).try_acquire):
        with pytest.raises(TypeError, match=r"not False: try_acquire\(\) does not wait"):
            try_acquire(False)  # type: ignore[arg-type]


def test_extend_without_an_argument_renews_for_the_lease(client: Client) -> None:
    with client.lock("a", lease=30, renew=False) as lease:
        lease.extend(90)
        lease.extend()
        assert 60 < lease.remaining <= 90
    with client.lock("b", lease=600, renew=False) as lease:
        lease.extend()
        assert 500 < lease.remaining <= 600


def test_read_is_owned_and_released_by_who_has_acquired_it(client: Client) -> None:
    both = client.rwlock("a")
    with both.write:
        assert both.write.owned()
        assert not both.read.owned()
        with pytest.raises(leaselock.NotHeld):
            both.read.release()
        with both.read:
            assert both.read.owned()
