"""Two installed releases on one store: that of this tree, and one whose layouts are raised.

The layouts of "7.1.0" are newer than those of this tree and admit them. Those of "8.0.0" admit
those of 7.1.0 only.
"""

from __future__ import annotations

import subprocess
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.cluster import Cluster
from testkit.servers.ensembles import fresh
from testkit.servers.redis import Redis
from testkit.servers.sentinel import Sentinels
from verification.releases.two_releases import LIMIT, Release, installed

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.dynamodb import DynamoDB
    from testkit.servers.etcd import Etcd
    from testkit.servers.kubernetes import KubeApiserver
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres
    from testkit.servers.s3 import ObjectStore
    from testkit.servers.zookeeper import Ensemble

pytestmark = [pytest.mark.nightly, pytest.mark.heavy]

DOCUMENTS = ("etcd_url", "kubernetes_url", "dynamodb_url", "s3_url")
STORES = (
    *("redis", "redis_getset", "sentinels", "cluster", "redlock"),
    *("zookeeper", "zookeeper_single", "sqlite", "postgres", "mariadb"),
    *DOCUMENTS,
)
NUMBERS = count()
# A machine under load may take longer than usual for the first reply.
PATIENT = ("--op-timeout", "60s")
OK, UNMET, BUSY, CONFIG = 0, 1, 75, 78


class Releases(NamedTuple):
    """The installed ones."""

    present: Release
    compatible: Release
    later: Release


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    folder = tmp_path_factory.mktemp("releases")
    return Releases(
        installed(folder, leaselock.__version__),
        installed(folder, "7.1.0", by=1),
        installed(folder, "8.0.0", by=2),
    )


# --- new stores -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def redis(redis_server: Redis) -> str:
    return f"{redis_server.url}?prefix=test{next(NUMBERS)}:"


@pytest.fixture
def redis_getset(redis: str) -> str:
    return f"{redis}&protocol=getset"


@pytest.fixture
def sentinels() -> Iterator[str]:
    with Sentinels() as made:
        yield made.url


@pytest.fixture
def cluster() -> Iterator[str]:
    with Cluster() as made:
        yield made.url


@pytest.fixture
def redlock() -> Iterator[str]:
    with Redis() as a, Redis() as b, Redis() as c:
        yield ",".join(server.url for server in (a, b, c))


@pytest.fixture
def zookeeper(ensemble: Ensemble) -> str:
    return fresh(ensemble)


@pytest.fixture
def zookeeper_single(zookeeper: str) -> str:
    return f"{zookeeper}protocol=single"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[str]:
    name = f"test{next(NUMBERS)}"
    postgres_server.query(f"CREATE DATABASE {name}")
    yield postgres_server.url.removesuffix("postgres") + name
    postgres_server.query(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def mariadb(mariadb_server: MariaDB) -> Iterator[str]:
    name = f"test{next(NUMBERS)}"
    mariadb_server.do(f"CREATE DATABASE {name}", f"GRANT ALL ON {name}.* TO leaselock@'%'")
    yield mariadb_server.url.replace("/locks", f"/{name}")
    mariadb_server.do(f"DROP DATABASE {name}")


@pytest.fixture
def etcd_url(etcd: Etcd) -> str:
    return etcd.url(f"test{next(NUMBERS)}")


@pytest.fixture
def kubernetes_url(kubernetes: KubeApiserver) -> str:
    return kubernetes.url(kubernetes.namespace())


@pytest.fixture
def dynamodb_url(dynamodb: DynamoDB) -> str:
    return dynamodb.url(f"test{next(NUMBERS)}")


@pytest.fixture
def s3_url(object_store: ObjectStore) -> str:
    return object_store.url(f"test{next(NUMBERS)}")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a store that no release has used."""
    found: str = request.getfixturevalue(request.param)
    return found


# --- the tests ------------------------------------------------------------------------------------


def take(release: Release, url: str, wait: str = "60s") -> subprocess.CompletedProcess[str]:
    return release.run("run", "--url", url, *PATIENT, "--timeout", wait, "a", "--", "true")


def begin(release: Release, url: str) -> None:
    assert release.run("setup", url, *PATIENT).returncode == OK
    ran = take(release, url)
    assert ran.returncode == OK, ran.stderr


def refused(release: Release, url: str, words: str) -> None:
    """Each command refuses, `doctor` fails, and the message says what is wrong and what to do."""
    listed = release.run("ls", "--url", url, *PATIENT)
    shown = [take(release, url), release.run("show", "--url", url, *PATIENT, "a")]
    if url.partition(":")[0] in ("etcd", "kubernetes", "dynamodb", "s3"):
        # Each document has a marker of its own: a list has the others, too.
        assert (listed.returncode, words in listed.stdout) == (OK, True), listed
    else:
        shown.append(listed)
    for ran in shown:
        assert ran.returncode == CONFIG, ran
        assert words in ran.stderr, ran
        assert f"leaselock {release.version} here needs layout" in ran.stderr, ran
    doctor = release.run("doctor", url, *PATIENT)
    assert (doctor.returncode, words in doctor.stdout) == (UNMET, True), doctor


def test_a_layout_that_does_not_admit_the_other_is_refused(releases: Releases, url: str) -> None:
    begin(releases.present, url)
    refused(releases.later, url, "of an older leaselock")
    # The one that was there first goes on.
    assert take(releases.present, url).returncode == OK
    assert releases.present.run("doctor", url, *PATIENT).returncode == OK


def test_the_same_where_the_later_release_came_first(releases: Releases, url: str) -> None:
    begin(releases.later, url)
    refused(releases.present, url, "of a newer leaselock")
    for release in (releases.compatible, releases.later):
        assert take(release, url).returncode == OK


def test_a_release_between_them_does_not_let_both_in(releases: Releases, url: str) -> None:
    """Its marker admits this tree, whose programs may be running."""
    begin(releases.compatible, url)
    refused(releases.later, url, "of an older leaselock (programs of layout")
    assert take(releases.present, url).returncode == OK


@pytest.mark.parametrize("first", ["present", "compatible"])
def test_releases_that_admit_each_other_exclude_each_other(
    releases: Releases, url: str, first: str
) -> None:
    begin(getattr(releases, first), url)
    for holder, other in (
        (releases.present, releases.compatible),
        (releases.compatible, releases.present),
    ):
        # It holds the lock until its standard input ends.
        holding = subprocess.Popen(
            holder.command("run", "--url", url, *PATIENT, "a", "--", "sh", "-c", "echo; cat"),
            env=holder.environment(),
            cwd=holder.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holding.stdout is not None
        assert holding.stdout.readline() == "\n"
        assert take(other, url, wait="5s").returncode == BUSY
        assert '"a"' in other.run("ls", "--url", url, *PATIENT, "--json").stdout
        holding.communicate(timeout=LIMIT)
        assert holding.returncode == OK
        assert take(other, url).returncode == OK
