"""How the settings of a Redis store and of a Redlock are read, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from verification.models.redis_runner import Runner

import leaselock
from leaselock._backends import open_store
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.messages import Address
from leaselock._core.contract.backend import Setup

pytestmark = pytest.mark.covers

MASTERS = [f"redis://m{i}" for i in range(3)]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis+ring://a", r"redis\+ring:// is not known"),
        ("redis://a/name", "a database is a number, not 'name'"),
        ("redis://a?socket_keepalive=1&db=x", "Invalid value for 'db'"),
        ("redis://a?timeout=5", "does not know timeout"),
        ("redis+cluster://", "at least one host"),
        ("redis://a,b", "several hosts are for"),
        ("redis+sentinel://a", "names the master, too"),
        ("redis://a?prefix=redisson_", "cannot be used"),
        (f"redis://a?prefix={'x' * 201}", "cannot be used"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        settings_of(url)


def test_a_host_is_this_machine_by_default() -> None:
    assert settings_of("redis://").addresses == (Address("localhost", 6379),)
    assert settings_of("redis://:7000").addresses == (Address("localhost", 7000),)
    found = settings_of("unix:///run/redis?db=2")
    assert found.addresses[0].path == "/run/redis"
    assert found.parameters["db"] == 2


def test_settings_are_shown_without_secrets() -> None:
    found = settings_of("redis://me:secret@a/3")  # pragma: allowlist secret
    assert repr(found) == "<Settings redis://a/3>"


def test_options_that_asyncio_does_not_support_are_refused() -> None:
    given = redis.Redis(ssl=True, ssl_validate_ocsp=True)
    assert settings_of(given).tls
    with pytest.raises(
        ValueError,
        match=r"ssl_validate_ocsp: redis-py .* does not have this option",
    ):
        settings_of(given, aio=True)


def test_one_prefix_is_said_once() -> None:
    assert settings_of("redis://a", prefix="p:").shown == "redis://a?prefix=p%3A"
    assert settings_of("redis://a?prefix=p:", prefix="p:").prefix == "p:"
    with pytest.raises(ValueError, match="two prefixes"):
        settings_of("redis://a?prefix=p:", prefix="q:")
    with pytest.raises(TypeError, match="prefix is a text"):
        settings_of("redis://a", prefix=5)  # type: ignore[arg-type]


# --- clients of the user's ------------------------------------------------------------------------


def test_a_client_behind_sentinels_is_read() -> None:
    for module in (redis.sentinel, redis.asyncio.sentinel):
        sentinel: Any = module.Sentinel([("s1", 1), ("s2", 2)], sentinel_kwargs={"username": "me"})
        found = settings_of(sentinel.master_for("main", db=4))
        assert found.topology == "sentinel"
        assert found.addresses == (
            Address("s1", 1, sentinel=True),
            Address("s2", 2, sentinel=True),
        )
        assert found.service == "main"
        assert found.parameters["db"] == 4
        assert found.sentinel_parameters["username"] == "me"
        assert found.shown == "redis+sentinel://s1:1,s2:2/main/4"


@pytest.mark.parametrize("database", ["/3", "?db=3"])
def test_the_database_of_a_cluster_is_in_the_path_or_an_option(database: str) -> None:
    """Valkey 9 has databases in clusters. Another server refuses both forms when it is reached."""
    assert settings_of(f"redis+cluster://a:1{database}").parameters["db"] == 3


def test_a_client_of_a_cluster_is_read() -> None:
    client = redis.asyncio.RedisCluster(host="a", port=7000, username="me")
    found = settings_of(client)
    assert found.topology == "cluster"
    assert found.addresses == (Address("a", 7000),)
    assert "db" not in found.parameters
    assert found.parameters["username"] == "me"
    moved = redis.asyncio.RedisCluster(host="a", address_remap=lambda place: place)
    with pytest.raises(TypeError, match="address_remap"):
        settings_of(moved)


def test_what_is_no_client_of_one_store_is_refused() -> None:
    several = type("MultiDBClient", (), {})()
    with pytest.raises(TypeError, match="another database"):
        settings_of(several)
    with pytest.raises(TypeError, match="no client of a Redis or Valkey server"):
        settings_of(SimpleNamespace())


def test_a_pool_that_names_no_kind_of_connection_is_read() -> None:
    pool = SimpleNamespace(connection_kwargs={"host": "a"}, connection_class=None)
    assert settings_of(SimpleNamespace(connection_pool=pool)).shown == "redis://a:6379/0"


# --- Redlock --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        (MASTERS[:2], "at least 3 independent masters, not 2"),
        ([*MASTERS, MASTERS[0]], "redis://m0 and redis://m0 are one server"),
        ([*MASTERS, f"{MASTERS[0]}/2"], "redis://m0 and redis://m0/2 are one server"),
        (
            ["redis://localhost", "redis://127.0.0.1", "redis://[::1]"],
            "redis://localhost and redis://127.0.0.1 are one server",
        ),
        (["redis+sentinel://a,b/x", "redis+sentinel://b,c/x", "redis://c"], "are one server"),
        ([*MASTERS, "memory://"], "made of Redis masters"),
        ([f"{MASTERS[0]}?protocol=hash", *MASTERS[1:]], "has no protocol 'hash'"),
    ],
)
def test_masters_that_are_none_or_too_few_are_refused(targets: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        open_store(targets, lambda: 0.0)


def test_the_same_sentinels_may_watch_several_masters() -> None:
    targets = [f"redis+sentinel://a,b/{name}" for name in ("x", "y", "z")]
    assert open_store(targets, lambda: 0.0).shown.count("sentinel") == 3


def test_masters_may_say_their_protocol_and_be_clients() -> None:
    one, *others = MASTERS
    given = redis.Redis(host="m0", port=7000)
    opened = open_store([f"{one}?protocol=redlock&db=1", *others, given], lambda: 0.0)
    assert opened.shown == "redis://m0?db=1,redis://m1,redis://m2,redis://m0:7000/0"
    locks: Any = opened.backend("redlock")
    assert 0.0 <= locks.random() < 1.0


# --- setup ----------------------------------------------------------------------------------------


def test_there_is_nothing_to_set_up() -> None:
    runner = Runner("redis://a", lambda address, message: [])
    backend = runner.store.backend("hash")
    assert runner.run(backend.request(Setup(False), 0.0)) == ()


@pytest.mark.parametrize("word", ["none", "CERT_NONE", "optional", "CERT_OPTIONAL", "required"])
def test_how_certificates_are_verified_is_written_as_celery_does_or_redis_py(word: str) -> None:
    found = settings_of(f"rediss://h/0?ssl_cert_reqs={word}").parameters["ssl_cert_reqs"]
    assert found == word.lower().removeprefix("cert_")
    with pytest.raises(ValueError, match="ssl_cert_reqs= is one of none, optional, required"):
        settings_of("rediss://h/0?ssl_cert_reqs=never")


@pytest.mark.parametrize("rest", ["://h:1/2", "s://h:1/2", "+sentinel://h/main", "s+cluster://h"])
def test_a_url_of_valkey_names_the_same_store(rest: str) -> None:
    assert settings_of(f"valkey{rest}") == settings_of(f"redis{rest}")
    with leaselock.Client(f"valkey{rest}") as client:
        assert client.url.startswith("redis")
