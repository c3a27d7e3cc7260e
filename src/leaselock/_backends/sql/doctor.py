"""What `leaselock doctor` examines in a database."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from leaselock._backends.sql.pool import SPARE
from leaselock._backends.sql.server_info import (
    other_tables,
    setup_command,
    tables_problem,
    version_problem,
)
from leaselock._backends.sql.statements import SqlError
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.maintenance import (
    FREE_SOME,
    clients_finding,
    clock_finding,
    space_finding,
    tls_finding,
)

if TYPE_CHECKING:
    from leaselock._backends.sql.connection import Tls
    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.server_info import ServerInfo

# The oldest version that has everything the protocols need.
OLDEST_POSTGRES = 140000
DISK_FULL = "53100"
# InnoDB makes a file larger by several megabytes at once.
NO_SPACE, LOW_SPACE = 16 * 2**20, 256 * 2**20
VERIFY = {
    "postgres": "sslmode=verify-full and sslrootcert=FILE in the URL",
    "mysql": "ssl_ca=FILE in the URL, or ssl=yes for the system's authorities",
}


async def examine(server: ServerInfo, executor: Executor) -> tuple[Finding, ...]:
    """One finding for each thing examined."""
    findings: list[Finding] = []
    (settings,) = await executor.execute(("settings",))
    facts = {row[0]: str(row[1]) for row in settings.rows}
    findings.append(Finding("ok", f"{server.target.shown} answers: {facts.get('version', '?')}"))
    findings.append(await _tables(server, executor))
    (clock,) = await executor.execute(("now",))
    findings.append(clock_finding("the server", clock.rows[0][0] / 1e6, time.time()))
    findings.append(_proxy(server))
    findings += _tls(server, executor.connection.tls())
    findings.append(_clients(server, facts))
    if server.dialect.name == "postgres":
        findings.append(await _postgres_disk(executor))
        findings += [*_schemas(facts), *_postgres(facts), *_notifications(server, facts)]
    else:
        findings.append(await _mysql_disk(executor, facts))
        findings += _mysql(facts)
    return tuple(findings)


async def _tables(server: ServerInfo, executor: Executor) -> Finding:
    try:
        (version,) = await executor.execute((("fact", {"fact": "schema"}),))
    except SqlError as error:
        if error.state in server.dialect.other:
            lacking = other_tables(server, error)
            return Finding("fail", f"the tables of leaselock cannot be used: {lacking}")
        if error.state not in server.dialect.missing:
            return Finding("fail", f"the tables cannot be read: {error.text}", "grant the rights")
        return Finding(
            "fail", "the tables of leaselock are not there", setup_command(server.target)
        )
    row = version.one()
    problem = version_problem(server, row) or await tables_problem(server, executor)
    if problem is not None:
        return Finding("fail", f"the tables of leaselock cannot be used: {problem}")
    return Finding("ok", f"the tables of leaselock are there, version {row and row[0]}")


def _proxy(server: ServerInfo) -> Finding:
    if not server.proxied:
        return Finding("ok", "no proxy is between the client and the server")
    if server.direct:
        return Finding(
            "ok",
            "a proxy is between the client and the server; by the URL it pools sessions",
        )
    return Finding(
        "warn",
        "a proxy is between the client and the server: waiters poll, row and advisory are refused",
        "connect to the server itself; or, if the proxy pools sessions, say so: ?proxy=session",
    )


def _tls(server: ServerInfo, tls: Tls | None) -> list[Finding]:
    if tls is None:
        return []
    advice = VERIFY[server.dialect.name]
    return [tls_finding(server.target.shown, tls.problem, tls.requested, advice)]


def _clients(server: ServerInfo, facts: dict[str, str]) -> Finding:
    target = server.target
    # A client listens on a connection of its own, except through a proxy.
    each = target.pool + SPARE + server.direct
    usable, limit = min(_limits(server, facts))
    if target.protocol in ("row", "advisory"):
        limit += f"; {target.protocol} takes one more for each lock that is held or waited for"
    advice = f"a smaller ?pool= in the URL, now {target.pool}, or more connections"
    return clients_finding("connections", limit, usable, each, advice)


def _limits(server: ServerInfo, facts: dict[str, str]) -> list[tuple[int, str]]:
    """What limits the connections of this user to this database, each with what it leaves."""
    most = int(facts["max_connections"])
    if server.dialect.name == "mysql":
        limit = int(facts.get("max_user_connections", "0"))
        limits = [(most, f"max_connections is {most}")]
        return [*limits, (limit, f"max_user_connections is {limit}")] if limit else limits
    names = ("superuser_reserved_connections", "reserved_connections")
    reserved = sum(int(facts.get(name, "0")) for name in names)
    limits = [(most - reserved, f"max_connections is {most}, of which {reserved} are reserved")]
    for name, text in (("role_limit", "of the role"), ("database_limit", "of the database")):
        limit = int(facts.get(name, "-1"))
        if limit >= 0:
            limits.append((limit, f"the CONNECTION LIMIT {text} is {limit}"))
    return limits


def _notifications(server: ServerInfo, facts: dict[str, str]) -> list[Finding]:
    """PostgreSQL lets one transaction at a time commit that has notified, on the whole server:
    PreCommit_Notify locks "database 0" until the end of the commit.
    """
    if server.polls or server.target.protocol in ("row", "advisory"):
        return []
    waiting = int(facts["waiting_to_notify"])
    what = "hand-offs to other clients use NOTIFY, and the server commits those one at a time"
    if not waiting:
        return [Finding("ok", f"{what}: no commit waits for that now")]
    advice = "a server of its own for locks, or protocol row or advisory, which do not notify"
    return [Finding("warn", f"{what}: number of commits that wait for that now: {waiting}", advice)]


async def _postgres_disk(executor: Executor) -> Finding:
    """Try to write a temporary file. No view of the server tells the free space, and rows would
    take as much of its write-ahead log, without space for which it ends.
    """
    try:
        await executor.execute(("begin", "try disk", "rollback"))
    except SqlError as error:
        await executor.execute(("rollback",))
        text = f"{error.text} ({error.state})"
        if error.state == DISK_FULL:
            return Finding("fail", f"the disk of the database is full: {text}", FREE_SOME)
        return Finding("skip", f"the disk of the database could not be tried: {text}")
    return Finding("ok", "the disk of the database has room for a megabyte more")


async def _mysql_disk(executor: Executor, facts: dict[str, str]) -> Finding:
    """Look at the free space, and write nothing: on a full disk, InnoDB ends the server if a
    rollback or a deletion needs another page (decision 29).
    """
    try:
        (result,) = await executor.execute(("free space",))
        free = result.rows[0][0] * 1024 if result.rows else None
    except SqlError:
        free = None
    if free is None:
        free = _local_space(facts)
    if free is None:
        what = "the server does not say how much of its disk is free"
        return Finding("skip", what, "MariaDB says so: INSTALL SONAME 'disks', and grant FILE")
    return space_finding("the disk of the server", free, low=LOW_SPACE, least=NO_SPACE)


def _local_space(facts: dict[str, str]) -> int | None:
    """The bytes that are free for the server, if it runs on this machine."""
    if sys.platform == "win32" or facts.get("hostname") != os.uname().nodename:
        return None
    try:
        space = os.statvfs(facts["datadir"])
    except OSError:  # in a container, for example
        return None
    return space.f_bavail * space.f_frsize


def _schemas(facts: dict[str, str]) -> list[Finding]:
    """With `lease` and `row`, a client whose `search_path` finds other tables does not exclude the
    clients of these.
    """
    used, schemas = facts.get("schema"), facts["schemas"]
    if schemas in ("None", used):
        return []
    where = f"here {used} is used" if used else "the search_path finds none of them"
    return [
        Finding(
            "warn",
            f"tables of leaselock are in several schemas: {schemas}; {where}"
            if ", " in schemas
            else f"tables of leaselock are in the schema {schemas}; {where}",
            "give all programs one search_path, in the URL ?options=-csearch_path%3DSCHEMA: by "
            "lease and row, clients exclude one another only where they use the same tables",
        )
    ]


def _postgres(facts: dict[str, str]) -> list[Finding]:
    findings = []
    if int(facts["server_version_num"]) < OLDEST_POSTGRES:
        what = "the server is older than 14: protocol advisory is refused"
        findings.append(Finding("warn", what, "use protocol lease or row"))
    if facts["in_recovery"] == "true":
        findings.append(Finding("fail", "the server is a standby", "name the primary"))
    if facts["synchronous_commit"] == "off":
        what = "synchronous_commit is off: a crash of the server may forget the last grants"
        findings.append(Finding("warn", what, "set it on for the role that locks"))
    for name in (
        "statement_timeout",
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
        "transaction_timeout",
    ):
        if facts.get(name, "0") not in ("0", "off"):
            what = f"{name} is {facts[name]}: overridden on connections that hold a lock"
            findings.append(Finding("ok", what))
    return findings


def _mysql(facts: dict[str, str]) -> list[Finding]:
    findings = []
    if facts.get("read_only", "OFF") not in ("OFF", "0"):
        findings.append(Finding("fail", "the server is read-only", "name the primary"))
    if facts.get("log_bin") == "ON" and facts.get("binlog_format") == "STATEMENT":
        what = "binlog_format is STATEMENT: the server refuses to write at READ COMMITTED"
        findings.append(Finding("fail", what, "set it to ROW or MIXED"))
    if facts.get("wsrep_on", "OFF") in ("ON", "1"):
        what = "a Galera cluster: named and row locks hold on one node only"
        findings.append(Finding("warn", what, "use protocol lease, and one node for writing"))
    if facts.get("innodb_flush_log_at_trx_commit", "1") != "1":
        what = "innodb_flush_log_at_trx_commit is not 1: a crash may forget the last grants"
        findings.append(Finding("warn", what, "set it to 1"))
    findings.append(
        Finding("ok", f"wait_timeout is {facts.get('wait_timeout', '?')} s: overridden")
    )
    return findings
