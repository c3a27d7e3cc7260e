"""The URL of a database: ``postgresql://host:port/database?option=value``, with a login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.url import (
    TOKEN_TTL,
    decoded,
    one_of,
    parse,
    seconds,
    token_ttl,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SESSION = 30.0
SHORTEST_SESSION, LONGEST_SESSION = 1.0, 3600.0
POOL = 2
LARGEST_POOL = 1000
# Options of leaselock. All others are for the client library.
OPTIONS = ("protocol", "session", "pool", "proxy", "token_ttl")
DIALECTS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class Target(NamedTuple):
    """A database, and how it is used."""

    dialect: str
    """ "postgres" or "mysql"."""
    host: str
    port: int | None
    user: str | None
    password: str | None
    database: str
    options: Mapping[str, str]
    """Options for the client library."""
    shown: str
    """The URL without its secrets."""
    protocol: str | None = None
    session: float = SESSION
    """Seconds of silence after which the server ends a connection that holds a lock."""
    pool: int = POOL
    """How many connections serve the requests of one client at the same time."""
    token_ttl: float = TOKEN_TTL
    """For how many seconds the token counter of a name is kept after its last grant; 0: always."""
    direct: bool = False
    """The URL says that a proxy keeps one connection to the server for each of the client's."""
    connect: Callable[[], Any] | None = None
    """Makes a connection of the client library; None if the URL says everything."""

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"  # without the password


def parsed(text: str) -> Target:
    """The database of a URL; ValueError if the URL is not valid."""
    url = parse(text)
    if "," in url.authority:
        raise ValueError(
            "the URL of a database names one server; of several servers of PostgreSQL say "
            "?host=one,two&port=5432,5433"
        )
    hosts = url.hosts()
    return Target(
        dialect=DIALECTS[url.scheme],
        host=hosts[0].name if hosts else "",
        port=hosts[0].port if hosts else None,
        user=url.user,
        password=url.password,
        database=decoded(url.path.removeprefix("/")),
        options={key: value for key, value in url.options.items() if key not in OPTIONS},
        shown=url.shown(),
        protocol=url.options.get("protocol"),
        session=url.option("session", seconds(SHORTEST_SESSION, LONGEST_SESSION), SESSION),
        pool=url.option("pool", whole_number(1, LARGEST_POOL), POOL),
        token_ttl=token_ttl(url),
        direct=url.option("proxy", one_of("session", "transaction"), "transaction") == "session",
    )
