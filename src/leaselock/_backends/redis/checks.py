"""What `leaselock doctor` says of Redis servers: its tables of checks.

`doctor` collects the facts. Those of a server have the names that they have in INFO and CONFIG;
`doctor` describes the others. Nothing here asks a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.pool import KEPT_UNUSED
from leaselock._core.rows.checks import Case, otherwise
from leaselock._core.rows.maintenance import clients_finding

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Finding
    from leaselock._core.rows.checks import Check, Facts

OLDEST = (6, 2)
FEWEST_SENTINELS = 3
# To look at this number of keys takes a server about a second.
MANY_KEYS = 1_000_000
# A client of threads keeps that many connections, and has one more for each thread that waits.
CONNECTIONS = KEPT_UNUSED + 1

LIBRARY: tuple[Check, ...] = (
    (
        Case(
            "warn",
            lambda library: library["problem"],
            "{problem}",
            "another release of redis-py, or without the option",
        ),
        Case(
            "ok",
            otherwise,
            "redis-py {version} has all options of the URL, for threads and asyncio",
        ),
    ),
)

# --- sentinels ------------------------------------------------------------------------------------

# What a sentinel replied to CKQUORUM and to MASTER: the errors, None where there is none.
SENTINEL_ERRORS: tuple[Check, ...] = (
    (
        Case(
            "skip",
            lambda errors: "NOPERM" in str(errors["quorum"]),
            "the sentinel {address}: whether a failover could be decided is not known ({quorum})",
            "grant +sentinel|ckquorum there",
        ),
        Case(
            "fail",
            lambda errors: errors["quorum"] is not None,
            "the sentinel {address}: no failover could be decided ({quorum})",
            "start the sentinels that are missing",
        ),
    ),
    Case(
        "skip",
        lambda errors: errors["master"] is not None,
        "the sentinel {address}: it does not say ({master})",
    ),
)

# What a sentinel knows of the master, its replicas and the other sentinels.
SENTINEL: tuple[Check, ...] = (
    Case(
        "ok",
        otherwise,
        "the sentinel {address}: {name} is {ip}:{port}, {replicas} replicas, "
        "{sentinels} sentinels, quorum {quorum}",
    ),
    Case(
        "warn",
        lambda sentinel: not sentinel["replicas"],
        "the sentinel {address}: there is no replica that could replace the master",
        "add a replica (REPLICAOF)",
    ),
    (
        Case(
            "warn",
            lambda sentinel: sentinel["sentinels"] < FEWEST_SENTINELS,
            "the sentinel {address}: {sentinels} sentinels cannot decide when one is gone",
            f"{FEWEST_SENTINELS} sentinels, on other machines",
        ),
        Case(
            "warn",
            lambda sentinel: sentinel["sentinels"] > sentinel["in_url"],
            "the URL names {in_url} of {sentinels} sentinels: programs depend on these alone",
            "name all of them in the URL",
        ),
    ),
)

# --- servers --------------------------------------------------------------------------------------


def _clients(server: Facts) -> Finding | None:
    most, now = server["maxclients"], server["connected_clients"]
    if not (most.isdigit() and now.isdigit()):
        return None
    limit = (
        f"maxclients is {most}, of which {now} are connected; a client for threads opens one more "
        "for each thread that waits, one for asyncio opens one in all"
    )
    usable = int(most) - int(now)
    return clients_finding(
        str(server["address"]), limit, usable, CONNECTIONS, "a larger maxclients"
    )


SERVER: tuple[Check, ...] = (
    (
        Case(
            "fail",
            lambda server: server["numbers"] and server["numbers"] < OLDEST,
            "{address}: {program} {version} is too old",
            "6.2 or later is needed",
        ),
        Case("ok", otherwise, "{address}: {program} {version}, with RESP3"),
    ),
    (
        Case(
            "ok",
            lambda server: server["role"] == "master",
            "{address}: a master",
            server="{run_id}",
        ),
        Case(
            "skip",
            lambda server: not server["role"],
            "{address}: neither INFO nor HELLO says whether it is a master",
        ),
        Case(
            "fail",
            lambda server: server["role"] == "active-replica",
            "{address}: an active replica: it and its master each grant the same lock",
            "active-replica no",
        ),
        Case("fail", otherwise, "{address}: a {role}, which takes no locks", "name the master"),
    ),
    (
        Case(
            "ok",
            lambda server: server["maxmemory_policy"] == "noeviction" or server["maxmemory"] == "0",
            "{address}: keys are never evicted ({maxmemory_policy})",
        ),
        Case(
            "skip",
            lambda server: not server["maxmemory_policy"],
            "{address}: INFO does not say whether keys are evicted under memory pressure",
            "turn eviction off: it would end locks",
        ),
        Case(
            "fail",
            otherwise,
            "{address}: under memory pressure keys are evicted ({maxmemory_policy}), locks among "
            "them",
            "maxmemory-policy noeviction, or a server for locks alone",
        ),
    ),
    (
        Case(
            "skip",
            lambda server: server["aof_enabled"] is None,
            "{address}: INFO does not say whether a restart forgets the locks",
            "see its documentation, or rely on fencing tokens",
        ),
        Case(
            "warn",
            lambda server: server["aof_enabled"] != "1",
            "{address}: a restart forgets all locks (appendonly no)",
            "appendonly yes, or let a restart take longer than every lease",
        ),
        Case(
            "ok",
            lambda server: server["appendfsync"] == "always",
            "{address}: every grant is on disk before it is answered",
        ),
        Case(
            "warn",
            otherwise,
            "{address}: a crash may forget the grants of the last second (appendfsync "
            "{appendfsync})",
            "appendfsync always, or rely on fencing tokens",
        ),
    ),
    (
        Case(
            "skip",
            lambda server: server["replicas"] is None,
            "{address}: INFO does not say whether it has replicas, to which a failover may lose "
            "grants",
            "fencing tokens",
        ),
        Case(
            "fail",
            lambda server: server["replicas"] < server["confirming"],
            "{address}: ?replicas={confirming}, but it has {replicas}: no lock can be granted",
            "more replicas, or a smaller ?replicas=",
        ),
        Case(
            "ok",
            lambda server: not server["replicas"],
            "{address}: no replicas, so no failover can lose a lock",
        ),
        Case(
            "warn",
            lambda server: 0 < server["confirming"] < server["replicas"],
            "{address}: ?replicas={confirming} of {replicas}: a failover to one that has not "
            "confirmed a grant loses it",
            "?replicas={replicas}",
        ),
        Case(
            "ok",
            lambda server: server["least"].isdigit() and int(server["least"]) > 0,
            "{address}: connected replicas: {replicas}; a failover may lose the latest grants; "
            "cut off from them it stops (min-replicas-to-write {least})",
        ),
        Case(
            "warn",
            otherwise,
            "{address}: connected replicas: {replicas}; a failover may lose the latest grants; "
            "cut off from them it goes on granting (min-replicas-to-write {least})",
            "?replicas={replicas}, min-replicas-to-write 1, and fencing tokens",
        ),
    ),
    _clients,
    Case(
        "warn",
        lambda server: server["keys"] >= MANY_KEYS,
        "{address}: {keys} keys in its database: ls --all and gc look at all of them",
        "a database, or a server, for locks alone",
    ),
)

# Whether a server lets in a client that does not say who it is.
ACCESS: tuple[Check, ...] = (
    (
        Case(
            "ok",
            lambda access: access["refused"],
            "{address}: clients without a login are refused",
        ),
        Case(
            "ok",
            lambda access: access["local"],
            "{address}: no login is needed, by this way within this machine",
        ),
        Case(
            "warn",
            otherwise,
            "{address}: no login is needed: every program that reaches it can take and end locks",
            "requirepass, or ACL users with the default user off",
        ),
    ),
)

# --- keys -----------------------------------------------------------------------------------------

# The type of the key of an index.
INDEX: tuple[Check, ...] = (
    Case(
        "fail",
        lambda index: index["type"] not in ("none", "zset"),
        "{address}: the key {key!r} holds a {type} in place of the index of active locks, a "
        "sorted set: each list looks at all keys",
        "redis-cli DEL {quoted}, then leaselock gc; and find out who wrote it",
    ),
)

# What is beside the locks: values of the application, locks of an earlier layout, counters.
KEYS: tuple[Check, ...] = (
    Case(
        "warn",
        lambda keys: keys["others"],
        "{address}: {others} keys under {prefix!r} are not locks: {other!r:.60}",
        "another prefix for locks (?prefix=)",
    ),
    Case(
        "warn",
        lambda keys: keys["early"],
        "{address}: {early} locks are held without {prefix!r}: {early_one!r:.60}",
        "end the programs of an earlier version, or use the same ?prefix= everywhere",
    ),
    (
        Case(
            "warn",
            lambda keys: keys["endless"] and keys["token_ttl"],
            "{address}: {endless} of {counters} token counters never expire",
            "leaselock gc deletes those of ours that were not used for ?token_ttl=",
        ),
        Case("ok", otherwise, "{kept}"),
    ),
)
