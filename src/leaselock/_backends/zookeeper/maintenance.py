"""The store as a whole: examine it, create its root, delete the nodes of unused locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.zookeeper.layout_marker import marker_path
from leaselock._backends.zookeeper.paths import decoded
from leaselock._backends.zookeeper.requests import (
    Children,
    CreateSequential,
    Delete,
    EnsurePath,
    GetChildren,
    Node,
    Operation,
    QuorumBarrier,
    Read,
    ServerStatus,
    names_of,
)
from leaselock._core.contract.backend import Collected, Finding
from leaselock._core.contract.effects import Call
from leaselock._core.rows.maintenance import half_way, tls_finding
from leaselock._core.rows.session_leases import SessionLeases
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leaselock._backends.zookeeper.connection import Connection
    from leaselock._backends.zookeeper.url import Target
    from leaselock._core.contract.backend import Capabilities

SLOW = 0.1
# How many nodes one batch of `collect_garbage` concerns.
BATCH_SIZE = 100


class Unexamined(NamedTuple):
    """The nodes that a garbage collection has not examined yet."""

    paths: tuple[str, ...]


class Maintenance(SessionLeases):
    """The operator's requests. A subclass sends the batches."""

    def __init__(
        self,
        connection: Connection,
        root: str,
        now: Callable[[], float],
        capabilities: Capabilities,
    ) -> None:
        super().__init__(capabilities, now)
        self.connection = connection
        self.root = root

    async def batch(
        self, until: float, *operations: Operation, session: int = 0
    ) -> Sequence[object]:
        """Send operations together; return their replies."""
        raise NotImplementedError

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Create the root."""
        (root,) = await self.batch(until, Read(self.root))
        if root:
            return ()
        if not dry:
            await self.batch(until, EnsurePath(self.root))
        return (f"create {self.root}",)

    async def collect_garbage(self, position: object, until: float) -> Collected:
        """Delete the nodes of locks without holder and waiters. A lock in use has children, so its
        node is not deleted; a client that needs the node just after creates it again.

        The first step lists all nodes, the others delete. A position is the nodes that are left.
        """
        if self.root == "/":
            raise NotApplied(
                "the locks are below the root of the servers, where an empty node may be another "
                "program's: it is not known which nodes can be removed"
            )
        if not isinstance(position, Unexamined):
            _, children = await self.batch(until, QuorumBarrier(self.root), GetChildren(self.root))
            names = [name for name in names_of(children) if decoded(name) is not None]
            paths = tuple(f"{self.root.rstrip('/')}/{name}" for name in names)
            return Collected(0, Unexamined(paths) if paths else None)
        deleted, enough, paths = 0, half_way(self.now(), until), position.paths
        while paths:
            some, paths = paths[:BATCH_SIZE], paths[BATCH_SIZE:]
            deleted += await self._delete_unused(some, until)
            if self.now() >= enough:
                break
        return Collected(deleted, Unexamined(paths) if paths else None)

    async def _delete_unused(self, paths: Sequence[str], until: float) -> int:
        children = await self.batch(until, *map(GetChildren, paths))
        empty = [
            path
            for path, below in zip(paths, children, strict=True)
            if isinstance(below, Children) and not below.names
        ]
        unused = await self._persistent(empty, until)
        deleted = await self.batch(until, *map(Delete, unused)) if unused else ()
        return sum(map(bool, deleted))

    async def _persistent(self, paths: list[str], until: float) -> list[str]:
        """Without the ephemeral nodes, which are holds of the protocol "single"."""
        nodes = await self.batch(until, *map(Read, paths)) if paths else ()
        return [node.path for node in nodes if isinstance(node, Node) and not node.session]

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Examine the servers, the session, the credentials, and whether nodes can be created."""
        target, began = self.connection.target, self.now()
        try:
            await self.batch(until, QuorumBarrier("/"))
        except NotApplied as error:
            if self.connection.marker.problem is None:
                raise
            return (Finding("fail", str(error)),)
        return (
            Finding("ok", f"{target.shown} answers, {self.now() - began:.3f} s"),
            *await self._servers(until),
            _timeout(target.timeout, self.connection.timeout),
            *_credentials(target),
            *_encryption(target),
            *await self._writing(until),
            await self._layout(until),
        )

    async def _layout(self, until: float) -> Finding:
        """The marker, which was checked when the session began."""
        try:
            (node,) = await self.batch(until, Read(marker_path(self.root)))
        except NotApplied as error:
            what = f"the layout marker {marker_path(self.root)} may not be read: {error}"
            return Finding("warn", what, "allow it by an ACL")
        if isinstance(node, Node):
            text = node.data.decode("utf-8", "replace")
            return Finding("ok", f"the layout of the locks is {text}")
        what = f"there is no layout marker below {self.root}, and it could not be created"
        return Finding("warn", what, "open the store once as a user who may")

    async def _servers(self, until: float) -> list[Finding]:
        findings = []
        hosts = self.connection.target.hosts.split(",")
        if len(hosts) < 3:
            advice = "name all servers of the ensemble, three at least, so that one may fail"
            findings.append(Finding("warn", f"{len(hosts)} server named", advice))
        if self.connection.target.options.get("use_ssl"):
            # `KazooClient.command` takes the port for the host name, and leaks the socket.
            what = "the server's version and mode are not known: kazoo cannot ask for them over TLS"
            return [*findings, Finding("skip", what)]
        try:
            status = await Call(self.connection, ServerStatus(), until)
        except Exception as error:
            what = f"the server does not tell its version and mode ({error})"
            return [*findings, Finding("skip", what, "allow the command srvr")]
        facts = dict(_facts(status))
        version = facts.get("Zookeeper version", "of unknown version").partition("-")[0]
        mode = facts.get("Mode", "of unknown mode")
        return [*findings, Finding("ok", f"ZooKeeper {version}, {mode}")]

    async def _writing(self, until: float) -> list[Finding]:
        try:
            # A user who may create nodes below the root may be unable to create the root.
            (root,) = await self.batch(until, Read(self.root))
            if not root:
                await self.batch(until, EnsurePath(self.root))
            began = self.now()
            path = f"{self.root.rstrip('/')}/%doctor-"
            (made,) = await self.batch(until, CreateSequential(path, b""))
            took = self.now() - began
        except StoreError as error:
            what = f"no node can be created below {self.root}: {error}"
            return [Finding("fail", what, "allow it by an ACL")]
        assert isinstance(made, Node)
        await self.batch(until, Delete(made.path))
        level: Any = "ok" if took < SLOW else "warn"
        advice = "" if level == "ok" else "give the transaction log a disk of its own"
        return [Finding(level, f"a node was created below {self.root} in {took:.3f} s", advice)]


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        yield name, value


