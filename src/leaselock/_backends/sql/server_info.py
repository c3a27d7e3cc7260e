"""What connections have found out about the server, and how a new connection is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import CLIENT, number, word
from leaselock._backends.sql.lock_row import Requester
from leaselock._backends.sql.statements import dialect_of
from leaselock._backends.url import with_user
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.statements import SqlError
    from leaselock._backends.sql.url import Target

SCHEMA = "1"


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
        row = version.one()
        check_version(server, row[0] if row else "0")
    # A proxy answers the handshake itself, with a number of its own.
    connection.backend = session.rows[0][0]
    server.proxied = connection.backend != connection.number
    # Behind a proxy the next statement may run in another session.
    if server.direct and server.dialect.preparable:
        connection.prepared = set()
        await executor.execute(("session defaults",))


def check_version(server: ServerInfo, found: str) -> None:
    """NotApplied if the tables are of another version than this program needs."""
    if found == SCHEMA:
        return
    what = f"{server.target.shown} has the tables of version {found}, not {SCHEMA}"
    if int(found) > int(SCHEMA):
        newer = "a newer leaselock made them, use that one here too"
        raise NotApplied(f"{what}: {newer}", "misconfigured")
    raise NotApplied(f"{what}: {setup_command(server.target)}", "misconfigured")


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
    denied = error.state in server.dialect.denied
    return NotApplied(f"{shown}: {error.text} ({error.state})", "denied" if denied else "refused")
