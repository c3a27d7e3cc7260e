"""A private Redis: on a free port of 127.0.0.1, its data in a folder of its own.

One object is one server, the same port and folder for its whole life, whatever happens to the
process in between. Debug commands are allowed; nothing is saved unless it is asked for.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from testkit.servers.costs import starting
from testkit.servers.process import (
    HERE,
    Location,
    Process,
    accepts,
    eventually,
    free_port,
    program,
)
from testkit.servers.resp import ReplyError, Wire, Word
from testkit.servers.tls import Certificates
from testkit.servers.versions import is_older, lacks_tls

if TYPE_CHECKING:
    from collections.abc import Sequence

STARTS = 5
BUS = 10_000


class Redis:
    """One server. *acl* are lines of an ACL file; *tls* makes it speak TLS only; *options* are
    further settings, as ("name", "value", ...). Replicas take the password of their master.
    """

    def __init__(
        self,
        *options: str,
        password: str = "",
        acl: Sequence[str] = (),
        tls: bool = False,
        unix: bool = False,
        appendonly: bool = False,
        replica_of: Redis | None = None,
        location: Location = HERE,
        start: bool = True,
    ) -> None:
        if tls and lacks_tls("redis"):
            pytest.skip("this version was built without TLS")
        self.folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.data = self.folder / "data"
        self.password = password
        self.acl = acl
        self.certificates = Certificates(self.folder / "tls") if tls else None
        self.socket = str(self.folder / "socket") if unix else ""
        self.appendonly = appendonly
        self.replica_of = replica_of
        self.location = location
        self.options = [f"--{word}" if i % 2 == 0 else word for i, word in enumerate(options)]
        self.port = 0
        self.process: Process | None = None
        if start:
            with starting("Redis"):
                self.start()

    # --- starting and stopping ------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and wait until it answers; another port if this one was taken meanwhile."""
        first = not self.port
        for _ in range(STARTS):
            self.port = self._free_port() if first else self.port
            self.data.mkdir(exist_ok=True)
            self.process = Process(self._command(), self.folder / "log", self.location)
            if self.process.ready(self.answers):
                return
        raise RuntimeError(f"redis-server does not start: {self.process and self.process.output()}")

    def _free_port(self) -> int:
        """A free port. The nodes of a cluster before Redis 7 need a second one, 10,000 above it."""
        while True:
            port = free_port()
            if not ("--cluster-enabled" in self.options and is_older("redis", 7)):
                return port
            if port + BUS < 1 << 16 and not accepts(port + BUS):
                return port

    def _command(self) -> list[str]:
        port = ["--port", "0", "--tls-port"] if self.certificates else ["--port"]
        command = [program("redis-server"), *port, str(self.port), "--bind"]
        command += [self.location.host, "--protected-mode", "no"]
        command += ["--dir", str(self.data), "--save", ""]
        if not is_older("redis", 7):
            command += ["--enable-debug-command", "local"]
        command += ["--appendonly", "yes" if self.appendonly else "no", "--appendfsync", "always"]
        command += ["--repl-diskless-sync-delay", "0", *self._secrets(), *self.options]
        if self.socket:
            command += ["--unixsocket", self.socket]
        if self.replica_of:
            command += ["--replicaof", self.replica_of.location.host, str(self.replica_of.port)]
        return command

    def _secrets(self) -> list[str]:
        words = ["--requirepass", self.password, "--masterauth", self.password]
        words = words if self.password else []
        if self.acl:
            file = self.folder / "users.acl"
            file.write_text("".join(f"{line}\n" for line in self.acl))
            words = ["--aclfile", str(file)]
        if self.certificates:
            made = self.certificates
            words += ["--tls-ca-cert-file", str(made.ca), "--tls-auth-clients", "no"]
            words += ["--tls-cert-file", str(made.cert), "--tls-key-file", str(made.key)]
        return words

    def running(self) -> Process:
        """Its process, which has been started."""
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        """SIGKILL."""
        self.running().kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.running().pause()

    def cont(self) -> None:
        """SIGCONT."""
        self.running().cont()

    def restart(self, *, keep_data: bool = True) -> None:
        """End it, if it runs, and start it again, with its data or with none."""
        if self.running().alive:
            if keep_data and not self.appendonly:
                self.ask("SAVE")
            self.running().stop()
        if not keep_data:
            shutil.rmtree(self.data)
        self.start()

    def stop(self) -> None:
        """End it, and remove its folder."""
        if self.process:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- speaking to it -------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """How clients reach it."""
        secret = f":{self.password}@" if self.password else ""
        if self.socket:
            return f"unix://{secret}{self.socket}?db=0"
        host = self.location.host
        if self.certificates:
            return f"rediss://{secret}{host}:{self.port}/0?ssl_ca_certs={self.certificates.ca}"
        return f"redis://{secret}{host}:{self.port}/0"

    def wire(self) -> Wire:
        """A new plain connection, let in."""
        tls = self.certificates.context() if self.certificates else None
        return self._let_in(Wire(self.port, host=self.location.host, tls=tls, unix=self.socket))

    def _let_in(self, wire: Wire) -> Wire:
        try:
            if self.password:
                wire.ask("AUTH", self.password)
        except (ReplyError, OSError):
            wire.close()
            raise
        return wire

    def ask(self, *words: Word) -> Any:
        """One command, on a connection of its own."""
        with self.wire() as wire:
            return wire.ask(*words)

    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            return bool(self.ask("PING") == "PONG")
        except ReplyError as error:
            return str(error).startswith(("NOAUTH", "NOPERM"))
        except OSError:
            return False

    def info(self, section: str = "everything") -> dict[str, str]:
        """What INFO says, by name."""
        lines = (line.partition(":") for line in self.ask("INFO", section).splitlines())
        return {name: value for name, colon, value in lines if colon}

    def stored_keys(self) -> list[str]:
        """All keys but those of which a prefix has one: layout marker and index of names."""
        keys: list[str] = self.ask("KEYS", "*")
        return [
            key for key in keys if not key.startswith(("leaselock:layout:", "leaselock:active:"))
        ]

    def command_count(self) -> int:
        """How many commands it has carried out, those inside scripts included."""
        return int(self.info("stats")["total_commands_processed"])

    def caught_up(self) -> None:
        """Wait until this replica is connected and has what its master has at this moment."""
        eventually(lambda: self.info("replication").get("master_link_status") == "up")
        facts = self.info("replication")
        with self.at(facts["master_host"], int(facts["master_port"])) as master:
            # A new replica is "online" up to a second before it is sent anything, for which its
            # first acknowledgement has to arrive: let there be something that it acknowledges.
            master.ask("PUBLISH", "caught up", "")
            offset = master.ask("ROLE")[1]
            eventually(lambda: self._acknowledged(master) >= offset)
        eventually(lambda: self.ask("ROLE")[4] >= offset)

    def _acknowledged(self, master: Wire) -> int:
        """Up to where the master knows this replica to be."""
        _, _, replicas = master.ask("ROLE")
        return max(
            (int(offset) for _, port, offset in replicas if int(port) == self.port), default=-1
        )

    def at(self, host: str, port: int) -> Wire:
        """A connection to another server with the same password."""
        return self._let_in(Wire(port, host=host))


# Spellings of one address. leaselock refuses a Redlock whose masters are one server.
SPELLINGS = ("127.0.0.1", "127.1", "127.0.1")


def as_masters(address: str) -> list[str]:
    """Return the URLs of three databases of one server (host:port, or user:password@host:port),
    for tests that need a Redlock but no independent masters.
    """
    place, _, port = address.rpartition(":")
    login = place.rpartition("@")[0] + "@" if "@" in place else ""
    return [f"redis://{login}{host}:{port}/{number}" for number, host in enumerate(SPELLINGS)]
