"""What connections have found out about the server, and how a new connection is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import CLIENT, number, word
from leaselock._backends.sql.lock_row import Requester
from leaselock._backends.sql.statements import SqlError, columns_of, dialect_of
from leaselock._backends.url import with_user
from leaselock._core.contract.layout import Layout, check_layout, layout_problem
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.statements import Row
    from leaselock._backends.sql.url import Target
    from leaselock._core.contract.backend import ErrorReason

# To be raised with every change of schema.sql.
SCHEMA = Layout(1, 1)
# A server that refuses a statement so may carry it out later: another transaction was in the way.
PASSING = {"40001", "40P01", "1213"}


class ServerInfo:
    """What the connections have found out about the way to the server."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = dialect_of(target.dialect)
        self.proxied = False
        # Clients that hold their liveness key: their listeners are connected.
        self.listening: set[str] = set()

    @property
    def direct(self) -> bool:
        """Whether each connection has one session of the server for as long as it lasts."""
        return self.target.direct or not self.proxied

    def liveness_key(self, client: str) -> str | int:
        """The key of the lock that a client holds while it listens."""
        return word(CLIENT, client) if self.dialect.interrupts else number(CLIENT, client)

    def requester(self, client: str) -> Requester:
        """The client as the sender of a request."""
        key = self.liveness_key(client) if client in self.listening else None
        return Requester(client, self.polls, key)

    @property
    def polls(self) -> bool:
        """Whether wake-ups are stored for a waiter, in place of notifications."""
        return self.dialect.interrupts or not self.direct


async def initialize(
    server: ServerInfo, connection: Connection, executor: Executor, bare: bool
) -> None:
    """Set up a new connection; a *bare* one does not look at the tables."""
    if bare:
        (session,) = await executor.execute(("identify",))
    else:
        session, version = await executor.execute(("identify", ("fact", {"fact": "schema"})))
        check_version(server, version.one())
    # A proxy answers the handshake itself, with a number of its own.
    connection.backend = session.rows[0][0]
    server.proxied = connection.backend != connection.number
    # Behind a proxy the next statement may run in another session.
    if server.direct and server.dialect.preparable:
        connection.prepared = set()
        await executor.execute(("session defaults",))


def check_version(server: ServerInfo, version: Row | None) -> None:
    """NotApplied if the tables are of another version than this program needs. *version* is the row
    with their version.
    """
    if version is None:
        setup = setup_command(server.target)
        raise NotApplied(f"{server.target.shown} names no version: {setup}", "misconfigured")
    check_layout(server.target.shown, str(version[0]), SCHEMA, _replace_tables(server.target))


def version_problem(server: ServerInfo, version: Row | None) -> str | None:
    """What is wrong with the version of the tables, and what to do."""
    if version is None:
        return f"they name no version: {setup_command(server.target)}"
    return layout_problem(str(version[0]), SCHEMA, _replace_tables(server.target))


async def tables_problem(server: ServerInfo, executor: Executor) -> str | None:
    """What the tables lack, whatever their version says, and what to do."""
    for table, columns in columns_of(server.dialect).items():
        text = f"SELECT {', '.join(columns)} FROM {table} WHERE 1 = 0"
        try:
            await executor.execute((("raw", {"text": text}),))
        except SqlError as error:
            if error.state not in server.dialect.missing | server.dialect.other:
                raise
            return other_tables(server, error)
    return None


def other_tables(server: ServerInfo, error: SqlError) -> str:
    """What is wrong with tables that lack something, and what to do."""
    return (
        "another version of leaselock made its tables, under the same number of the layout "
        f"({error.text}): {_replace_tables(server.target)}"
    )


def _replace_tables(target: Target) -> str:
    return (
        "stop the programs that lock in it, drop its tables whose names begin with leaselock_, "
        f"and {setup_command(target)}"
    )


def setup_command(target: Target) -> str:
    """What to do where there are no tables."""
    url = with_user(target.shown, target.user).replace("'", "%27")
    return f"run `leaselock setup '{url}'`, or client.setup()"


def refusal(error: SqlError, server: ServerInfo) -> NotApplied:
    """What a refused statement means to the caller: nothing was done."""
    shown = server.target.shown
    if error.state in server.dialect.missing:
        todo = setup_command(server.target)
        return NotApplied(
            f"{shown} has no tables of leaselock's: {todo} ({error.text})", "misconfigured"
        )
    if error.state in server.dialect.other:
        problem = other_tables(server, error)
        return NotApplied(f"{shown} cannot be used: {problem}", "misconfigured")
    reason: ErrorReason = "denied" if error.state in server.dialect.denied else "refused"
    if error.state in PASSING:
        reason = "unreachable"
    return NotApplied(f"{shown}: {error.text} ({error.state})", reason)
