"""`leaselock doctor` for Redis: whether the servers can lose a grant, and who may use them."""

from __future__ import annotations

import ipaddress
import shlex
import ssl
import time
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from leaselock._backends import library
from leaselock._backends.redis.capabilities import examine_capabilities, server_of
from leaselock._backends.redis.counters import counters_on, kept_counters
from leaselock._backends.redis.keys import RECORD, index_of, lock_in, name_of
from leaselock._backends.redis.layout_marker import marker_finding, marker_keys
from leaselock._backends.redis.messages import NotALock, OtherLayout, Unreachable
from leaselock._backends.redis.pool import KEPT_UNUSED
from leaselock._backends.redis.scan import escaped, keys_on
from leaselock._backends.redis.settings import LOGIN, MODULES, connection_class
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.maintenance import clients_finding, clock_finding, tls_finding
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.key_tracking import KeyTracking
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import LockState

    Inspect = Callable[[str | None, str, float], Awaitable[Sequence[LockState]]]

OLDEST = (6, 2)
FEWEST_SENTINELS = 3
# What is asked for by name: "*" would also send the passwords of the server and of its replicas.
SETTINGS = tuple(
    ("CONFIG", "GET", name)
    for name in ("appendfsync", "min-replicas-to-write", "min-slaves-to-write")
)
# How many pages of keys are looked at on each server, and the types that a lock can have.
PAGES = 100
LOCKS = (b"hash", b"string")
READ = 100
# How many commands are sent together.
TOGETHER = 500
# To look at this number of keys takes a server about a second.
MANY_KEYS = 1_000_000
# A client of threads keeps that many connections, and has one more for each thread that waits.
CONNECTIONS = KEPT_UNUSED + 1


class Server(NamedTuple):
    """What a server says of itself, and how the client uses it."""

    address: Address
    facts: Mapping[str, str]
    """INFO."""
    config: Mapping[str, str]
    """CONFIG GET; empty where that is not allowed."""
    settings: Settings


async def examine(
    executor: Executor,
    settings: Settings,
    inspect: Inspect,
    tracking: KeyTracking,
    without_login: Callable[[], SharedState],
    until: float,
) -> tuple[Finding, ...]:
    """Examine every server that has keys; *inspect* reads one lock, *without_login* makes a store
    of the same servers that does not say who it is.
    """
    findings = [_library(settings), *_encryption(settings)]
    markers = marker_keys(settings.prefix, executor.topology.divided)
    if settings.service:
        findings += await _of_sentinels(executor, settings, until)
    try:
        try:
            masters = await executor.topology.masters(executor.send, until)
        except (Unreachable, StoreError) as error:
            if not settings.service:
                raise
            return (*findings, Finding("fail", str(error)))
        for address in masters:
            questions = (("INFO",), *SETTINGS, ("TIME",))
            replies = await executor.send(address, questions, until)
            findings += await _of_server(executor, address, settings, replies, until)
            findings += _clock(address, replies[-1], time.time())
            layouts = await executor.send(address, [("GET", key) for key in markers], until)
            findings.append(marker_finding(address, layouts))
            findings.append(await _access(address, settings, without_login, until))
            findings += await _of_index(executor, address, settings.prefix, until)
            try:
                findings += await _of_keys(executor, address, settings, inspect, until)
            except NotApplied as error:
                what = f"{address}: its keys were not examined ({error})"
                findings.append(Finding("skip", what))
        findings += await examine_capabilities(executor, tracking, settings.replicas, until)
    except OtherLayout as error:
        findings.append(Finding("fail", str(error)))
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


