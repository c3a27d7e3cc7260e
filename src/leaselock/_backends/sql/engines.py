"""A user's engine of SQLAlchemy: which database it names, and how to connect to it.

The engine is read, never used or changed: locks need connections of their own, outside of the
user's pool and transactions (hazards D6, D7, D8).

From a blocking engine on psycopg or PyMySQL a new pool is made, which connects as the engine does:
by its URL, its `connect_args`, its `creator`, its `do_connect` events. Each connection is detached
from that pool at once. Of an engine with another driver, the URL and the `connect_args` are
translated; a setting that has no translation and that connecting depends on is refused.
"""

from __future__ import annotations

import os
import ssl
from inspect import getclosurevars
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from leaselock._backends import library
from leaselock._backends.sql.url import DIALECTS, OPTIONS, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock._backends.sql.url import Target

SUPPORTED = {("postgresql", "psycopg"), ("mysql", "pymysql"), ("mariadb", "pymysql")}
# The drivers that hand their arguments to libpq, as psycopg does.
ON_LIBPQ = ("psycopg", "psycopg_async", "psycopg2", "psycopg2cffi")
# Arguments of asyncpg that libpq has under the same name.
OF_LIBPQ = ("target_session_attrs", "passfile", "service", "krbsrvname", "gsslib")
# What the drivers call a part of the URL.
PARTS = {
    "user": "username",
    "password": "password",  # pragma: allowlist secret
    "passwd": "password",  # pragma: allowlist secret
    "database": "database",
    "dbname": "database",
    "db": "database",
}


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
    dialect = engine.dialect
    if (dialect.name, dialect.driver) in SUPPORTED and not dialect.is_async:
        target = parsed(_plain(name, url, _words(url.query)))
        return target._replace(options={}, connect=_connecting(engine.pool.recreate()))
    given = _arguments(engine)
    parts = {part: given[word] for word, part in PARTS.items() if given.get(word) is not None}
    if not all(isinstance(part, str) for part in parts.values()):
        raise ValueError(
            f"the engine computes its password when {dialect.driver} connects: hand in a blocking "
            "engine on psycopg or PyMySQL with a do_connect event, or a URL"
        )
    translate = _for_postgres if DIALECTS[name] == "postgres" else _for_mysql
    words = translate(dialect.driver, given)
    words |= {key: value for key, value in _words(url.query).items() if key in OPTIONS}
    host, port = given.get("host"), given.get("port")
    if isinstance(host, (list, tuple)) or "," in str(host):
        words |= {"host": _joined(host), "port": _joined(port)}
        host = port = None
    elif isinstance(host, str) and host.startswith("/"):
        words["host"], host = host, None
    where = url.set(**parts)._replace(host=host, port=None if port is None else int(port))
    return parsed(_plain(name, where, words))


def _arguments(engine: Any) -> dict[str, Any]:
    """What the driver's `connect` is called with: by the URL, and by `connect_args`."""
    _, given = engine.dialect.create_connect_args(engine.url)
    # SQLAlchemy keeps the merged arguments only in the function that connects; a `creator` of the
    # user is another function.
    creator = engine.pool._creator
    if getattr(creator, "__module__", "").startswith("sqlalchemy."):
        given = {**given, **getclosurevars(creator).nonlocals.get("cparams", {})}
    return dict(given)


def _for_postgres(driver: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The options of libpq that mean the same as the arguments of a driver."""
    if driver in ON_LIBPQ:
        defaults = library("psycopg", "postgres").pq.Conninfo.get_defaults()
        known = {each.keyword.decode() for each in defaults} - {"host", "port", *PARTS}
        return {key: str(given[key]) for key in known if given.get(key) is not None}
    words = {key: given[key] for key in OF_LIBPQ if isinstance(given.get(key), str)}
    settings = given.get("server_settings") or {}
    if settings:
        pairs = (f"-c {_escaped(key)}={_escaped(value)}" for key, value in settings.items())
        words["options"] = " ".join(pairs)
    if given.get("unix_sock"):
        words["host"] = os.path.dirname(given["unix_sock"])
    encrypted = given.get("ssl", given.get("ssl_context"))
    if isinstance(encrypted, ssl.SSLContext) and encrypted.verify_mode == ssl.CERT_NONE:
        encrypted = "require"
    if (encrypted is not None and not isinstance(encrypted, (str, bool))) or encrypted is True:
        raise ValueError(
            "the engine verifies the server by a context of Python's, which libpq cannot use: "
            "hand in a URL with sslmode=verify-full and sslrootcert=FILE"
        )
    if encrypted is not None:
        words["sslmode"] = encrypted or "disable"
    return words


def _for_mysql(_driver: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The options of a URL that mean the same as the arguments of a driver."""
    words = {}
    if given.get("unix_socket"):
        words["unix_socket"] = given["unix_socket"]
    encrypted = given.get("ssl")
    if encrypted and not isinstance(encrypted, dict):
        raise ValueError(
            "the engine encrypts by a context of Python's: hand in a URL with ssl=yes, or with "
            "ssl_ca=FILE"
        )
    for key in ("ca", "cert", "key"):
        if encrypted and encrypted.get(key):
            words[f"ssl_{key}"] = encrypted[key]
    return words


def _escaped(text: Any) -> str:
    """One word of libpq's `options`, in which a backslash escapes what follows it."""
    return str(text).replace("\\", "\\\\").replace(" ", "\\ ")


def _joined(several: Any) -> str:
    if isinstance(several, (list, tuple)):
        return ",".join("" if each is None else str(each) for each in several)
    return str(several or "")


def _words(query: Mapping[str, Any]) -> dict[str, str]:
    # The library always uses UTF-8.
    return {k: v for k, v in query.items() if isinstance(v, str) and k != "charset"}


def _plain(name: str, url: Any, words: Mapping[str, str]) -> str:
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
