"""Wrong passwords, wrong addresses, missing rights and missing tables are no outages.

Invariant: an outage is a store that does not answer, or says that it cannot serve at the moment.
Everything else is an error at once, with every policy, and says what to correct.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from testkit.servers.etcd import Etcd
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import USER, Postgres
from testkit.servers.process import HOST, eventually
from testkit.servers.redis import Redis, as_masters
from testkit.servers.sentinel import NAME, Sentinels

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.s3 import ObjectStore

    from leaselock import ErrorReason

pytestmark = [
    pytest.mark.filterwarnings("ignore:an object store:UserWarning"),
    pytest.mark.long,  # it may build kube-apiserver
]
# Seconds for which a store would be waited for if the error were an outage.
PATIENCE = 1.0
LIMIT = 6.0


class Case(NamedTuple):
    """One mistake: where, the URL that has it, and what must be said."""

    place: str
    store: Callable[[Any], Any]
    reason: ErrorReason
    said: str
    mark: str = ""
    """Why it is in the second tier."""


# --- places ---------------------------------------------------------------------------------------


def without(option: str, *, of: str) -> str:
    """A URL without one of its options, which is the last."""
    return of.partition(f"?{option}")[0]


@contextmanager
def _sqlite() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp()).resolve()
    (folder / "text").write_text("no database, and longer than the header of one: " * 50)
    (folder / "text").chmod(0o600)
    with sqlite3.connect(folder / "other") as database:
        database.execute("CREATE TABLE orders (id)")
    database.close()
    (folder / "first").touch(mode=0o600)
    (folder / "second").hardlink_to(folder / "first")
    (folder / "link").symlink_to(folder / "absent")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "clients.db.clients").touch()
    yield folder
    shutil.rmtree(folder)


@contextmanager
def _without_eval() -> Iterator[Redis]:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write('rename-command EVAL ""\nrename-command EVALSHA ""\n')
        file.flush()
        with Redis("include", file.name) as server:
            yield server


@contextmanager
def _wants_certificates() -> Iterator[Redis]:
    with Redis(tls=True) as server:
        # From TLS 1.3 on, a client learns of the refusal after the handshake, or not at all.
        server.ask("CONFIG", "SET", "tls-auth-clients", "yes", "tls-protocols", "TLSv1.2")
        yield server


@contextmanager
def _sentinels() -> Iterator[Sentinels]:
    """Sentinels with a password of their own."""
    with Sentinels(password="secret") as made:
        for sentinel in made.sentinels:
            sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">inner")
        yield made


@contextmanager
def _cluster_node() -> Iterator[Redis]:
    """A node of a cluster that has half of the slots."""
    with Redis("cluster-enabled", "yes") as node:
        node.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        eventually(lambda: "cluster_state:ok" in node.ask("CLUSTER", "INFO"))
        yield node


@contextmanager
def _replica() -> Iterator[Redis]:
    with Redis() as master, Redis(replica_of=master) as replica:
        replica.caught_up()
        yield replica


@contextmanager
def _etcd_with_users() -> Iterator[Etcd]:
    with Etcd() as server:
        server.require_login()
        server.add_user("ann", "secret", "mine/")
        yield server


@contextmanager
def _postgres() -> Iterator[Postgres]:
    """One that asks a user for a password, and lets another one not in."""
    with Postgres() as server:
        server.query("CREATE ROLE ann LOGIN PASSWORD 'secret'")
        server.query("CREATE ROLE bob LOGIN")
        server.query("CREATE ROLE group_of_users")
        server.query("CREATE DATABASE closed ALLOW_CONNECTIONS false")
        hba = server.folder / "data" / "pg_hba.conf"
        hba.write_text(
            f"host all ann all scram-sha-256\nhost all bob all reject\n{hba.read_text()}"
        )
        server.query("SELECT pg_reload_conf()")
        yield server


@contextmanager
def _standby() -> Iterator[Postgres]:
    with Postgres() as server:
        server.end()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        yield server


PLACES: dict[str, Callable[[], Any]] = {
    "sqlite": _sqlite,
    "redis": lambda: Redis("databases", "1"),
    "redis with a password": lambda: Redis(password="secret"),
    "redis with users": lambda: Redis(
        acl=["user default on nopass ~* &* +@all", "user ann on >secret ~x* &* +@read +@connection"]
    ),
    "redis without EVAL": _without_eval,
    "redis with TLS": lambda: Redis(tls=True),
    "redis that wants certificates": _wants_certificates,
    "a node": _cluster_node,
    "a replica": _replica,
    "sentinels": _sentinels,
    "etcd": Etcd,
    "etcd with users": _etcd_with_users,
    "etcd with TLS": lambda: Etcd(tls=True),
    "postgresql": _postgres,
    "standby": _standby,
    "mariadb": MariaDB,
}


class Places:
    """Those that were asked for; a name that is not in the table is that of a fixture."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.made: dict[str, Any] = {}

    def store(self, case: Case, request: pytest.FixtureRequest) -> Any:
        """The store as the case has it."""
        name = case.place
        if name not in PLACES:
            return case.store(request.getfixturevalue(name))
        if name not in self.made:
            self.made[name] = self.stack.enter_context(PLACES[name]())
        return case.store(self.made[name])


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(stack)


