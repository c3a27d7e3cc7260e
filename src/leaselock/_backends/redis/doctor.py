"""`leaselock doctor` for Redis: whether the servers can lose a grant, and who may use them.

Here the servers are asked; `checks` has the tables of what is said of their answers.
"""

from __future__ import annotations

import ipaddress
import shlex
import ssl
import time
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends import library
from leaselock._backends.redis.capabilities import examine_capabilities, server_of
from leaselock._backends.redis.checks import (
    ACCESS,
    INDEX,
    KEYS,
    LIBRARY,
    SENTINEL,
    SENTINEL_ERRORS,
    SERVER,
)
from leaselock._backends.redis.counters import counters_on, kept_counters
from leaselock._backends.redis.keys import RECORD, index_of, lock_in, name_of
from leaselock._backends.redis.layout_marker import marker_finding, marker_keys
from leaselock._backends.redis.messages import NotALock, OtherLayout, Unreachable
from leaselock._backends.redis.scan import escaped, keys_on
from leaselock._backends.redis.settings import LOGIN, MODULES, connection_class
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.checks import report
from leaselock._core.rows.maintenance import clock_finding, tls_finding
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

# What is asked for by name: "*" would also send the passwords of the server and of its replicas.
SETTINGS = tuple(
    ("CONFIG", "GET", name)
    for name in ("appendfsync", "min-replicas-to-write", "min-slaves-to-write")
)
# What is taken for the facts that a server does not say.
UNSAID: Mapping[str, Any] = {
    "redis_version": "",
    "role": "",
    "run_id": "",
    "maxmemory": "",
    "maxmemory_policy": "",
    "aof_enabled": None,
    "connected_slaves": "",
    "maxclients": "",
    "connected_clients": "0",
    "appendfsync": "unknown",
}
# How many pages of keys are looked at on each server, and the types that a lock can have.
PAGES = 100
LOCKS = (b"hash", b"string")
READ = 100
# How many commands are sent together.
TOGETHER = 500


class Examination(NamedTuple):
    """What the probes of a server need."""

    executor: Executor
    settings: Settings
    inspect: Inspect
    """Reads one lock."""
    without_login: Callable[[], SharedState]
    """Makes a store of the same servers that does not say who it is."""
    until: float


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
    examination = Examination(executor, settings, inspect, without_login, until)
    findings = [*_library(settings), *_encryption(settings)]
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
            for probe in PROBES:
                findings += await probe(examination, address)
        findings += await examine_capabilities(executor, tracking, settings.replicas, until)
    except OtherLayout as error:
        findings.append(Finding("fail", str(error)))
    return tuple(findings)


def _library(settings: Settings) -> list[Finding]:
    """Whether the installed redis-py can connect for threads and for asyncio."""
    version, problem = library("redis", "redis").__version__, ""
    try:
        for aio in (False, True):
            settings.supported(aio=aio)
    except ValueError as error:
        problem = str(error)
    return report(LIBRARY, {"version": version, "problem": problem})


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


# --- sentinels ------------------------------------------------------------------------------------


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
        errors = [reply if isinstance(reply, Exception) else None for reply in replies]
        facts = {"address": address, "quorum": errors[0], "master": errors[1]}
        findings += report(SENTINEL_ERRORS, facts)
        if errors[1] is None:
            known = _sentinel(address, replies[1], len(sentinels))
            named[f"{known['ip']}:{known['port']}"] = address
            findings += report(SENTINEL, known)
    if len(named) > 1:
        each = " and ".join(f"{master} ({address})" for master, address in named.items())
        what = f"the sentinels name different masters: {each}"
        findings.append(Finding("fail", what, "wait for the end of a failover, or correct them"))
    return findings


def _sentinel(address: Address, reply: Any, in_url: int) -> dict[str, Any]:
    """What one sentinel knows of the master, its replicas and the other sentinels; and how many
    sentinels the URL names.
    """
    known = {_text(key): _text(value) for key, value in _pairs(reply).items()}
    return {
        **{name: known.get(name) for name in ("name", "ip", "port", "quorum")},
        "address": address,
        "replicas": int(known.get("num-slaves", "0")),
        "sentinels": int(known.get("num-other-sentinels", "0")) + 1,
        "in_url": in_url,
    }


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


# --- probes of a server ---------------------------------------------------------------------------


async def _server(examination: Examination, address: Address) -> list[Finding]:
    """What the server says of itself, and its clock."""
    executor, settings, *_, until = examination
    questions = (("INFO",), *SETTINGS, ("TIME",))
    info, *configs, clock = await executor.send(address, questions, until)
    if isinstance(info, Exception):
        what = f"{address}: INFO is not allowed ({info})"
        findings = [Finding("skip", what, "grant +info")]
    else:
        said = _said(info.decode("utf-8", "replace"))
        if "role" not in said:
            said |= await _greeting(executor, address, until)
        config = {key: value for reply in configs for key, value in _settings(reply).items()}
        findings = report(SERVER, _facts(address, settings, said, config))
    if isinstance(clock, Exception):
        what = f"{address}: TIME is not allowed ({clock})"
        return [*findings, Finding("skip", what, "grant +time")]
    theirs = int(clock[0]) + int(clock[1]) / 1e6
    return [*findings, clock_finding(str(address), theirs, time.time())]


