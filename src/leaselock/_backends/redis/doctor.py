"""`leaselock doctor` for Redis: whether the server can lose a grant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.redis.counters import counters_on
from leaselock._backends.redis.keys import RECORD, lock_in, name_of
from leaselock._backends.redis.messages import NotALock
from leaselock._backends.redis.scan import escaped, keys_on
from leaselock._core.backend import Finding
from leaselock._core.maintenance import clock_finding
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings
    from leaselock._core.backend import LockState

    Inspect = Callable[[str | None, str, float], Awaitable[Sequence[LockState]]]

OLDEST = (6, 2)
# What is asked for by name: "*" would also send the passwords of the server and of its replicas.
SETTINGS = tuple(
    ("CONFIG", "GET", name)
    for name in ("appendfsync", "min-replicas-to-write", "min-slaves-to-write")
)
# How many pages of keys are looked at on each server, and the types that a lock can have.
PAGES = 100
LOCKS = (b"hash", b"string")
READ = 100


async def examine(
    executor: Executor, settings: Settings, inspect: Inspect, until: float
) -> tuple[Finding, ...]:
    """Examine every server that has keys; *inspect* reads one lock."""
    findings = [_library(settings)]
    for address in await executor.topology.masters(executor.send, until):
        questions = (("INFO",), *SETTINGS, ("TIME",))
        replies = await executor.send(address, questions, until)
        findings += _of_server(address, replies)
        findings += _clock(address, replies[-1], time.time())
        try:
            findings += await _of_keys(executor, address, settings, inspect, until)
        except NotApplied as error:
            findings.append(Finding("skip", f"{address}: its keys were not examined ({error})"))
    return tuple(findings)


def _library(settings: Settings) -> Finding:
    """Whether the installed redis-py can connect for threads and for asyncio."""
    version = library("redis", "redis").__version__
    try:
        for aio in (False, True):
            settings.supported(aio=aio)
    except ValueError as error:
        return Finding("warn", str(error), "another release of redis-py, or without the option")
    return Finding("ok", f"redis-py {version} has all options of the URL, for threads and asyncio")


async def _of_keys(
    executor: Executor, address: Address, settings: Settings, inspect: Inspect, until: float
) -> list[Finding]:
    """What is beside the locks: values of the application, locks of an earlier layout, counters."""
    findings: list[Finding] = []
    prefix = settings.prefix
    if prefix and (others := await _not_locks(executor, address, prefix, inspect, until)):
        what = f"{address}: {len(others)} keys under {prefix!r} are not locks: {others[0]!r:.60}"
        findings.append(Finding("warn", what, "another prefix for locks (?prefix=)"))
    records = await keys_on(executor, address, f"{RECORD}:*", until, pages=PAGES)
    locks = [lock for key in records if (lock := lock_in(key, RECORD)) is not None]
    early = [lock for lock in locks if not lock.startswith(prefix)]
    if early:
        what = f"{address}: {len(early)} locks are held without {prefix!r}: {early[0]!r:.60}"
        advice = "end the programs of an earlier version, or use the same ?prefix= everywhere"
        findings.append(Finding("warn", what, advice))
    counters = await counters_on(executor, address, prefix, until, PAGES)
    ends = await executor.send(address, [("PTTL", key) for key in counters], until)
    endless = sum(end == -1 for end in ends)
    if endless and settings.token_ttl:
        what = f"{address}: {endless} of {len(counters)} token counters never expire"
        advice = "leaselock gc deletes those of ours that were not used for ?token_ttl="
        findings.append(Finding("warn", what, advice))
    else:
        findings.append(Finding("ok", f"{address}: {len(counters)} token counters"))
    return findings


async def _not_locks(
    executor: Executor, address: Address, prefix: str, inspect: Inspect, until: float
) -> list[str]:
    """The keys under the prefix that are not locks. The type of each is asked for, and of those
    with the type of a lock the first ones are read.
    """
    under = await keys_on(executor, address, f"{escaped(prefix)}*", until, pages=PAGES)
    kinds = await executor.send(address, [("TYPE", key) for key in under], until)
    others = [key for key, kind in zip(under, kinds, strict=True) if kind not in LOCKS]
    for key in [key for key in under if key not in others][:READ]:
        try:
            await inspect(name_of(key, prefix), "*", until)
        except NotALock:
            others.append(key)
    return others


def _of_server(address: Address, replies: list[Any]) -> list[Finding]:
    info, configs = replies[0], replies[1 : 1 + len(SETTINGS)]
    if isinstance(info, Exception):
        return [Finding("skip", f"{address}: INFO is not allowed ({info})", "grant +info")]
    facts = _facts(info.decode("utf-8", "replace"))
    settings = {key: value for reply in configs for key, value in _settings(reply).items()}
    return [
        _version(address, facts),
        _role(address, facts),
        _eviction(address, facts),
        _persistence(address, facts, settings),
        _replication(address, facts, settings),
    ]


def _clock(address: Address, reply: Any, wall: float) -> list[Finding]:
    if isinstance(reply, Exception):
        return [Finding("skip", f"{address}: TIME is not allowed ({reply})", "grant +time")]
    return [clock_finding(str(address), int(reply[0]) + int(reply[1]) / 1e6, wall)]


def _facts(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key: value for key, _, value in lines}


def _settings(reply: Any) -> Mapping[str, str]:
    """The reply to CONFIG GET; empty where it is not allowed, as on managed services."""
    if isinstance(reply, Exception):
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {key.decode(): value.decode("utf-8", "replace") for key, value in pairs}


def _version(address: Address, facts: Mapping[str, str]) -> Finding:
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "0")
    known = facts.get("redis_version", "0")
    numbers = tuple(int(part) for part in known.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        return Finding("fail", f"{address}: {name} {version} is too old", "6.2 or later is needed")
    return Finding("ok", f"{address}: {name} {version}")


def _role(address: Address, facts: Mapping[str, str]) -> Finding:
    role = facts.get("role")
    if role == "master":
        return Finding("ok", f"{address}: a master", server=facts.get("run_id", ""))
    return Finding("fail", f"{address}: a {role}, which takes no locks", "name the master")


def _eviction(address: Address, facts: Mapping[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy", "unknown")
    if policy == "noeviction" or facts.get("maxmemory", "0") == "0":
        return Finding("ok", f"{address}: keys are never evicted ({policy})")
    what = f"{address}: under memory pressure keys are evicted ({policy}), locks among them"
    return Finding("fail", what, "maxmemory-policy noeviction, or a server for locks alone")


def _persistence(
    address: Address, facts: Mapping[str, str], settings: Mapping[str, str]
) -> Finding:
    if facts.get("aof_enabled") == "1":
        fsync = settings.get("appendfsync", "unknown")
        if fsync == "always":
            return Finding("ok", f"{address}: every grant is on disk before it is answered")
        what = f"{address}: a crash may forget the grants of the last second (appendfsync {fsync})"
        return Finding("warn", what, "appendfsync always, or rely on fencing tokens")
    what = f"{address}: a restart forgets all locks (appendonly no)"
    return Finding("warn", what, "appendonly yes, or let a restart take longer than every lease")


def _replication(
    address: Address, facts: Mapping[str, str], settings: Mapping[str, str]
) -> Finding:
    replicas = facts.get("connected_slaves", "0")
    if replicas == "0":
        return Finding("ok", f"{address}: no replicas, so no failover can lose a lock")
    least = settings.get("min-replicas-to-write", settings.get("min-slaves-to-write", "0"))
    what = f"{address}: {replicas} replicas; a failover may lose the grants they do not have yet"
    advice = "?replicas=1, min-replicas-to-write 1, and fencing tokens"
    return Finding("ok" if least not in ("0", "") else "warn", what, advice)