@pytest.fixture(scope="module")
def locked_bucket(object_store: ObjectStore) -> ObjectStore:
    """The object store with two buckets, of which one keeps its objects for a day."""
    service = object_store.resource()
    service.create_bucket(Bucket="plain")
    service.create_bucket(Bucket="kept", ObjectLockEnabledForBucket=True)
    retention = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    service.meta.client.put_object_lock_configuration(
        Bucket="kept",
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention},
    )
    return object_store


# --- the table ------------------------------------------------------------------------------------


def redis(server: Redis, more: str = "/0", login: str = "") -> str:
    return f"redis://{login}{HOST}:{server.port}{more}"


def sentinels(place: Sentinels, login: str, name: str, options: str) -> str:
    hosts = place.url.rpartition("@")[2].partition("/")[0]
    return f"redis+sentinel://{login}{hosts}/{name}{options}"


def postgresql(server: Postgres, user: str, database: str = "postgres", options: str = "") -> str:
    return f"postgresql://{user}@{HOST}:{server.port}/{database}{options}"


def mysql(server: MariaDB, login: str, database: str = "locks", options: str = "") -> str:
    return f"mysql://{login}@{HOST}:{server.port}/{database}{options}"


CASES: dict[str, Case] = {
    # --- a file
    "sqlite: no folder": Case(
        "sqlite", lambda p: f"sqlite:///{p}/absent/a.db", "misconfigured", "there is no directory"
    ),
    "sqlite: a file as a folder": Case(
        "sqlite", lambda p: f"sqlite:///{p}/text/a.db", "misconfigured", "there is no directory"
    ),
    "sqlite: no database": Case(
        "sqlite",
        lambda p: f"sqlite:///{p}/text",
        "misconfigured",
        "is not a database.*another file",
    ),
    "sqlite: of another program": Case(
        "sqlite", lambda p: f"sqlite:///{p}/other", "misconfigured", "of another program.*another"
    ),
    "sqlite: two names": Case(
        "sqlite", lambda p: f"sqlite:///{p}/first", "misconfigured", "2 hard links: remove"
    ),
    "sqlite: a link": Case(
        "sqlite", lambda p: f"sqlite:///{p}/link", "misconfigured", "symbolic link: write the path"
    ),
    "sqlite: a folder of all users": Case(
        "sqlite", lambda p: f"sqlite:///{p}/open/a.db", "misconfigured", "chmod o-w"
    ),
    "sqlite: a file in the way": Case(
        "sqlite", lambda p: f"sqlite:///{p}/clients.db", "misconfigured", "remove it"
    ),
    # --- one Redis
    "redis: database": Case(
        "redis", lambda s: redis(s, "/9"), "misconfigured", "DB index is out of range.*/0"
    ),
    "redis: no password": Case("redis with a password", redis, "denied", "redis://:PASSWORD@host"),
    "redis: wrong password": Case(
        "redis with a password", lambda s: redis(s, login=":wrong@"), "denied", "permission denied"
    ),
    "redis: unknown user": Case(
        "redis with users", lambda s: redis(s, login="bob:secret@"), "denied", "permission denied"
    ),
    "redis: few rights": Case(
        "redis with users", lambda s: redis(s, login="ann:secret@"), "denied", "Redis page lists"
    ),
    "redis: EVAL is disabled": Case(
        "redis without EVAL", redis, "misconfigured", "unknown command.*rename-command"
    ),
    "redis: a node of a cluster": Case(
        "a node", redis, "misconfigured", "part of a Redis cluster: write redis\\+cluster://"
    ),
    "redis: a replica": Case("a replica", redis, "misconfigured", "replica.*name the master"),
    "redis: an unknown authority": Case(
        "redis with TLS", lambda s: without("ssl_ca", of=s.url), "misconfigured", r"\?ssl_ca_certs="
    ),
    "redis: no such file of an authority": Case(
        "redis with TLS",
        lambda s: without("ssl_ca", of=s.url) + "?ssl_ca_certs=/absent.pem",
        "misconfigured",
        "/absent.pem|No such file",
    ),
    "redis: no certificate of the client": Case(
        "redis that wants certificates", lambda s: s.url, "misconfigured", r"\?ssl_certfile="
    ),
    "redis: no sentinel": Case(
        "redis",
        lambda s: f"redis+sentinel://{HOST}:{s.port}/main",
        "misconfigured",
        "unknown command.*no sentinel.*redis://",
    ),
    "redis: no cluster": Case(
        "redis",
        lambda s: f"redis+cluster://{HOST}:{s.port}",
        "misconfigured",
        "cluster support disabled.*redis://",
    ),
    "redis: password of a cluster": Case(
        "redis with a password",
        lambda s: f"redis+cluster://:wrong@{HOST}:{s.port}",
        "denied",
        "permission denied",
    ),
    "redlock: passwords": Case(
        "redis with a password",
        lambda s: as_masters(f":wrong@{HOST}:{s.port}"),
        "denied",
        "permission denied",
    ),
    # --- Sentinel
    "sentinel: no password": Case(
        "sentinels",
        lambda s: sentinels(s, ":secret@", NAME, ""),
        "denied",
        r"\?sentinel_password=",
        "variant",
    ),
    "sentinel: wrong password": Case(
        "sentinels",
        lambda s: sentinels(s, ":secret@", NAME, "?sentinel_password=wrong"),
        "denied",
        r"\?sentinel_password=",
        "variant",
    ),
    "sentinel: password of the master": Case(
        "sentinels",
        lambda s: sentinels(s, ":wrong@", NAME, "?sentinel_password=inner"),
        "denied",
        "permission denied",
        "variant",
    ),
    "sentinel: name": Case(
        "sentinels",
        lambda s: sentinels(s, ":secret@", "other", "?sentinel_password=inner"),
        "misconfigured",
        "no such master.*'other'|'other'.*no such master",
        "variant",
    ),
    "sentinel: as a server": Case(
        "sentinels",
        lambda s: f"redis://:inner@{HOST}:{s.sentinels[0].port}",
        "misconfigured",
        r"redis\+sentinel://",
        "variant",
    ),
    # --- etcd
    "etcd: no login": Case(
        "etcd with users", lambda s: s.url("mine"), "denied", "write the user and the password"
    ),
    "etcd: wrong password": Case(
        "etcd with users", lambda s: s.url("mine", "ann:wrong"), "denied", "invalid user ID"
    ),
    "etcd: other keys": Case(
        "etcd with users", lambda s: s.url("yours", "ann:secret"), "denied", "permission denied"
    ),
    "etcd: an unknown authority": Case(
        "etcd with TLS", lambda s: without("ca", of=s.url("a")), "misconfigured", r"\?ca="
    ),
    # --- PostgreSQL
    "postgresql: database": Case(
        "postgresql",
        lambda s: postgresql(s, USER, "absent"),
        "misconfigured",
        'database "absent" does not exist.*correct the URL',
    ),
    "postgresql: closed database": Case(
        "postgresql",
        lambda s: postgresql(s, USER, "closed"),
        "misconfigured",
        "not currently accepting",
    ),
    "postgresql: role": Case(
        "postgresql", lambda s: postgresql(s, "absent"), "denied", 'role "absent" does not exist'
    ),
    "postgresql: a group": Case(
        "postgresql", lambda s: postgresql(s, "group_of_users"), "denied", "not permitted to log in"
    ),
    "postgresql: no password": Case(
        "postgresql", lambda s: postgresql(s, "ann"), "denied", "no password supplied"
    ),
    "postgresql: wrong password": Case(
        "postgresql", lambda s: postgresql(s, "ann:wrong"), "denied", "password authentication"
    ),
    "postgresql: pg_hba.conf": Case(
        "postgresql", lambda s: postgresql(s, "bob"), "denied", "pg_hba.conf"
    ),
    "postgresql: no TLS": Case(
        "postgresql",
        lambda s: postgresql(s, USER, options="?sslmode=require"),
        "misconfigured",
        "does not support SSL.*sslmode",
    ),
    "postgresql: no tables": Case(
        "postgresql", lambda s: postgresql(s, USER), "misconfigured", "leaselock setup"
    ),
    "postgresql: a standby": Case("standby", lambda s: s.url, "misconfigured", "name the primary"),
    # --- S3, DynamoDB, Kubernetes
    "s3: bucket": Case(
        "locked_bucket", lambda s: s.url("absent"), "misconfigured", "does not exist", "heavy"
    ),
    "s3: unknown key": Case(
        "locked_bucket",
        lambda s: s.url("plain").replace("tests:", "others:"),
        "denied",
        "access key",
        "heavy",
    ),
    "s3: wrong key": Case(
        "locked_bucket",
        lambda s: s.url("plain").replace("none-of-them", "another"),
        "denied",
        "SignatureDoesNotMatch",
        "heavy",
    ),
    "s3: Object Lock": Case(
        "locked_bucket",
        lambda s: s.url("kept"),
        "misconfigured",
        "use a bucket without Object Lock",
        "heavy",
    ),
    "dynamodb: table": Case(
        "dynamodb", lambda s: s.url("absent"), "misconfigured", "does not exist", "heavy"
    ),
    "kubernetes: token": Case(
        "kubernetes", lambda s: s.url("default", "wrong"), "denied", "Unauthorized", "heavy"
    ),
    "kubernetes: namespace": Case(
        "kubernetes", lambda s: s.url("absent"), "denied", "forbidden", "heavy"
    ),
    # --- MariaDB
    "mysql: database": Case(
        "mariadb",
        lambda s: mysql(s, "leaselock:secret", "absent"),
        "denied",
        "denied .* database 'absent'",
        "heavy",
    ),
    "mysql: no such database": Case(
        "mariadb",
        lambda s: mysql(s, "root", "absent"),
        "misconfigured",
        "Unknown database 'absent'",
        "heavy",
    ),
    "mysql: wrong password": Case(
        "mariadb", lambda s: mysql(s, "leaselock:wrong"), "denied", "Access denied", "heavy"
    ),
    "mysql: unknown user": Case(
        "mariadb", lambda s: mysql(s, "ann:secret"), "denied", "Access denied", "heavy"
    ),
    "mysql: no TLS": Case(
        "mariadb",
        lambda s: mysql(s, "leaselock:secret", options="?ssl=yes"),
        "misconfigured",
        r"TLS.*\?ssl=",
        "heavy",
    ),
    "mysql: no tables": Case(
        "mariadb",
        lambda s: mysql(s, "leaselock:secret"),
        "misconfigured",
        "leaselock setup",
        "heavy",
    ),
}