def _facts(
    address: Address, settings: Settings, said: Mapping[str, str], config: Mapping[str, str]
) -> dict[str, Any]:
    """The facts about a server: those of INFO and CONFIG by their names, and what follows from
    them.
    """
    facts = {**UNSAID, **said, **config, "address": address}
    facts["program"], facts["version"] = server_of(said)
    version = facts["redis_version"].split(".")[:2]
    facts["numbers"] = tuple(int(part) for part in version if part.isdigit())
    replicas = facts["connected_slaves"]
    facts["replicas"] = int(replicas) if replicas.isdigit() else None
    # How many have to confirm each grant; with how many the server takes writes.
    facts["confirming"] = settings.replicas
    earlier_name = config.get("min-slaves-to-write", "unknown")
    facts["least"] = config.get("min-replicas-to-write", earlier_name)
    # Of the database of the URL.
    database = said.get(f"db{settings.parameters.get('db') or 0}", "")
    keys = database.partition(",")[0].removeprefix("keys=")
    facts["keys"] = int(keys) if keys.isdigit() else 0
    return facts


async def _greeting(executor: Executor, address: Address, until: float) -> dict[str, str]:
    """The role of a server whose INFO does not have it."""
    (reply,) = await executor.send(address, (("HELLO",),), until)
    if isinstance(reply, Exception):
        return {}
    role = _pairs(reply).get(b"role", b"")
    return {"role": role.decode("utf-8", "replace")}


def _said(text: str) -> dict[str, str]:
    """What INFO says."""
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


async def _layout(examination: Examination, address: Address) -> list[Finding]:
    """The layout marker of the store."""
    executor, settings = examination.executor, examination.settings
    keys = marker_keys(settings.prefix, executor.topology.divided)
    layouts = await executor.send(address, [("GET", key) for key in keys], examination.until)
    return [marker_finding(address, layouts)]


async def _access(examination: Examination, address: Address) -> list[Finding]:
    """Whether the server lets in a client that does not say who it is. That client is asked to try:
    the settings that would tell are the passwords themselves.
    """
    problem: Any = None
    if any(examination.settings.parameters.get(word) for word in LOGIN):
        stranger = examination.without_login()
        try:
            (problem,) = await stranger.executor.send(address, (("PING",),), examination.until)
        except (Unreachable, StoreError) as error:
            problem = error
        finally:
            stranger.close()
    refused = isinstance(problem, Exception)
    facts = {"address": address, "refused": refused, "local": _is_local(address)}
    return report(ACCESS, facts)


def _is_local(address: Address) -> bool:
    if address.path or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


async def _indexes(examination: Examination, address: Address) -> list[Finding]:
    """Whether each index of active locks on this server is one, in a cluster that of each slot."""
    executor, prefix = examination.executor, examination.settings.prefix
    keys = [index_of(slot, prefix) for slot in executor.topology.slots_of(address)]
    kinds: list[Any] = []
    for start in range(0, len(keys), TOGETHER):
        questions = [("TYPE", key) for key in keys[start : start + TOGETHER]]
        kinds += await executor.send(address, questions, examination.until)
    findings: list[Finding] = []
    for key, kind in zip(keys, kinds, strict=True):
        if isinstance(kind, bytes):
            named = {"key": key, "quoted": shlex.quote(key), "type": _text(kind)}
            findings += report(INDEX, {"address": address, **named})
    return findings


async def _keys(examination: Examination, address: Address) -> list[Finding]:
    """What is beside the locks: values of the application, locks of an earlier layout, counters."""
    executor, settings, *_, until = examination
    prefix = settings.prefix
    try:
        others = await _not_locks(examination, address) if prefix else []
        records = await keys_on(executor, address, f"{RECORD}:*", until, pages=PAGES)
        counters = await counters_on(executor, address, prefix, until, PAGES)
        ends = await executor.send(address, [("PTTL", key) for key in counters], until)
    except NotApplied as error:
        return [Finding("skip", f"{address}: its keys were not examined ({error})")]
    locks = [lock for key in records if (lock := lock_in(key, RECORD)) is not None]
    early = [lock for lock in locks if not lock.startswith(prefix)]
    last = max((end for end in ends if isinstance(end, int)), default=0)
    facts = {
        "address": address,
        "prefix": prefix,
        "others": len(others),
        "other": next(iter(others), ""),
        "early": len(early),
        "early_one": next(iter(early), ""),
        "counters": len(counters),
        "endless": sum(end == -1 for end in ends),
        "token_ttl": settings.token_ttl,
        "kept": kept_counters(address, len(counters), last),
    }
    return report(KEYS, facts)


async def _not_locks(examination: Examination, address: Address) -> list[str]:
    """The keys under the prefix that are not locks. The type of each is asked for, and of those
    with the type of a lock the first ones are read.
    """
    executor, settings, inspect, _, until = examination
    prefix = settings.prefix
    under = await keys_on(executor, address, f"{escaped(prefix)}*", until, pages=PAGES)
    kinds = await executor.send(address, [("TYPE", key) for key in under], until)
    others = [key for key, kind in zip(under, kinds, strict=True) if kind not in LOCKS]
    for key in [key for key in under if key not in others][:READ]:
        try:
            await inspect(name_of(key, prefix), "*", until)
        except NotALock:
            others.append(key)
    return others


# What each server is asked, in this order.
PROBES: Sequence[Callable[[Examination, Address], Awaitable[list[Finding]]]] = (
    *(_server, _layout, _access, _indexes, _keys),
)
