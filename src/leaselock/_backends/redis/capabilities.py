"""Which server answers, and whether it can do what leaselock relies on.

Servers that speak the protocol of Redis differ in details. Their names are shown, but decide
nothing: each detail is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.redis.executor import AT_FIRST, EARLIER_FORM
from leaselock._backends.redis.keys import OURS
from leaselock._backends.redis.scripts import PROBE
from leaselock._backends.redis.waiters import RECHECK_MS
from leaselock._core.contract.backend import Finding
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.key_tracking import KeyTracking

# The key, and the channel, of what is tried: no lock can have them.
PROBED = f"{OURS}doctor"
# The field of INFO by which a server is known, and its name.
VERSIONS = (
    ("dragonfly_version", "Dragonfly"),
    ("valkey_version", "Valkey"),
    ("upstash_version", "Upstash"),
)


def server_of(facts: Mapping[str, str]) -> tuple[str, str]:
    """The name and the version of the server, by what INFO says."""
    for field, name in VERSIONS:
        if field in facts:
            return name, facts[field].removeprefix("df-v")
    version = facts.get("redis_version", "")
    if "mvcc_depth" in facts:
        return "KeyDB", version
    os = facts.get("os", "")
    return (os if os.startswith("Amazon ") else "Redis"), version


class Need(NamedTuple):
    """What scripts need, and what becomes of leaselock without it."""

    level: Literal["warn", "fail"]
    what: str
    consequence: str
    advice: str


# In the order of the replies of the script.
NEEDS = (
    Need(
        "warn",
        "scripts cannot PUBLISH",
        f"waiters are not notified: each asks again every {RECHECK_MS // 1000} s, out of turn",
        "grant +publish and the channels of locks, or use another server",
    ),
    Need(
        "fail",
        "scripts cannot ask PUBSUB for subscribers",
        "waiters cannot be listed, and no reader or permit can wait behind another waiter",
        "grant +pubsub, or use another server",
    ),
    Need("fail", "scripts cannot SET with GET", "no token can be drawn", "use another server"),
    Need(
        "fail",
        "EXISTS does not count each key",
        "a claim that was given up could be granted",
        "use another server",
    ),
    Need("fail", "scripts have no unpack", "rwlock and semaphore fail", "use another server"),
)
TRACKING = (
    "changes of a lock are not pushed (CLIENT TRACKING): watch() and the page look at intervals of "
    "up to a second"
)


async def examine_capabilities(
    executor: Executor, tracking: KeyTracking, replicas: int, until: float
) -> list[Finding]:
    """Try what leaselock relies on, on the server of one key: the others are of the same kind.
    *replicas* have to confirm each grant.
    """
    try:
        return [
            *await _scripts(executor, until),
            await _tracking(executor, tracking, until),
            *(await _confirming(executor, replicas, until) if replicas else ()),
        ]
    except StoreError as error:
        advice = "grant what the Redis page lists, or use another server"
        return [Finding("fail", f"what locks need could not be tried ({error})", advice)]


async def _scripts(executor: Executor, until: float) -> list[Finding]:
    await executor.topology.masters(executor.send, until)  # finds out whether messages are sharded
    sharded = executor.topology.sharded
    verbs = ("SPUBLISH", "SHARDNUMSUB") if sharded else ("PUBLISH", "NUMSUB")
    replies = await executor.evaluate(PROBE, PROBE.command((PROBED,), (*verbs, PROBED)), until)
    findings = []
    for need, reply in zip(NEEDS, replies, strict=True):
        said = EARLIER_FORM.sub("", reply.decode("utf-8", "replace"))
        if said.partition(" ")[0] in AT_FIRST:
            return [Finding("fail", f"the server takes no writes now ({said})")]
        if said:
            what = f"{need.what}, so {need.consequence} ({said})"
            findings.append(Finding(need.level, what, need.advice))
    return findings or [Finding("ok", "scripts can do everything that locks need")]


async def _confirming(executor: Executor, replicas: int, until: float) -> list[Finding]:
    try:
        await executor.ask(PROBED, (("WAIT", 0, 1),), until)
    except NotApplied as error:
        what = f"WAIT cannot be used, so ?replicas={replicas} lets no lock be granted ({error})"
        return [Finding("fail", what, "grant +wait, or leave ?replicas= out")]
    return []


async def _tracking(executor: Executor, tracking: KeyTracking, until: float) -> Finding:
    try:
        notified = await tracking.watch(executor.ask, PROBED, (PROBED,), until)
    finally:
        tracking.forget(PROBED)
    if notified:
        return Finding("ok", "changes of a lock are pushed to its watchers")
    return Finding("warn", TRACKING, "grant +client|tracking and +client|caching, if there are any")
