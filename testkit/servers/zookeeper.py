"""A private ZooKeeper: one server, or an ensemble of several, on free ports of 127.0.0.1.

One object is one server, with its ports and its folder for its whole life, whatever happens
to the process in between. Ticks are short, so that a session may be as short as a test wants it;
nothing is forced to the disk, since no test cuts the power.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from testkit.servers import versions
from testkit.servers.costs import starting
from testkit.servers.process import HERE, Location, Process, eventually, free_port, program

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK_MS = 100
# The class path in its manifest names what else it needs; only TLS wants more.
JARS = "/usr/share/java"
LIBRARIES = [f"{JARS}/{name}.jar" for name in ("zookeeper", "netty-codec", "netty-resolver")]
JAVA = ["-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
SETTINGS = {
    "tickTime": TICK_MS,
    "initLimit": 100,
    "syncLimit": 20,
    "maxClientCnxns": 0,
    "maxSessionTimeout": 60_000,
    "autopurge.purgeInterval": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "reconfigEnabled": "false",
    "extendedTypesEnabled": "true",
}
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def libraries() -> str:
    """The class path of the server; a skip where it is not installed."""
    chosen = versions.class_path("zookeeper")
    if chosen is not None:
        return chosen
    if not os.path.exists(LIBRARIES[0]):
        pytest.skip("no server: zookeeper is not installed")
    return ":".join(LIBRARIES)


class Server:
    """One server of an ensemble, which knows the *peers* by their number."""

    def __init__(self, number: int, location: Location = HERE, **settings: object) -> None:
        self.number = number
        self.location = location
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        self.properties: dict[str, str] = {}
        self.port, self.quorum, self.election = free_port(), free_port(), free_port()
        self.settings = {**SETTINGS, "clientPortAddress": location.host, **settings}
        self.process: Process | None = None

    def configure(self, peers: list[Server]) -> None:
        """Write its settings."""
        lines = [f"{name}={value}" for name, value in self.settings.items()]
        lines += [f"clientPort={self.port}", f"dataDir={_escaped(self.folder)}"]
        if len(peers) > 1:
            lines += [f"server.{p.number}={p.location.host}:{p.quorum}:{p.election}" for p in peers]
        (self.folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))
        (self.folder / "myid").write_text(str(self.number))

    def start(self) -> None:
        """Start it; `role` says when it serves."""
        command = [program("java"), *JAVA, "-Dzookeeper.forceSync=no", "-cp", libraries()]
        # A dead peer's address is asked for again at once, not after a minute.
        command += ["-Dzookeeper.cnxTimeout=1000", "-Dzookeeper.electionPortBindRetry=0"]
        command += [f"-D{name}={value}" for name, value in self.properties.items()]
        command += [MAIN, str(self.folder / "zoo.cfg")]
        self.process = Process(command, self.folder / "log", self.location)

    def running(self) -> Process:
        """Its process."""
        assert self.process is not None
        return self.process

    def ask(self, word: str) -> str:
        """Its answer to a command of four letters; empty when it gives none."""
        try:
            with socket.create_connection((self.location.host, self.port), 2.0) as wire:
                wire.sendall(word.encode())
                wire.settimeout(2.0)
                return b"".join(iter(lambda: wire.recv(65536), b"")).decode()
        except OSError:
            return ""

    def facts(self) -> dict[str, str]:
        """What `mntr` says."""
        rows = (line.partition("\t") for line in self.ask("mntr").splitlines())
        return {name: value for name, _, value in rows}

    def role(self) -> str:
        """Whether it is leader, follower or standalone; empty while it does not serve."""
        return self.facts().get("zk_server_state", "")

    def remove(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.folder)


def _escaped(path: Path) -> str:
    """The path as a value of a Java properties file, which is read as Latin-1."""
    text = str(path).replace("\\", r"\\").encode("utf-16-be")
    units = [int.from_bytes(text[i : i + 2]) for i in range(0, len(text), 2)]
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


class Ensemble:
    """Several servers as one store, on this machine or one in each of *locations*."""

    def __init__(
        self, count: int = 3, locations: Sequence[Location] = (), **settings: object
    ) -> None:
        where = enumerate(locations or [HERE] * count, 1)
        self.servers = [Server(number, location, **settings) for number, location in where]
        for server in self.servers:
            server.configure(self.servers)
        with starting(f"ZooKeeper of {len(self.servers)}"):
            self.start()

    def start(self) -> None:
        """Start those that do not run, and wait until all of them serve."""
        for server in self.servers:
            if server.process is None or not server.process.alive:
                server.start()
        self.wait_until_ready()
        for server in self.servers:
            assert server.running().alive, f"zookeeper ended: {server.running().output()}"

    def wait_until_ready(self) -> None:
        """Wait until every living server serves."""
        eventually(lambda: all(s.role() for s in self.alive()))

    def alive(self) -> list[Server]:
        """Those whose process runs."""
        return [server for server in self.servers if server.running().alive]

    def stop(self) -> None:
        """Kill them all; what they have written stays."""
        for server in self.servers:
            server.running().kill()

    def leader(self) -> Server:
        """The one that leads."""
        (found,) = (s for s in self.servers if s.role() in ("leader", "standalone"))
        return found

    def followers(self) -> list[Server]:
        """Those that follow."""
        return [server for server in self.servers if server.role() == "follower"]

    @property
    def hosts(self) -> str:
        """As kazoo and our URLs write them."""
        return ",".join(f"{server.location.host}:{server.port}" for server in self.servers)

    def total(self, fact: str) -> int:
        """The sum of a figure of `mntr` over all servers."""
        return sum(int(server.facts()[fact]) for server in self.servers)

    def close(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
