"""A user's engine of SQLAlchemy: which database it names, and how to connect to it.

The engine is read, never used or changed: locks need connections of their own, outside of the
user's pool and transactions (hazards D6, D7, D8).

From a blocking engine on psycopg or PyMySQL a new pool is made, which connects as the engine does:
by its URL, its `connect_args`, its `creator`, its `do_connect` events. Each connection is detached
from that pool at once. Of an engine with another driver, only the URL is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from leaselock._backends.sql.url import DIALECTS, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.url import Target

SUPPORTED = {("postgresql", "psycopg"), ("mysql", "pymysql"), ("mariadb", "pymysql")}


def target_of(engine: Any) -> Target:
    """The database of an Engine or AsyncEngine; TypeError for other objects of SQLAlchemy."""
    url = getattr(engine, "url", None)
    if url is None or not hasattr(engine, "dialect"):
        raise TypeError(
            f"a store is named by an Engine or AsyncEngine of SQLAlchemy's, not by a "
            f"{type(engine).__name__}: hand in the engine that it is bound to"
        )
    name = url.get_backend_name()
    if name not in DIALECTS:
        raise ValueError(f"an engine for {name} is no store: locks know PostgreSQL, MySQL, MariaDB")
    target = parsed(_plain(name, url))
    dialect = engine.dialect
    if (dialect.name, dialect.driver) not in SUPPORTED or dialect.is_async:
        return target
    return target._replace(options={}, connect=_connecting(engine.pool.recreate()))


def _plain(name: str, url: Any) -> str:
    # The library always uses UTF-8.
    words = {k: v for k, v in url.query.items() if isinstance(v, str) and k != "charset"}
    where = f"{_account(url)}{_bracketed(url.host)}{f':{url.port}' if url.port else ''}"
    return f"{name}://{where}/{quote(url.database or '')}?{urlencode(words)}"


def _account(url: Any) -> str:
    if url.username is None:
        return ""
    secret = "" if url.password is None else ":" + quote(str(url.password), safe="")
    return f"{quote(url.username, safe='')}{secret}@"


def _bracketed(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else host or ""


def _connecting(pool: Any) -> Callable[[], Any]:
    def connect() -> Any:
        borrowed = pool.connect()
        connection = borrowed.driver_connection
        borrowed.detach()
        return connection

    return connect
