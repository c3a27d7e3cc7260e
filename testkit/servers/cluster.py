"""A cluster of three masters and three replicas; slots move and masters die on demand.

Every method returns when all live nodes agree on its result.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple, Self

from testkit.servers.costs import starting
from testkit.servers.process import HOST, eventually, free_port, program
from testkit.servers.redis import Redis
from testkit.servers.versions import is_older

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 16384


class Move(NamedTuple):
    """A slot on its way: the source redirects by ASK for keys that it no longer has."""

    cluster: Cluster
    slot: int
    source: Redis
    target: Redis

    def keys(self) -> None:
        """Move the keys that are there now."""
        with self.source.wire() as wire:
            while found := wire.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
                wire.ask("MIGRATE", HOST, self.target.port, "", 0, 5000, "KEYS", *found)

    def finish(self) -> None:
        """Move the rest, and notify all nodes: from now on they answer MOVED."""
        self.keys()
        owner = self.cluster.ids[self.target.port]
        for server in (self.target, self.source, *self.cluster.masters()):
            server.ask("CLUSTER", "SETSLOT", self.slot, "NODE", owner)
        eventually(lambda: self.cluster.all_know_owner(self.slot, self.target))


class Cluster:
    """The six nodes. *acl* are lines of an ACL file, *login* is how clients log in, *options* are
    further settings of each node.
    """

    @starting("Redis Cluster")
    def __init__(self, acl: Sequence[str] = (), login: str = "", *options: str) -> None:
        self.login = login
        self.options = options
        self.servers = [self._node(acl) for _ in range(6)]
        addresses = [f"{HOST}:{server.port}" for server in self.servers]
        create = [program("redis-cli"), "--cluster", "create", *addresses]
        create += ["--cluster-replicas", "1", "--cluster-yes"]
        made = subprocess.run(create, check=False, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
        self.ids = {server.port: server.ask("CLUSTER", "MYID") for server in self.servers}
        eventually(lambda: all(self._whole(server) for server in self.servers))

    def _node(self, acl: Sequence[str]) -> Redis:
        bus = ["cluster-enabled", "yes"]
        if not is_older("redis", 7):
            bus += ["cluster-port", str(free_port())]
        quick = ["cluster-node-timeout", "1000", "cluster-replica-validity-factor", "0"]
        return Redis(*bus, *quick, *self.options, acl=acl)

    def _whole(self, server: Redis) -> bool:
        with server.wire() as wire:
            facts = wire.ask("CLUSTER", "INFO")
            if "cluster_state:ok" not in facts or "cluster_known_nodes:6" not in facts:
                return False
            role = wire.ask("ROLE")
        return bool(role[0] == "master" or role[3] == "connected")

    @property
    def url(self) -> str:
        """How clients reach it."""
        hosts = ",".join(f"{HOST}:{server.port}" for server in self.servers)
        return f"redis+cluster://{self.login}{hosts}"

    def alive(self) -> list[Redis]:
        """The nodes that run."""
        return [server for server in self.servers if server.running().alive]

    def masters(self) -> list[Redis]:
        """The living nodes that have slots."""
        return [server for server in self.alive() if server.ask("ROLE")[0] == "master"]

    def replicas(self, master: Redis) -> list[Redis]:
        """The living nodes that copy *master*."""
        roles = [(server, server.ask("ROLE")) for server in self.alive()]
        return [server for server, role in roles if role[0] == "slave" and role[2] == master.port]

    def slot(self, key: str) -> int:
        """The slot of a key."""
        return int(self.alive()[0].ask("CLUSTER", "KEYSLOT", key))

    def owner(self, slot: int, asked: Redis | None = None) -> Redis:
        """Who serves the slot, as *asked* (else the first that lives) knows it."""
        asked = asked or self.alive()[0]
        for first, last, master, *_ in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == master[1])
        raise LookupError(f"no server has slot {slot}")

    def all_know_owner(self, slot: int, owner: Redis) -> bool:
        """Return whether all live nodes know that *owner* serves the slot."""
        return all(self.owner(slot, server) is owner for server in self.alive())

    def begin_move(self, slot: int) -> Move:
        """Set a slot on its way to another master."""
        source = self.owner(slot)
        target = next(server for server in self.masters() if server is not source)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source.port])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target.port])
        return Move(self, slot, source, target)

    def move_slot(self, slot: int) -> Redis:
        """Move a slot to another master, which is returned."""
        move = self.begin_move(slot)
        move.finish()
        return move.target

    def fail_over(self, slot: int) -> Redis:
        """Kill the master of the slot, and wait until its replica serves; that is returned."""
        old = self.owner(slot)
        for replica in self.replicas(old):
            replica.caught_up()
        old.kill()
        eventually(lambda: self._replaced(slot, old))
        return self.owner(slot)

    def _replaced(self, slot: int, old: Redis) -> bool:
        new = self.owner(slot)
        if new is old or not self.all_know_owner(slot, new):
            return False
        return all("cluster_state:ok" in server.ask("CLUSTER", "INFO") for server in self.alive())

    def revive(self, server: Redis) -> None:
        """Start a killed node again; it becomes a replica of the one that took its slots."""
        server.start()
        eventually(lambda: self._whole(server) and server.ask("ROLE")[0] == "slave")

    def stop(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
