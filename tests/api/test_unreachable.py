"""A store that does not answer: the error names the lock, the store, what the client library said,
and what to do; `except ConnectionError` catches it.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import traceback
import warnings
from typing import TYPE_CHECKING

import pytest

import leaselock
from leaselock._backends.url import with_user
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from pathlib import Path

# No server listens on port 1.
KUBECONFIG = {
    "current-context": "test",
    "contexts": [{"name": "test", "context": {"cluster": "test"}}],
    "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
}
AWS = "region=eu-1&endpoint=http://127.0.0.1:1"
STORES = {
    "redis": ("redis://bob:secret@127.0.0.1:1/0", "redis.exceptions"),
    "sentinel": ("redis+sentinel://127.0.0.1:1/main", "redis.exceptions"),
    "cluster": ("redis+cluster://127.0.0.1:1", "redis.exceptions"),
    "postgresql": ("postgresql://bob:secret@127.0.0.1:1/db", "psycopg"),
    "mysql": ("mysql://bob:secret@127.0.0.1:1/db", "pymysql"),
    # kazoo reports no error; that of its socket is kept.
    "zookeeper": ("zookeeper://bob:secret@127.0.0.1:1", "builtins"),
    "etcd": ("etcd://127.0.0.1:1", "builtins"),
    "kubernetes": ("kubernetes://locks?kubeconfig=KUBECONFIG", "builtins"),
    "dynamodb": (f"dynamodb://id:secret@locks?{AWS}", "botocore.exceptions"),
    "s3": (f"s3://id:secret@locks?{AWS}", "botocore.exceptions"),
    "redlock": (",".join(f"redis://127.0.0.1:{port}" for port in (1, 2, 3)), "redis.exceptions"),
}
# Databases refuse at once. For Redis and ZooKeeper the client tries again until half of this.
OP_TIMEOUTS = dict.fromkeys(["postgresql", "mysql", "etcd", "kubernetes", "dynamodb", "s3"], 60.0)
OP_TIMEOUT = 1.5


def check(error: BaseException, library: str) -> None:
    assert isinstance(error, leaselock.StoreError)
    assert isinstance(error, ConnectionError)
    assert (error.reason, error.name) == ("unreachable", "order:5")
    text = str(error)
    assert text.startswith("'order:5'")
    assert error.store.split(",")[0] in text
    assert "check that it runs and that this host can reach it: leaselock doctor " in text
    assert "secret" not in "".join(traceback.format_exception(error))
    # On a busy machine the time of a request may end before the refusal arrives.
    timed_out = isinstance(error.__cause__, TimeoutError)
    assert timed_out or library in type(error.__cause__).__module__
    said = pickle.loads(pickle.dumps(error))
    assert (str(said), said.reason, type(said)) == (text, "unreachable", type(error))


@pytest.fixture(autouse=True)
def no_warnings() -> None:
    warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
    warnings.filterwarnings("ignore", "an object store", UserWarning)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    return str(path)


@pytest.mark.parametrize("store", STORES)
def test_threads(store: str, kubeconfig: str) -> None:
    url, library = STORES[store]
    url = url.replace("KUBECONFIG", kubeconfig)
    with leaselock.Client(url, op_timeout=OP_TIMEOUTS.get(store, OP_TIMEOUT)) as client:
        for ask in (client.lock("order:5").acquire, client.lock("order:5").holder):
            with pytest.raises(ConnectionError) as caught:
                ask()
            check(caught.value, library)


@pytest.mark.parametrize("store", STORES)
def test_asyncio(store: str, kubeconfig: str) -> None:
    url, library = STORES[store]
    url = url.replace("KUBECONFIG", kubeconfig)
    limit = OP_TIMEOUTS.get(store, OP_TIMEOUT)

    async def acquire() -> None:
        async with leaselock.AsyncClient(url, op_timeout=limit) as client:
            with pytest.raises(ConnectionError) as caught:
                await client.lock("order:5").acquire()
            check(caught.value, library)

    asyncio.run(acquire())


def test_the_command_names_the_user_and_not_the_password() -> None:
    with (
        leaselock.Client("redis://bob:secret@127.0.0.1:1/0") as client,
        pytest.raises(leaselock.StoreUnreachable) as caught,
    ):
        client.lock("a").acquire()
    assert str(caught.value).endswith("leaselock doctor 'redis://bob@127.0.0.1:1/0'")


def test_a_user_is_quoted_in_a_url() -> None:
    assert with_user("mysql://h/d", "a@b/c") == "mysql://a%40b%2Fc@h/d"
    assert with_user("mysql://h/d", None) == "mysql://h/d"


def test_the_class_follows_from_the_reason() -> None:
    assert type(NotApplied("x", "unreachable")) is leaselock.StoreUnreachable
    refused = NotApplied("x", "denied")
    assert type(refused) is leaselock.NotApplied
    assert not isinstance(refused, ConnectionError)

    class Late(leaselock.NotApplied):
        """An error of a store that others wrote."""

    late: leaselock.StoreError = Late("x", "unreachable").concerning("a")
    assert type(late) is leaselock.StoreUnreachable
    assert (late.args, late.name, str(late)) == (("x",), "a", "'a': x")


def test_many_callers_of_one_failure_each_see_their_own_lock() -> None:
    async def acquire_all() -> list[BaseException]:
        async with leaselock.AsyncClient("redis://127.0.0.1:1/0", op_timeout=5) as client:
            locks = [client.lock(f"order:{i}").acquire() for i in range(20)]
            done = await asyncio.gather(*locks, return_exceptions=True)
        return [error for error in done if isinstance(error, BaseException)]

    errors = asyncio.run(acquire_all())
    assert [getattr(error, "name", "") for error in errors] == [f"order:{i}" for i in range(20)]
