"""Histories of locks, judged by a linearizability checker that others wrote, and that it bites."""

from __future__ import annotations

import itertools
import random
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
from testkit.chaos.run import run as run_chaos
from testkit.servers.redis import Redis
from verification.chaos.linearizable import judge
from verification.chaos.operations import (
    MODELS,
    NEVER,
    NUMBERED,
    SHARED,
    Checker,
    Operation,
)
from verification.chaos.targets import TARGETS
from verification.chaos.workload import (
    LIMIT,
    OurHold,
    OurPermits,
    Ours,
    OurShared,
    PermitWorker,
    run,
)

import leaselock
from leaselock._core.contract.backend import compatible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from testkit.servers.postgres import Postgres
    from verification.chaos.workload import HeldLock

pytestmark = pytest.mark.long

SECONDS = 2.0
CLIENTS, THREADS = 3, 2
# Seconds. A grant that arrives after most of it is given up, and asked for again.
PERMITS_LEASE = 0.4
TRIES = 5
# The tokens of a lock that draws them before it is granted.
TOKENS = itertools.count(1)


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("porcupine"))


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


SHARING = ("sqlite-sharing", "postgres-lease-sharing", "etcd-sharing", "dynamodb-sharing")
# Seconds of faults. DynamoDBLocal takes seconds to start again.
CHAOS = {"dynamodb": 10.0, "dynamodb-sharing": 10.0}