def _encryption(settings: Settings) -> list[Finding]:
    if not settings.tls:
        return []
    problem = ""
    module = library(MODULES[0], "redis")
    kind = connection_class(module, settings.addresses[0], settings.tls)
    known = signature(kind.__init__).parameters
    for parameters in (
        settings.parameters,
        settings.sentinel_parameters if settings.service else settings.parameters,
    ):
        certificates = parameters.get("ssl_cert_reqs", known["ssl_cert_reqs"].default)
        names = parameters.get("ssl_check_hostname", known["ssl_check_hostname"].default)
        if certificates in (None, "none", ssl.CERT_NONE):
            problem = "the server's certificate is not verified, ssl_cert_reqs=none"
        elif not names and not problem:
            problem = "the server's name is not verified, ssl_check_hostname=false"
    advice = "ssl_cert_reqs=required and ssl_check_hostname=true, with ssl_ca_certs=FILE"
    return [tls_finding("the connections", problem, True, advice)]


async def _of_sentinels(executor: Executor, settings: Settings, until: float) -> list[Finding]:
    """Whether the sentinels would replace the master if it failed."""
    findings, named = [], {}
    service, sentinels = settings.service, settings.addresses
    questions = (("SENTINEL", "CKQUORUM", service), ("SENTINEL", "MASTER", service))
    for asked, address in enumerate(sentinels):
        left, now = len(sentinels) - asked, executor.now()
        try:
            # One that keeps silent leaves time for the others, and for the master.
            replies = await executor.send(address, questions, now + (until - now) / (left + 1))
        except (Unreachable, StoreError) as error:
            what = f"the sentinel {address} does not answer: {error}"
            findings.append(Finding("warn", what, "start it: a failover needs most of them"))
            continue
        quorum, facts = replies
        if isinstance(quorum, Exception):
            level: Literal["skip", "fail"] = "skip" if "NOPERM" in str(quorum) else "fail"
            what = f"the sentinel {address}: no failover could be decided ({quorum})"
            findings.append(Finding(level, what, "start the sentinels that are missing"))
        if isinstance(facts, Exception):
            findings.append(Finding("skip", f"the sentinel {address}: it does not say ({facts})"))
            continue
        known = {_text(key): _text(value) for key, value in _pairs(facts).items()}
        named[f"{known.get('ip')}:{known.get('port')}"] = address
        findings += _of_sentinel(address, known, len(sentinels))
    if len(named) > 1:
        each = " and ".join(f"{master} ({address})" for master, address in named.items())
        what = f"the sentinels name different masters: {each}"
        findings.append(Finding("fail", what, "wait for the end of a failover, or correct them"))
    return findings


def _of_sentinel(address: Address, known: Mapping[str, str], in_url: int) -> list[Finding]:
    """What one sentinel knows of the master, its replicas and the other sentinels."""
    findings = []
    replicas = int(known.get("num-slaves", "0"))
    sentinels = int(known.get("num-other-sentinels", "0")) + 1
    what = (
        f"the sentinel {address}: {known.get('name')} is {known.get('ip')}:{known.get('port')}, "
        f"{replicas} replicas, {sentinels} sentinels, quorum {known.get('quorum')}"
    )
    findings.append(Finding("ok", what))
    if not replicas:
        what = f"the sentinel {address}: there is no replica that could replace the master"
        findings.append(Finding("warn", what, "add a replica (REPLICAOF)"))
    if sentinels < FEWEST_SENTINELS:
        what = f"the sentinel {address}: {sentinels} sentinels cannot decide when one is gone"
        findings.append(Finding("warn", what, f"{FEWEST_SENTINELS} sentinels, on other machines"))
    elif sentinels > in_url:
        what = f"the URL names {in_url} of {sentinels} sentinels: programs depend on these alone"
        findings.append(Finding("warn", what, "name all of them in the URL"))
    return findings


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


