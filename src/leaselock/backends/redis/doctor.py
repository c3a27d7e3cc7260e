"""`leaselock doctor` for Redis: whether the server can lose a grant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock.core.backend import Finding
from leaselock.core.maintenance import clock_finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock.backends.redis.executor import Executor
    from leaselock.backends.redis.messages import Address

OLDEST = (6, 2)


async def examine(executor: Executor, until: float) -> tuple[Finding, ...]:
    """Examine every server that has keys."""
    findings: list[Finding] = []
    for address in await executor.topology.masters(executor.send, until):
        questions = (("INFO",), ("CONFIG", "GET", "*"), ("TIME",))
        replies = await executor.send(address, questions, until)
        findings += _of_server(address, replies)
        findings += _clock(address, replies[2], time.time())
    return tuple(findings)


def _of_server(address: Address, replies: list[Any]) -> list[Finding]:
    info, config = replies[0], replies[1]
    if isinstance(info, Exception):
        return [Finding("skip", f"{address}: INFO is not allowed ({info})", "grant +info")]
    facts = _facts(info.decode("utf-8", "replace"))
    settings = _settings(config)
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