def cases() -> list[Any]:
    """The parameters of the tests."""
    return [
        pytest.param(case, id=name, marks=[getattr(pytest.mark, case.mark)] if case.mark else [])
        for name, case in CASES.items()
    ]


def check(error: leaselock.StoreError, case: Case) -> None:
    """It says what is wrong, and does not claim that the store is out of reach."""
    text = str(error)
    assert error.reason == case.reason, text
    assert not isinstance(error, ConnectionError)
    assert re.search(case.said, text, re.DOTALL), text
    assert "check that it runs" not in text
    for secret in ("secret@", "inner", ":wrong@"):
        assert secret not in text


@pytest.mark.parametrize("policy", ["fail", "wait"])
@pytest.mark.parametrize("case", cases())
def test_a_mistake_is_an_error_at_once(
    places: Places, request: pytest.FixtureRequest, case: Case, policy: str
) -> None:
    words: dict[str, Any] = {"on_outage": policy}
    words |= {"outage_timeout": PATIENCE} if policy == "wait" else {}
    store = places.store(case, request)
    with leaselock.Client(store, op_timeout=LIMIT) as client:
        kinds: list[str] = []
        client.on_event(lambda event: kinds.append(event.kind))
        with pytest.raises(leaselock.StoreError) as caught:
            client.lock("a", **words).acquire(timeout=LIMIT)
        check(caught.value, case)
        assert kinds == ["acquiring", "failed"]


@pytest.mark.parametrize("case", cases())
def test_a_mistake_is_an_error_for_tasks(
    places: Places, request: pytest.FixtureRequest, case: Case
) -> None:
    """Also for those that wait for the connection of another one."""

    store = places.store(case, request)

    async def acquire() -> None:
        async with leaselock.AsyncClient(store, op_timeout=LIMIT) as client:
            options: dict[str, Any] = {"on_outage": "wait", "outage_timeout": PATIENCE}
            tries = [client.lock("a", **options).acquire() for _ in range(3)]
            for error in await asyncio.gather(*tries, return_exceptions=True):
                assert isinstance(error, leaselock.StoreError)
                check(error, case)

    asyncio.run(acquire())
