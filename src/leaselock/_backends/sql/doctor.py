"""What `leaselock doctor` examines in a database.

The facts that it collects have the names of the settings of the server, where they are settings.
"""

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
from leaselock._core.rows.checks import Case, otherwise, report
from leaselock._core.rows.maintenance import (
    FREE_SOME,
    clients_finding,
    clock_finding,
    space_finding,
    tls_finding,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.server_info import ServerInfo
    from leaselock._core.rows.checks import Check, Facts

# The oldest version that has everything the protocols need.
OLDEST_POSTGRES = 140000
DISK_FULL = "53100"
# InnoDB makes a file larger by several megabytes at once.
NO_SPACE, LOW_SPACE = 16 * 2**20, 256 * 2**20
VERIFY = {
    "postgres": "sslmode=verify-full and sslrootcert=FILE in the URL",
    "mysql": "ssl_ca=FILE in the URL, or ssl=yes for the system's authorities",
}
# The protocols whose locks the server keeps with a session.
OF_SESSIONS = ("row", "advisory")
# Those of PostgreSQL that are overridden.
TIMEOUTS = (
    "statement_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
)
# What is taken for the settings that a server does not have or does not show.
UNSAID: Mapping[str, Any] = {
    **dict.fromkeys(TIMEOUTS, "0"),
    "version": "?",
    "max_user_connections": "0",
    "superuser_reserved_connections": "0",
    "reserved_connections": "0",
    "role_limit": "-1",
    "database_limit": "-1",
    "schema": None,
    "read_only": "OFF",
    "log_bin": "OFF",
    "binlog_format": "",
    "wsrep_on": "OFF",
    "innodb_flush_log_at_trx_commit": "1",
    "wait_timeout": "?",
    "hostname": None,
}


async def examine(server: ServerInfo, executor: Executor) -> tuple[Finding, ...]:
    """One finding for each thing examined."""
    facts = await _facts(server, executor)
    return tuple(report((*DATABASE, *DIALECTS[server.dialect.name]), facts))


# --- facts ----------------------------------------------------------------------------------------


async def _facts(server: ServerInfo, executor: Executor) -> dict[str, Any]:
    """What the server says, and how the client uses it."""
    target = server.target
    (settings,) = await executor.execute(("settings",))
    facts = {**UNSAID, **{row[0]: str(row[1]) for row in settings.rows}}
    facts |= {"server": server, "shown": target.shown, "setup": setup_command(target)}
    facts |= await _tables(server, executor)
    (clock,) = await executor.execute(("now",))
    facts |= {"clock": clock.rows[0][0] / 1e6, "clock_here": time.time()}
    facts["tls"] = executor.connection.tls()
    facts["notifies"] = not server.polls and target.protocol not in OF_SESSIONS
    if server.dialect.name == "postgres":
        facts |= await _disk(executor)
    else:
        facts["free"] = await _free_space(executor, facts)
    return facts


async def _tables(server: ServerInfo, executor: Executor) -> dict[str, Any]:
    """The version of the tables, whether there are any, and why they cannot be read or used."""
    tables: dict[str, Any] = dict.fromkeys(("layout", "missing", "unreadable", "unusable"))
    try:
        (version,) = await executor.execute((("fact", {"fact": "schema"}),))
    except SqlError as error:
        if error.state in server.dialect.other:
            tables["unusable"] = other_tables(server, error)
        elif error.state in server.dialect.missing:
            tables["missing"] = True
        else:
            tables["unreadable"] = error.text
        return tables
    row = version.one()
    problem = version_problem(server, row) or await tables_problem(server, executor)
    return tables | {"layout": row and row[0], "unusable": problem}


async def _disk(executor: Executor) -> dict[str, Any]:
    """Try to write a temporary file. No view of the server tells the free space, and rows would
    take as much of its write-ahead log, without space for which it ends.
    """
    try:
        await executor.execute(("begin", "try disk", "rollback"))
    except SqlError as error:
        await executor.execute(("rollback",))
        return {"disk_state": error.state, "disk_error": f"{error.text} ({error.state})"}
    return {"disk_state": None, "disk_error": None}


async def _free_space(executor: Executor, facts: Facts) -> int | None:
    """Look at the free space, and write nothing: on a full disk, InnoDB ends the server if a
    rollback or a deletion needs another page (decision 29).
    """
    try:
        (result,) = await executor.execute(("free space",))
        free: int | None = result.rows[0][0] * 1024 if result.rows else None
    except SqlError:
        free = None
    return _local_space(facts) if free is None else free


def _local_space(facts: Facts) -> int | None:
    """The bytes that are free for the server, if it runs on this machine."""
    if sys.platform == "win32" or facts["hostname"] != os.uname().nodename:
        return None
    try:
        space = os.statvfs(facts["datadir"])
    except OSError:  # in a container, for example
        return None
    return space.f_bavail * space.f_frsize


# --- checks ---------------------------------------------------------------------------------------


def _clock(facts: Facts) -> Finding:
    return clock_finding("the server", facts["clock"], facts["clock_here"])


def _tls(facts: Facts) -> Finding | None:
    tls = facts["tls"]
    if tls is None:
        return None
    advice = VERIFY[facts["server"].dialect.name]
    return tls_finding(facts["shown"], tls.problem, tls.requested, advice)


def _clients(facts: Facts) -> Finding:
    server: ServerInfo = facts["server"]
    target = server.target
    # A client listens on a connection of its own, except through a proxy.
    each = target.pool + SPARE + server.direct
    usable, limit = min(_limits(facts))
    if target.protocol in OF_SESSIONS:
        limit += f"; {target.protocol} takes one more for each lock that is held or waited for"
    advice = f"a smaller ?pool= in the URL, now {target.pool}, or more connections"
    return clients_finding("connections", limit, usable, each, advice)


def _limits(facts: Facts) -> list[tuple[int, str]]:
    """What limits the connections of this user to this database, each with what it leaves."""
    most = int(facts["max_connections"])
    if facts["server"].dialect.name == "mysql":
        limit = int(facts["max_user_connections"])
        limits = [(most, f"max_connections is {most}")]
        return [*limits, (limit, f"max_user_connections is {limit}")] if limit else limits
    names = ("superuser_reserved_connections", "reserved_connections")
    reserved = sum(int(facts[name]) for name in names)
    limits = [(most - reserved, f"max_connections is {most}, of which {reserved} are reserved")]
    for name, text in (("role_limit", "of the role"), ("database_limit", "of the database")):
        limit = int(facts[name])
        if limit >= 0:
            limits.append((limit, f"the CONNECTION LIMIT {text} is {limit}"))
    return limits


def _schemas(facts: Facts) -> Finding | None:
    """With `lease` and `row`, a client whose `search_path` finds other tables does not exclude the
    clients of these.
    """
    used, schemas = facts["schema"], facts["schemas"]
    if schemas in ("None", used):
        return None
    where = f"here {used} is used" if used else "the search_path finds none of them"
    return Finding(
        "warn",
        f"tables of leaselock are in several schemas: {schemas}; {where}"
        if ", " in schemas
        else f"tables of leaselock are in the schema {schemas}; {where}",
        "give all programs one search_path, in the URL ?options=-csearch_path%3DSCHEMA: by "
        "lease and row, clients exclude one another only where they use the same tables",
    )


def _free(facts: Facts) -> Finding:
    if facts["free"] is None:
        what = "the server does not say how much of its disk is free"
        return Finding("skip", what, "MariaDB says so: INSTALL SONAME 'disks', and grant FILE")
    return space_finding("the disk of the server", facts["free"], low=LOW_SPACE, least=NO_SPACE)


def _overridden(timeout: str) -> Case:
    what = f"{timeout} is {{{timeout}}}: overridden on connections that hold a lock"
    return Case("ok", lambda facts: facts[timeout] not in ("0", "off"), what)


# Of every database.
DATABASE: tuple[Check, ...] = (
    Case("ok", otherwise, "{shown} answers: {version}"),
    (
        Case(
            "fail",
            lambda facts: facts["missing"],
            "the tables of leaselock are not there",
            "{setup}",
        ),
        Case(
            "fail",
            lambda facts: facts["unreadable"] is not None,
            "the tables cannot be read: {unreadable}",
            "grant the rights",
        ),
        Case(
            "fail",
            lambda facts: facts["unusable"] is not None,
            "the tables of leaselock cannot be used: {unusable}",
        ),
        Case("ok", otherwise, "the tables of leaselock are there, version {layout}"),
    ),
    _clock,
    (
        Case(
            "ok",
            lambda facts: not facts["server"].proxied,
            "no proxy is between the client and the server",
        ),
        Case(
            "ok",
            lambda facts: facts["server"].direct,
            "a proxy is between the client and the server; by the URL it pools sessions",
        ),
        Case(
            "warn",
            otherwise,
            "a proxy is between the client and the server: waiters poll, row and advisory are "
            "refused",
            "connect to the server itself; or, if the proxy pools sessions, say so: ?proxy=session",
        ),
    ),
    _tls,
    _clients,
)

POSTGRES: tuple[Check, ...] = (
    (
        Case(
            "fail",
            lambda facts: facts["disk_state"] == DISK_FULL,
            "the disk of the database is full: {disk_error}",
            FREE_SOME,
        ),
        Case(
            "skip",
            lambda facts: facts["disk_error"] is not None,
            "the disk of the database could not be tried: {disk_error}",
        ),
        Case("ok", otherwise, "the disk of the database has room for a megabyte more"),
    ),
    _schemas,
    Case(
        "warn",
        lambda facts: int(facts["server_version_num"]) < OLDEST_POSTGRES,
        "the server is older than 14: protocol advisory is refused",
        "use protocol lease or row",
    ),
    Case(
        "fail",
        lambda facts: facts["in_recovery"] == "true",
        "the server is a standby",
        "name the primary",
    ),
    Case(
        "warn",
        lambda facts: facts["synchronous_commit"] == "off",
        "synchronous_commit is off: a crash of the server may forget the last grants",
        "set it on for the role that locks",
    ),
    *map(_overridden, TIMEOUTS),
    # PostgreSQL lets one transaction at a time commit that has notified, on the whole server:
    # PreCommit_Notify locks "database 0" until the end of the commit.
    (
        Case(
            "ok",
            lambda facts: facts["notifies"] and facts["waiting_to_notify"] == "0",
            "hand-offs to other clients use NOTIFY, and the server commits those one at a time: "
            "no commit waits for that now",
        ),
        Case(
            "warn",
            lambda facts: facts["notifies"],
            "hand-offs to other clients use NOTIFY, and the server commits those one at a time: "
            "number of commits that wait for that now: {waiting_to_notify}",
            "a server of its own for locks, or protocol row or advisory, which do not notify",
        ),
    ),
)

MYSQL: tuple[Check, ...] = (
    _free,
    Case(
        "fail",
        lambda facts: facts["read_only"] not in ("OFF", "0"),
        "the server is read-only",
        "name the primary",
    ),
    Case(
        "fail",
        lambda facts: facts["log_bin"] == "ON" and facts["binlog_format"] == "STATEMENT",
        "binlog_format is STATEMENT: the server refuses to write at READ COMMITTED",
        "set it to ROW or MIXED",
    ),
    Case(
        "warn",
        lambda facts: facts["wsrep_on"] in ("ON", "1"),
        "a Galera cluster: named and row locks hold on one node only",
        "use protocol lease, and one node for writing",
    ),
    Case(
        "warn",
        lambda facts: facts["innodb_flush_log_at_trx_commit"] != "1",
        "innodb_flush_log_at_trx_commit is not 1: a crash may forget the last grants",
        "set it to 1",
    ),
    Case("ok", otherwise, "wait_timeout is {wait_timeout} s: overridden"),
)

DIALECTS = {"postgres": POSTGRES, "mysql": MYSQL}