@pytest.mark.parametrize(
    "name", ["sqlite", "redis", "postgres-lease", "zookeeper", "etcd", "dynamodb", *SHARING]
)
def test_the_history_of_a_chaos_run_is_linearizable(
    name: str, checker: Checker, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        target = TARGETS[name](name, stack, tmp_path / "chaos")
        seconds = CHAOS.get(name, 4.0)
        report = run_chaos(target, 1, seconds, tmp_path / "chaos", lambda fault: None)
    judged = judge(checker, target, report)
    assert judged is not None
    assert judged.operations > 20
    assert judged.models == (SHARED if name in SHARING else MODELS)
    assert judged.complaints == ()


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "postgres"])
def test_nested_and_lost_holds_are_linearizable(
    store: str, checker: Checker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url
    elif store == "redis":
        url = request.getfixturevalue("redis").url
    else:
        url = {"memory": "memory://linearizable", "sqlite": f"sqlite:///{tmp_path}/l.db"}[store]
    with ExitStack() as stack:
        clients = [stack.enter_context(leaselock.Client(url)) for _ in range(CLIENTS)]
        makers = [partial(Ours, client, 0.15) for client in clients for _ in range(THREADS)]
        operations = run(makers, SECONDS, 1)
    assert {operation.kind for operation in operations} == {"acquire", "release", "expire"}
    assert any(operation.hold.endswith("within") for operation in operations)
    for model in ("reentrant", "reentrant-fenced"):
        assert checker.complaints(model, operations) == []
    assert checker.complaints("mutex", operations) != [], "nested acquires are no mutex"


def shared_history(url: str, seconds: float = SECONDS) -> list[Operation]:
    """What threads did that read, wrote and took permits."""
    with ExitStack() as stack:
        clients = [stack.enter_context(leaselock.Client(url)) for _ in range(CLIENTS)]
        makers = [
            partial(OurShared, client, 0.15, random.Random(f"{number} {thread}"))
            for number, client in enumerate(clients)
            for thread in range(THREADS)
        ]
        return run(makers, seconds, 1)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_readers_writers_and_permits_are_linearizable(
    store: str, checker: Checker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url
    else:
        url = {"memory": "memory://sharing", "sqlite": f"sqlite:///{tmp_path}/s.db"}[store]
    operations = shared_history(url)
    assert {operation.mode for operation in operations} == {"exclusive", "shared", "permits"}
    for model in SHARED:
        assert checker.complaints(model, operations) == []
    assert checker.complaints("mutex", operations) != [], "readers exclude each other"


def everything_fits(*_: object) -> bool:
    return True


def writers_ignored(others: Sequence[Any], claim: Any, limit: int = 0) -> bool:
    """A reader enters beside a writer; a writer is right."""
    if claim.mode == "shared":
        return True
    return compatible(others, claim, limit)


def one_permit_more(others: Sequence[Any], claim: Any, limit: int = 0) -> bool:
    return compatible(others, claim, limit + 1)


@pytest.mark.parametrize("broken", [everything_fits, writers_ignored, one_permit_more])
def test_broken_rules_of_sharing_are_found(
    broken: Any, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history may be right by chance, so several are judged: one that is wrong is enough."""
    monkeypatch.setattr("leaselock._core.rows.rules.compatible", broken)
    histories = (shared_history(f"memory://{broken.__name__}-{i}", 1.0) for i in range(30))
    assert any(checker.complaints("shared", operations) for operations in histories)


def permits_history(url: str, *, waits: bool, seconds: float = SECONDS) -> list[Operation]:
    """What threads did that took numbered permits, and waited for them or only tried."""
    with ExitStack() as stack:
        clients = [stack.enter_context(leaselock.Client(url)) for _ in range(CLIENTS)]
        makers = [
            partial(OurPermits, client, PERMITS_LEASE, waits=waits)
            for client in clients
            for _ in range(THREADS)
        ]
        return run(makers, seconds, 1, PermitWorker)


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "trying"])
@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "postgres"])
def test_numbered_permits_are_linearizable(
    store: str, waits: bool, checker: Checker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store in ("redis", "postgres"):
        url = request.getfixturevalue(store).url
    else:
        url = {"memory": f"memory://numbered-{waits}", "sqlite": f"sqlite:///{tmp_path}/n.db"}[
            store
        ]
    operations = permits_history(url, waits=waits)
    kinds = {operation.kind for operation in operations}
    assert kinds == {"acquire", "release", "expire"} | (set() if waits else {"refuse"})
    assert {slot for operation in operations for slot in operation.slots} == {0, 1, 2}
    for model in NUMBERED[:2]:
        assert checker.complaints(model, operations) == []
    if waits:
        return
    for _ in range(TRIES):
        if not has_late_grants(operations):
            assert checker.complaints("numbered-lowest", operations) == []
            return
        operations = permits_history(url, waits=waits)
    pytest.skip("the machine was too slow: each history may have grants that arrived too late")


def has_late_grants(operations: Sequence[Operation]) -> bool:
    """Whether a grant may have been given up because it arrived too late: it had numbers for a
    while, and is in no history.
    """
    most = PERMITS_LEASE / 2 * 1e9
    asked = [each for each in operations if each.kind in ("acquire", "refuse")]
    return any(each.returned - each.call > most for each in asked)


def numbers_of_others(taken: Sequence[int], permits: int) -> tuple[int, ...]:
    """The same number to several holders."""
    return tuple(range(permits))


def highest_free(taken: Sequence[int], permits: int) -> tuple[int, ...]:
    free = sorted(set(range(LIMIT)) - set(taken))
    return tuple(free[-permits:])


def one_permit_less(others: Sequence[Any], claim: Any, limit: int = 0) -> bool:
    return compatible(others, claim, limit - 1)


@pytest.mark.parametrize(
    ("function", "broken", "models"),
    [
        ("lowest_free", numbers_of_others, {*NUMBERED}),
        ("lowest_free", highest_free, {"numbered-lowest"}),
        ("compatible", one_permit_less, {"numbered-lowest"}),
        ("compatible", one_permit_more, {*NUMBERED}),
    ],
)
def test_broken_rules_of_numbers_are_found(
    function: str,
    broken: Any,
    models: set[str],
    checker: Checker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A history may be right by chance, so several are judged: one that is wrong is enough."""
    monkeypatch.setattr(f"leaselock._core.rows.rules.{function}", broken)
    found: set[str] = set()
    for i in range(TRIES):
        operations = permits_history(f"memory://{broken.__name__}-{i}", waits=False, seconds=1.0)
        if has_late_grants(operations):
            continue
        found |= {model for model in NUMBERED if checker.complaints(model, operations)}
        assert found <= models
        if found == models:
            return
    raise AssertionError(f"only {found or 'no model'} found it")


class Believer(OurHold):
    """A holder that relies on its lease after the end."""

    def valid_until(self) -> int:
        """For ever."""
        return NEVER

    def release(self) -> bool:
        """Report no loss."""
        super().release()
        return True


class DrawnEarly(OurHold):
    """A hold whose token was drawn before it was granted."""

    def __init__(self, lease: leaselock.Lease, token: int) -> None:
        super().__init__(lease)
        self.token = token


class Faulty(Ours):
    """A lock with an error that is often made."""

    reentrant = False

    def __init__(self, client: leaselock.Client, lease: float, error: str) -> None:
        super().__init__(client, lease)
        self.error = error

    def acquire(self, name: str) -> HeldLock | None:
        """Take it."""
        token = next(TOKENS)
        lock = self.client.lock(name, lease=self.lease, renew=False, owner="lock")
        taken = lock.try_acquire(timeout=2.0)
        if taken is None:
            return None
        return Believer(taken) if self.error == "believes" else DrawnEarly(taken, token)


@pytest.mark.parametrize(
    ("error", "models"),
    [
        ("believes", {*MODELS}),
        ("draws early", {model for model in MODELS if "fenced" in model}),
    ],
)
def test_a_faulty_lock_is_found(error: str, models: set[str], checker: Checker) -> None:
    """A history may be right by chance, so several are judged."""
    found: set[str] = set()
    for i in range(TRIES):
        with leaselock.Client(f"memory://{error}-{i}") as client:
            makers = [partial(Faulty, client, 0.15, error)] * (CLIENTS * THREADS)
            operations = run(makers, SECONDS, i)
        found |= {model for model in MODELS if checker.complaints(model, operations)}
        assert found <= models
        if found == models:
            return
    raise AssertionError(f"only {found or 'no model'} found it")


def holds(*turns: tuple[int, int, int]) -> list[Operation]:
    """Return the history of clients that each hold the lock once: token, grant and release."""
    return [
        Operation("a", client, kind, f"{client}", f"{client}", token, instant, instant + 1)
        for client, (token, granted, released) in enumerate(turns)
        for kind, instant in (("acquire", granted), ("release", released))
    ]


@pytest.mark.parametrize(
    ("operations", "models"),
    [
        (holds((1, 0, 10), (2, 20, 30)), set()),
        (holds((1, 0, 30), (2, 10, 40)), {*MODELS}),
        (holds((2, 0, 10), (1, 20, 30)), {model for model in MODELS if "fenced" in model}),
    ],
    ids=["right", "two at once", "a token that falls"],
)
def test_the_models_that_do_not_fit(
    operations: list[Operation], models: set[str], checker: Checker
) -> None:
    assert {model for model in MODELS if checker.complaints(model, operations)} == models
