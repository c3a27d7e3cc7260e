"""The URL of a database of the project, with the options that Django connects with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from leaselock._backends import library

if TYPE_CHECKING:
    from collections.abc import Callable

    Refuse = Callable[[str], NoReturn]

# Options that are about Django's own connections, and do not change where or as whom it connects.
OF_DJANGO = {
    "postgresql": {
        *("autocommit", "client_encoding", "context", "cursor_factory", "isolation_level"),
        *("pool", "prepare_threshold", "row_factory", "server_side_binding"),
    },
    "mysql": {
        *("autocommit", "binary_prefix", "charset", "client_flag", "collation", "compress"),
        *("connect_timeout", "conv", "cursorclass", "init_command", "isolation_level"),
        *("local_infile", "max_allowed_packet", "program_name", "read_timeout", "sql_mode"),
        *("use_unicode", "write_timeout"),
    },
}
# Modes of mysqlclient that demand TLS. Leaselock verifies the server in each of them.
TLS_MODES = ("REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
FILES = ("ca", "cert", "key")


def url_of(alias: str) -> str:
    """The URL of a database of the project; in tests, of the test database."""
    connection = connections[alias]
    return url_from(alias, connection.vendor, connection.settings_dict)


def url_from(alias: str, dialect: str, database: Mapping[str, Any]) -> str:
    """The URL of a database with these settings.

    Raises ImproperlyConfigured for a database that is no store, and for an option that the URL of
    a store cannot express.
    """

    def refuse(option: str) -> NoReturn:
        raise ImproperlyConfigured(
            f"the connections of locks cannot have the option {option!r} of the database "
            f"{alias!r}: state a URL instead, as LEASELOCK's store"
        )

    if dialect not in OF_DJANGO:
        raise ImproperlyConfigured(
            f"LEASELOCK's database {alias!r} is {dialect}, which is no store for locks; "
            f"{' and '.join(OF_DJANGO)} are; leave LEASELOCK out for a file on this machine"
        )
    given = {
        name: value
        for name, value in (database.get("OPTIONS") or {}).items()
        if value is not None and name not in OF_DJANGO[dialect]
    }
    known = {name: str(value) for name, value in database.items() if value}
    if dialect == "postgresql":
        name = given.pop("dbname", known.get("NAME", ""))
        further = _postgresql(given, refuse)
    else:
        name, further = known.get("NAME", ""), _mysql(given, refuse)
    if not name and "service" not in further:
        raise ImproperlyConfigured(f"LEASELOCK's database {alias!r} has no NAME")
    login = quote(known.get("USER", ""), safe="")
    if "PASSWORD" in known:
        login += f":{quote(known['PASSWORD'], safe='')}"
    host = known.get("HOST", "")
    if host.startswith("/"):
        further["host" if dialect == "postgresql" else "unix_socket"], host = host, ""
    place = (f"[{host}]" if ":" in host else host) or ("localhost" if dialect == "mysql" else "")
    port = f":{known['PORT']}" if "PORT" in known else ""
    if not place and port:  # of a socket
        further["port"], port = known["PORT"], ""
    query = f"?{urlencode(further)}" if further else ""
    return f"{dialect}://{login}{'@' if login else ''}{place}{port}/{quote(name, safe='')}{query}"


def _postgresql(given: dict[str, Any], refuse: Refuse) -> dict[str, str]:
    """The parameters of libpq in these options."""
    if role := given.pop("assume_role", None):
        # As `SET ROLE`. libpq separates arguments by blanks.
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        given["options"] = f"{given.get('options', '')} -c role={escaped}".strip()
    parameters = library("psycopg", "postgres").pq.Conninfo.get_defaults()
    keywords = {each.keyword.decode() for each in parameters}
    for name in given:
        if name not in keywords:
            refuse(name)
    return {name: str(value) for name, value in given.items()}


def _mysql(given: dict[str, Any], refuse: Refuse) -> dict[str, str]:
    """The socket and the options for TLS, as mysqlclient and PyMySQL name them."""
    options = {"unix_socket": str(given.pop("unix_socket"))} if "unix_socket" in given else {}
    tls = given.pop("ssl", None) or {}
    if not isinstance(tls, Mapping):
        refuse("ssl")
    flat = {f"ssl_{name}": value for name, value in tls.items() if value is not None} | given
    files = {
        name: str(flat.pop(name)) for name in [f"ssl_{file}" for file in FILES] if name in flat
    }
    mode = str(flat.pop("ssl_mode", "")).upper()
    checks = [flat.pop(f"ssl_{name}", False) for name in ("check_hostname", "verify_mode")]
    checks += [flat.pop(f"ssl_verify_{name}", False) for name in ("cert", "identity")]
    if flat.pop("ssl_disabled", False) or mode == "DISABLED":
        options["ssl"] = "no"
    elif files:
        options |= files
    elif any(checks) or mode in TLS_MODES:
        options["ssl"] = "yes"
    elif mode not in ("", "PREFERRED"):
        refuse("ssl_mode")
    for name in flat:
        refuse(name)
    return options
