"""One master, two replicas, and three sentinels that watch them and are quick to act.

`fail_over` returns when the sentinels agree on a new master and it takes writes; the old one
stays dead until `revive`, and comes back as a replica.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testkit.servers.costs import starting
from testkit.servers.process import HOST, Process, eventually, free_port, program
from testkit.servers.redis import Redis
from testkit.servers.resp import ReplyError, Wire, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "main"
QUORUM = 2
# Milliseconds; by default a sentinel looks at a server every 10 seconds.
QUICK = ("info-period", 300, "publish-period", 300, "ping-period", 100, "ask-period", 200)


class Sentinel:
    """One sentinel process."""

    def __init__(self, folder: Path, master: Redis, acl: Sequence[str]) -> None:
        folder.mkdir()
        self.port = free_port()
        secret = f"sentinel auth-pass {NAME} {master.password}\n" if master.password else ""
        (folder / "conf").write_text(
            f'port {self.port}\nbind {HOST}\ndir "{folder}"\n'
            f"sentinel monitor {NAME} {HOST} {master.port} {QUORUM}\n{secret}"
            f"sentinel down-after-milliseconds {NAME} 400\n"
            f"sentinel failover-timeout {NAME} 1000\nsentinel parallel-syncs {NAME} 2\n"
            + "".join(f"{line}\n" for line in acl)
        )
        command = [program("redis-sentinel"), str(folder / "conf")]
        self.process = Process(command, folder / "log")

    def ask(self, *words: Word) -> Any:
        """One command, on a connection of its own."""
        with Wire(self.port) as wire:
            return wire.ask(*words)

    def hastened(self) -> bool:
        """Return whether the sentinel runs, and has been configured to poll often."""
        try:
            return bool(self.ask("SENTINEL", "DEBUG", *QUICK) == "OK")
        except OSError:
            return False

    def knows(self) -> bool:
        """Whether it sees the two replicas and the two other sentinels."""
        try:
            flat = self.ask("SENTINEL", "MASTER", NAME)
        except (OSError, ReplyError):
            return False
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        found: bool = facts["num-slaves"] == "2" and facts["num-other-sentinels"] == "2"
        return found

    def master_port(self) -> int:
        """Where it says the master is."""
        return int(self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])


class Sentinels:
    """The whole set."""

    @starting("Sentinels")
    def __init__(
        self,
        *,
        password: str = "",
        appendonly: bool = False,
        acl: Sequence[str] = (),
        sentinel_acl: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sentinels-"))
        self.servers = [Redis(password=password, appendonly=appendonly, acl=acl)]
        self.sentinels: list[Sentinel] = []
        for _ in range(2):
            self.servers.append(
                Redis(
                    password=password,
                    appendonly=appendonly,
                    acl=acl,
                    replica_of=self.servers[0],
                )
            )
        for replica in self.servers[1:]:
            replica.caught_up()
        for number in range(3):
            self.sentinels.append(
                Sentinel(self.folder / str(number), self.servers[0], sentinel_acl)
            )
        for sentinel in self.sentinels:
            assert sentinel.process.ready(sentinel.hastened), sentinel.process.output()
        for sentinel in self.sentinels:
            assert sentinel.process.ready(sentinel.knows), sentinel.process.output()

    @property
    def url(self) -> str:
        """How clients reach it."""
        secret = self.servers[0].password
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{f':{secret}@' if secret else ''}{hosts}/{NAME}"

    @property
    def master(self) -> Redis:
        """The server that the sentinels say is the master."""
        port = self.sentinels[0].master_port()
        return next(server for server in self.servers if server.port == port)

    def fail_over(self) -> Redis:
        """Kill the master and wait for the next, which is returned."""
        old = self.master
        for server in self.servers:
            if server is not old and server.running().alive:
                server.caught_up()
        old.kill()
        eventually(lambda: self._agreed(old))
        return self.master

    def _agreed(self, old: Redis) -> bool:
        ports = {sentinel.master_port() for sentinel in self.sentinels}
        if len(ports) > 1 or old.port in ports:
            return False
        return self.master.info("replication")["role"] == "master"

    def revive(self, server: Redis) -> None:
        """Start a killed server again; the sentinels make it a replica."""
        server.replica_of = None
        server.start()
        eventually(lambda: self._follows(server))
        server.caught_up()

    def _follows(self, server: Redis) -> bool:
        try:
            return server.info("replication")["role"] == "slave"
        except ConnectionError:
            # The sentinel that makes it a replica ends all its connections.
            return False

    def stop(self) -> None:
        """End all of them."""
        for sentinel in self.sentinels:
            sentinel.process.kill()
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
