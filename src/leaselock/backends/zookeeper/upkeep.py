"""What is done about the store as a whole: examine it, prepare it, sweep it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.places import decoded
from leaselock.backends.zookeeper.requests import (
    Agree,
    Children,
    Create,
    Delete,
    Ensure,
    Node,
    Read,
)
from leaselock.core.backend import CollectGarbage, Doctor, Finding, Setup
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leaselock.backends.zookeeper.requests import Landed
    from leaselock.backends.zookeeper.session import Session

UPKEEP = (Doctor, Setup, CollectGarbage)
SLOW = 0.1
TOGETHER = 500


def upkeep(request: object, session: Session, fly: Callable[..., Landed]) -> object:
    """Carry one of them out, by flights that block."""
    if isinstance(request, Setup):
        return _prepared(request, session.target.root, fly)
    if isinstance(request, CollectGarbage):
        return _swept(session.target.root, fly)
    return tuple(_examined(session, fly))


def _prepared(request: Setup, root: str, fly: Callable[..., Landed]) -> tuple[str, ...]:
    (there,) = fly(Read(root)).answers
    if there:
        return ()
    if not request.dry:
        fly(Ensure(root))
    return (f"create {root}",)


def _swept(root: str, fly: Callable[..., Landed]) -> int:
    """Remove the nodes of locks that nobody holds or waits for. One that is wanted meanwhile has
    children, and stays; one that is wanted just after is made again.
    """
    _, nodes = fly(Agree(root), Children(root)).answers
    names = nodes if isinstance(nodes, tuple) else ()
    paths = [f"{root.rstrip('/')}/{node}" for node in names if decoded(node) is not None]
    gone = 0
    for start in range(0, len(paths), TOGETHER):
        some = paths[start : start + TOGETHER]
        below = fly(*map(Children, some)).answers
        empty = [path for path, found in zip(some, below, strict=True) if found == ()]
        lasting = _lasting(empty, fly)
        gone += sum(map(bool, fly(*map(Delete, lasting)).answers)) if lasting else 0
    return gone


def _lasting(paths: list[str], fly: Callable[..., Landed]) -> list[str]:
    """Without those that are a hold of the protocol "single"."""
    nodes = fly(*map(Read, paths)).answers if paths else ()
    return [node.path for node in nodes if isinstance(node, Node) and not node.session]


def _examined(session: Session, fly: Callable[..., Landed]) -> Iterator[Finding]:
    target = session.target
    began = time.monotonic()
    landed = fly(Agree("/"))
    yield Finding("ok", f"{target.shown} answers, {time.monotonic() - began:.3f} s")
    yield from _servers(session)
    yield _timeout(target.timeout, landed.timeout)
    yield from _secrets(target)
    yield from _writing(target.root, fly)


def _servers(session: Session) -> Iterator[Finding]:
    hosts = session.target.hosts.split(",")
    if len(hosts) < 3:
        advice = "name all servers of the ensemble, three at least, so that one may fail"
        yield Finding("warn", f"{len(hosts)} server named", advice)
    try:
        facts = dict(_facts(session.client.command(b"srvr")))
    except Exception as error:
        yield Finding("skip", f"the server does not say what it is ({error})", "allow srvr")
        return
    version = facts.get("Zookeeper version", "of unknown version").partition("-")[0]
    yield Finding("ok", f"ZooKeeper {version}, {facts.get('Mode', 'of unknown mode')}")


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        yield name, value


def _timeout(asked: float, given: float) -> Finding:
    if abs(asked - given) < 0.001:
        return Finding("ok", f"the session ends after {given:g} s of silence, as asked")
    advice = "a server allows 2 to 20 of its ticks: change ?timeout= or its tickTime"
    return Finding("warn", f"asked for a session of {asked:g} s, given {given:g} s", advice)


def _secrets(target: Any) -> Iterator[Finding]:
    known = "auth_data" in target.options or "sasl_options" in target.options
    if not known:
        advice = "give credentials (?auth=digest:user:password) unless the network is closed"
        yield Finding("warn", "our nodes can be changed by everybody", advice)
    elif not target.options.get("use_ssl"):
        yield Finding("warn", "credentials travel in clear", "use ?tls=yes, or SASL with GSSAPI")


def _writing(root: str, fly: Callable[..., Landed]) -> Iterator[Finding]:
    try:
        # Who may work below a root need not be one who may make it.
        (there,) = fly(Read(root)).answers
        if not there:
            fly(Ensure(root))
        began = time.monotonic()
        (made,) = fly(Create(f"{root.rstrip('/')}/%doctor-", b"")).answers
        took = time.monotonic() - began
    except StoreError as error:
        yield Finding("fail", f"no node can be made below {root}: {error}", "allow it by an ACL")
        return
    assert isinstance(made, Node)
    fly(Delete(made.path))
    level: Any = "ok" if took < SLOW else "warn"
    advice = "" if level == "ok" else "give the transaction log a disk of its own"
    yield Finding(level, f"a node was made below {root} in {took:.3f} s", advice)