def _timeout(requested: float, given: float) -> Finding:
    if abs(requested - given) < 0.001:
        return Finding("ok", f"the session ends after {given:g} s of silence, as asked")
    advice = "a server allows 2 to 20 of its ticks: change ?timeout= or its tickTime"
    return Finding("warn", f"asked for a session of {requested:g} s, given {given:g} s", advice)


def _encryption(target: Target) -> list[Finding]:
    """By the settings: a URL always has the server verified, a client of the user's may not."""
    options = target.options
    if not options.get("use_ssl"):
        return []
    problem = ""
    if not options.get("verify_certs", True):
        problem = "the server's certificate is not verified, verify_certs=False"
    elif not options.get("check_hostname"):
        problem = "the server's name is not verified, check_hostname=False"
    advice = "a URL with ?tls=yes and ?ca=FILE, or these arguments of KazooClient"
    return [tls_finding(target.shown, problem, True, advice)]


def _credentials(target: Any) -> Iterator[Finding]:
    if not ("auth_data" in target.options or "sasl_options" in target.options):
        advice = "give credentials (?auth=digest:user:password) unless the network is closed"
        yield Finding("warn", "every user can change the nodes of locks", advice)
    elif not target.options.get("use_ssl"):
        advice = "use ?tls=yes, or SASL with GSSAPI"
        yield Finding("warn", "credentials are sent unencrypted", advice)