async def _access(
    address: Address, settings: Settings, without_login: Callable[[], SharedState], until: float
) -> Finding:
    """Whether the server lets in a client that does not say who it is. That client is asked to try:
    the settings that would tell are the passwords themselves.
    """
    problem: Any = None
    if any(settings.parameters.get(word) for word in LOGIN):
        stranger = without_login()
        try:
            (problem,) = await stranger.executor.send(address, (("PING",),), until)
        except (Unreachable, StoreError) as error:
            problem = error
        finally:
            stranger.close()
        if isinstance(problem, Exception):
            return Finding("ok", f"{address}: clients without a login are refused")
    if _is_local(address):
        return Finding("ok", f"{address}: no login is needed, by this way within this machine")
    what = f"{address}: no login is needed: every program that reaches it can take and end locks"
    return Finding("warn", what, "requirepass, or ACL users with the default user off")


def _is_local(address: Address) -> bool:
    if address.path or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


async def _of_index(
    executor: Executor, address: Address, prefix: str, until: float
) -> list[Finding]:
    """Whether each index of active locks on this server is one, in a cluster that of each slot."""
    keys = [index_of(slot, prefix) for slot in executor.topology.slots_of(address)]
    kinds: list[Any] = []
    for start in range(0, len(keys), TOGETHER):
        questions = [("TYPE", key) for key in keys[start : start + TOGETHER]]
        kinds += await executor.send(address, questions, until)
    return [
        Finding(
            "fail",
            f"{address}: the key {key!r} holds a {kind.decode('utf-8', 'replace')} in place of the "
            "index of active locks, a sorted set: each list looks at all keys",
            f"redis-cli DEL {shlex.quote(key)}, then leaselock gc; and find out who wrote it",
        )
        for key, kind in zip(keys, kinds, strict=True)
        if isinstance(kind, bytes) and kind not in (b"none", b"zset")
    ]


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
        last = max((end for end in ends if isinstance(end, int)), default=0)
        findings.append(Finding("ok", kept_counters(address, len(counters), last)))
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


async def _of_server(
    executor: Executor, address: Address, settings: Settings, replies: list[Any], until: float
) -> list[Finding]:
    info, configs = replies[0], replies[1 : 1 + len(SETTINGS)]
    if isinstance(info, Exception):
        return [Finding("skip", f"{address}: INFO is not allowed ({info})", "grant +info")]
    facts = _facts(info.decode("utf-8", "replace"))
    if "role" not in facts:
        facts |= await _greeting(executor, address, until)
    config = {key: value for reply in configs for key, value in _settings(reply).items()}
    server = Server(address, facts, config, settings)
    return [finding for check in CHECKS if (finding := check(server)) is not None]


async def _greeting(executor: Executor, address: Address, until: float) -> dict[str, str]:
    """The role of a server whose INFO does not have it."""
    (reply,) = await executor.send(address, (("HELLO",),), until)
    if isinstance(reply, Exception):
        return {}
    role = _pairs(reply).get(b"role", b"")
    return {"role": role.decode("utf-8", "replace")}


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
    return {key.decode(): value.decode("utf-8", "replace") for key, value in _pairs(reply).items()}


