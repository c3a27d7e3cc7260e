"""Which database is meant: by a URL, or by an engine of SQLAlchemy's that the user has.

An engine is read, never used or changed: locks need connections of their own, outside of every
pool that may take one away, and outside of the user's transactions (hazards D6, D7, D8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def parsed(url: str) -> Target:
    """The database of a URL; ValueError for what cannot be one."""
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {key: words.pop(key) for key in ("protocol", "session", "pool", "proxy") if key in words}
    return Target(
        dialect=DIALECTS[parts.scheme.lower()],
        host=unquote(parts.hostname or ""),
        port=parts.port,
        user=_unquoted(parts.username),
        password=_unquoted(parts.password),
        database=unquote(parts.path.removeprefix("/")),
        options=words,
        shown=_shown(parts.scheme, parts.hostname, parts.port, parts.path),
        protocol=ours.get("protocol"),
        session=_seconds(ours.get("session", str(SESSION))),
        pool=_count(ours.get("pool", str(POOL))),
        direct=_proxy(ours.get("proxy", "transaction")),
    )


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


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


def target_of(engine: Any) -> Target:
    """The database of an Engine or AsyncEngine; TypeError for anything else of SQLAlchemy's."""
    url = getattr(engine, "url", None)
    if url is None or not hasattr(engine, "dialect"):
        raise TypeError(
            f"a store is named by an Engine or AsyncEngine of SQLAlchemy's, not by a "
            f"{type(engine).__name__}: hand in the engine that it is bound to"
        )
    name = url.get_backend_name()
    if name not in DIALECTS:
        raise ValueError(f"an engine for {name} is no store: locks know PostgreSQL, MySQL, MariaDB")
    words = {key: value for key, value in url.query.items() if isinstance(value, str)}
    plain = f"{name}://{_account(url)}{_bracketed(url.host)}{f':{url.port}' if url.port else ''}"
    return parsed(f"{plain}/{quote(url.database or '')}?{urlencode(words)}")


def _account(url: Any) -> str:
    if url.username is None:
        return ""
    secret = "" if url.password is None else ":" + quote(str(url.password), safe="")
    return f"{quote(url.username, safe='')}{secret}@"


def _bracketed(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else host or ""
