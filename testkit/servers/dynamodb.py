"""A private DynamoDB: Amazon's own engine for tests, DynamoDBLocal, on a free port of 127.0.0.1.

It comes from Maven Central, pinned by version and checksum, into the user's cache folder. The
program that is delivered with it listens on all interfaces and reports its use to Amazon. Here
Jetty's own starter reads a configuration that names the address, and the library that would send
the report is not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import boto3
import pytest
from botocore.config import Config
from testkit.servers.costs import starting
from testkit.servers.process import HERE, HOST, START_TIMEOUT, Process, accepts, free_port, program

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST = Path(__file__).with_name("dynamodb_local.txt")
CACHE = Path.home() / ".cache" / "leaselock-servers" / "dynamodb-local"
# Seconds; it covers a registry that does not answer.
DOWNLOAD_TIMEOUT = 300.0
REGION = "eu-west-1"
# The engine accepts any login, but no request without one.
LOGIN = {"aws_access_key_id": "tests", "aws_secret_access_key": "none"}
JAVA = ["-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
MAIN = "org.eclipse.jetty.xml.XmlConfiguration"
ENGINE = "com.amazonaws.services.dynamodbv2.local.server"
# Jetty has the DTD in its own archive.
SERVER = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector"><Arg><New class="org.eclipse.jetty.server.ServerConnector">
    <Arg><Ref refid="Server"/></Arg>
    <Set name="host">{host}</Set>
    <Set name="port">{port}</Set>
  </New></Arg></Call>
  <Set name="handler"><New class="{engine}.LocalDynamoDBServerHandler">
    <Arg><New class="{engine}.LocalDynamoDBRequestHandler">
      <Arg type="int">0</Arg>
      <Arg type="boolean">{in_memory}</Arg>
      {folder}
      <Arg type="boolean">true</Arg>
      <Arg type="boolean">false</Arg>
    </New></Arg>
    <Arg/>
  </New></Set>
</Configure>
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>leaselock</groupId><artifactId>dynamodb-local</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<type>{}</type><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
</exclusions></dependency>
"""


class Archive(NamedTuple):
    """One file of the server."""

    checksum: str
    group: str
    artifact: str
    version: str
    kind: str

    @property
    def path(self) -> Path:
        """Where it is, once downloaded."""
        return CACHE / f"{self.artifact}-{self.version}.{self.kind}"

    def intact(self) -> bool:
        """Whether it is there, and is the one that was pinned."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest() == self.checksum
        except FileNotFoundError:
            return False


def archives() -> Iterator[Archive]:
    """What the server consists of."""
    for line in LIST.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            checksum, _, place = line.partition(" ")
            group, artifact, version, *kind = place.split(":")
            yield Archive(checksum, group, artifact, version, kind[0] if kind else "jar")


@cache
def libraries() -> list[Path]:
    """The files of the server, downloaded once; a skip where that is not possible."""
    program("java")
    found = list(archives())
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(archive.intact() for archive in found):
            _download(found)
    for archive in found:
        assert archive.intact(), f"{archive.path} is not the file that {LIST.name} names"
    return [archive.path for archive in found]


def _download(wanted: list[Archive]) -> None:
    entries = "".join(
        DEPENDENCY.format(each.group, each.artifact, each.version, each.kind) for each in wanted
    )
    with tempfile.TemporaryDirectory() as folder:
        pom = Path(folder, "pom.xml")
        pom.write_text(POM.format(entries), "utf-8")
        command = [program("mvn"), "-q", "-B", "-f", str(pom), f"-DoutputDirectory={CACHE}"]
        command += ["-Dmdep.overWriteReleases=true", "dependency:copy-dependencies"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip("no server: DynamoDBLocal was not downloaded in time")
    if done.returncode:
        pytest.skip(f"no server: DynamoDBLocal cannot be downloaded: {done.stdout[-500:]}")


class DynamoDB:
    """One server; if it is *durable*, what is written survives a restart of its process."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dynamodb-"))
        self.port = free_port()
        self.endpoint = f"http://{HOST}:{self.port}"
        self.configuration = self.folder / "server.xml"
        self.configuration.write_text(
            SERVER.format(
                host=HOST,
                port=self.port,
                in_memory=str(not durable).lower(),
                folder=f"<Arg>{self.folder}</Arg>" if durable else "<Arg/>",
                engine=ENGINE,
            ),
            "utf-8",
        )
        self.process: Process | None = None
        with starting("DynamoDBLocal"):
            self.start()

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        files = libraries()
        path = ":".join(str(file) for file in files if file.suffix == ".jar")
        command = [program("java"), *JAVA, f"-Dsqlite4java.library.path={CACHE}", "-cp", path]
        command += [f"-Djava.io.tmpdir={self.folder}", MAIN, str(self.configuration)]
        self.process = Process(command, self.folder / "log", HERE)
        assert self.process.ready(lambda: accepts(self.port)), self.process.output()
        self._warm_up()

    def _warm_up(self) -> None:
        """Wait until it has answered: its first answer takes long."""
        client = self.client()
        client.list_tables()
        client.close()

    def client(self) -> Any:
        """A client of boto3, as a user has it."""
        config = Config(read_timeout=START_TIMEOUT, retries={"total_max_attempts": 1})
        return boto3.client(
            "dynamodb", region_name=REGION, endpoint_url=self.endpoint, config=config, **LOGIN
        )

    def running(self) -> Process:
        """Its process."""
        assert self.process is not None
        return self.process

    def stop(self) -> None:
        """Kill it; what a durable one has written stays."""
        self.running().kill()

    def url(self, table: str, *, endpoint: str | None = None, **options: str) -> str:
        """The URL of a table, with a login."""
        words = {"region": REGION, "endpoint": endpoint or self.endpoint, **options}
        login = ":".join(quote(word, safe="") for word in LOGIN.values())
        return f"dynamodb://{login}@{table}?{urlencode(words)}"

    def close(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment() -> dict[str, str]:
    """The variables of a process that must find no other credentials and settings than these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