def _pairs(reply: Any) -> dict[Any, Any]:
    """A map, which protocol 2 has as a list."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _version(server: Server) -> Finding:
    name, version = server_of(server.facts)
    known = server.facts.get("redis_version", "")
    numbers = tuple(int(part) for part in known.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST:
        what = f"{server.address}: {name} {version} is too old"
        return Finding("fail", what, "6.2 or later is needed")
    return Finding("ok", f"{server.address}: {name} {version}, with RESP3")


def _role(server: Server) -> Finding:
    address, role = server.address, server.facts.get("role")
    if role == "master":
        return Finding("ok", f"{address}: a master", server=server.facts.get("run_id", ""))
    if not role:
        return Finding("skip", f"{address}: neither INFO nor HELLO says whether it is a master")
    if role == "active-replica":
        what = f"{address}: an active replica: it and its master each grant the same lock"
        return Finding("fail", what, "active-replica no")
    return Finding("fail", f"{address}: a {role}, which takes no locks", "name the master")


def _eviction(server: Server) -> Finding:
    address, facts = server.address, server.facts
    policy = facts.get("maxmemory_policy", "")
    if policy == "noeviction" or facts.get("maxmemory") == "0":
        return Finding("ok", f"{address}: keys are never evicted ({policy})")
    if not policy:
        what = f"{address}: INFO does not say whether keys are evicted under memory pressure"
        return Finding("skip", what, "turn eviction off: it would end locks")
    what = f"{address}: under memory pressure keys are evicted ({policy}), locks among them"
    return Finding("fail", what, "maxmemory-policy noeviction, or a server for locks alone")


def _persistence(server: Server) -> Finding:
    address, enabled = server.address, server.facts.get("aof_enabled")
    if enabled is None:
        what = f"{address}: INFO does not say whether a restart forgets the locks"
        return Finding("skip", what, "see its documentation, or rely on fencing tokens")
    if enabled == "1":
        fsync = server.config.get("appendfsync", "unknown")
        if fsync == "always":
            return Finding("ok", f"{address}: every grant is on disk before it is answered")
        what = f"{address}: a crash may forget the grants of the last second (appendfsync {fsync})"
        return Finding("warn", what, "appendfsync always, or rely on fencing tokens")
    what = f"{address}: a restart forgets all locks (appendonly no)"
    return Finding("warn", what, "appendonly yes, or let a restart take longer than every lease")


def _replication(server: Server) -> Finding:
    address, wanted = server.address, server.settings.replicas
    replicas = server.facts.get("connected_slaves", "")
    if not replicas.isdigit():
        what = f"{address}: INFO does not say whether it has replicas, to which a failover may lose"
        return Finding("skip", f"{what} grants", "fencing tokens")
    if int(replicas) < wanted:
        what = f"{address}: ?replicas={wanted}, but it has {replicas}: no lock can be granted"
        return Finding("fail", what, "more replicas, or a smaller ?replicas=")
    if replicas == "0":
        return Finding("ok", f"{address}: no replicas, so no failover can lose a lock")
    if 0 < wanted < int(replicas):
        what = (
            f"{address}: ?replicas={wanted} of {replicas}: a failover to one that has not confirmed"
        )
        return Finding("warn", f"{what} a grant loses it", f"?replicas={replicas}")
    config = server.config
    least = config.get("min-replicas-to-write", config.get("min-slaves-to-write", "unknown"))
    what = f"{address}: connected replicas: {replicas}; a failover may lose the latest grants"
    if least.isdigit() and int(least) > 0:
        return Finding("ok", f"{what}; cut off from them it stops (min-replicas-to-write {least})")
    advice = f"?replicas={replicas}, min-replicas-to-write 1, and fencing tokens"
    what += f"; cut off from them it goes on granting (min-replicas-to-write {least})"
    return Finding("warn", what, advice)


def _clients(server: Server) -> Finding | None:
    facts = server.facts
    most, now = facts.get("maxclients", ""), facts.get("connected_clients", "0")
    if not (most.isdigit() and now.isdigit()):
        return None
    limit = (
        f"maxclients is {most}, of which {now} are connected; a client for threads opens one more "
        "for each thread that waits, one for asyncio opens one in all"
    )
    usable = int(most) - int(now)
    return clients_finding(str(server.address), limit, usable, CONNECTIONS, "a larger maxclients")


def _size(server: Server) -> Finding | None:
    database = server.facts.get(f"db{server.settings.parameters.get('db') or 0}", "")
    keys = database.partition(",")[0].removeprefix("keys=")
    if not keys.isdigit() or int(keys) < MANY_KEYS:
        return None
    what = f"{server.address}: {keys} keys in its database: ls --all and gc look at all of them"
    return Finding("warn", what, "a database, or a server, for locks alone")


CHECKS: tuple[Callable[[Server], Finding | None], ...] = (
    *(_version, _role, _eviction, _persistence, _replication, _clients, _size),
)
