"""Which database a URL means, and how it is to be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

PROTOCOLS = ("lease", "row", "advisory")
SESSION = 30.0
LEAST_SESSION = 1.0
MOST_SESSION = 3600.0
POOL = 8
DIALECTS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class Target(NamedTuple):
    """A database, and how it is to be used."""

    dialect: str
    """ "postgres" or "mysql"."""
    host: str
    port: int | None
    user: str | None
    password: str | None
    database: str
    options: Mapping[str, str]
    """What else the client library is told."""
    shown: str
    """The URL without its secrets."""
    protocol: str | None = None
    session: float = SESSION
    """After so many seconds of silence the server ends a connection that holds a lock."""
    pool: int = POOL
    """How many connections serve the requests of one client at the same time."""
    direct: bool = False
    """A proxy in between keeps one server connection for each of ours: the user says so."""
    connect: Callable[[], Any] | None = None
    """Makes a connection of the client library; None where the URL says everything."""

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"  # without the password


def parsed(url: str) -> Target:
    """The database of a URL; ValueError for what cannot be one."""
    parts = urlsplit(url)
    port = _port(parts)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {key: words.pop(key) for key in ("protocol", "session", "pool", "proxy") if key in words}
    return Target(
        dialect=DIALECTS[parts.scheme.lower()],
        host=unquote(parts.hostname or ""),
        port=port,
        user=_unquoted(parts.username),
        password=_unquoted(parts.password),
        database=unquote(parts.path.removeprefix("/")),
        options=words,
        shown=_shown(parts.scheme, parts.hostname, port, parts.path),
        protocol=ours.get("protocol"),
        session=_seconds(ours.get("session", str(SESSION))),
        pool=_count(ours.get("pool", str(POOL))),
        direct=_proxy(ours.get("proxy", "transaction")),
    )


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise ValueError(
            "the port of a database is a number up to 65535; of several servers of PostgreSQL "
            "say ?host=one,two&port=5432,5433"
        ) from None


def _shown(scheme: str, host: str | None, port: int | None, path: str) -> str:
    return f"{scheme}://{host or ''}{f':{port}' if port else ''}{path}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not LEAST_SESSION <= seconds <= MOST_SESSION:
        raise ValueError(f"?session= is {LEAST_SESSION:g} to {MOST_SESSION:g} seconds, not {text}")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ValueError(f"?pool= is a number of connections from 1 to 1000, not {text!r}")
    return int(text)


def _proxy(text: str) -> bool:
    if text not in ("session", "transaction"):
        raise ValueError(f"?proxy= is how a proxy pools: session or transaction, not {text!r}")
    return text == "session"
