"""Reading the settings of a client that the user has, of redis-py or valkey-py, blocking or not.

valkey-py is a fork of redis-py, so the same attributes serve for both and neither is imported. Our
own connections are always redis-py's.
"""

from __future__ import annotations

from typing import Any

from leaselock._backends import library
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.settings import (
    CONNECTION_PARAMETERS,
    PORT,
    Settings,
    settings_of_url,
)

LIBRARIES = ("redis", "valkey")
CONNECTIONS = (
    *("Connection", "SSLConnection", "UnixDomainSocketConnection"),
    *("SentinelManagedConnection", "SentinelManagedSSLConnection"),
)


def settings_of(target: object, *, aio: bool = False, prefix: str | None = None) -> Settings:
    """The settings of a URL or of a client, for locks with a *prefix* if that is not None;
    ValueError or TypeError if they cannot be used.
    """
    library("redis", "redis")
    library("hiredis", "redis")
    settings = settings_of_url(target) if isinstance(target, str) else settings_of_client(target)
    settings = settings if prefix is None else settings.with_prefix(prefix)
    return settings.supported(aio=aio)


def settings_of_client(client: Any) -> Settings:
    """Where *client* connects, and as which user; TypeError if it is not a client of one store."""
    kind = type(client).__name__
    if "MultiDB" in kind:
        raise TypeError(
            f"a {kind} may go over to another database at any time, which knows none of the "
            "locks held in the first: give the client of one database"
        )
    if hasattr(client, "nodes_manager"):
        return _cluster(client, client.nodes_manager)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise TypeError(f"a {kind} is no client of a Redis or Valkey server")
    if hasattr(pool, "sentinel_manager"):
        return _sentinel(pool)
    return _single(pool)


def _check_connection(kind: Any) -> None:
    """TypeError for connections that go another way than to the host and port of the pool."""
    if kind is None:
        return
    known = kind.__module__.partition(".")[0] in LIBRARIES and kind.__name__ in CONNECTIONS
    if not known:
        raise TypeError(
            f"the connection_class {kind.__name__} of the client's pool is not used for locks, so "
            "another server might be asked (a fake or a tunnel has connections of its own): give "
            "a URL that leads to the server"
        )


def _read(given: dict[str, Any], connection: Any) -> tuple[dict[str, Any], bool]:
    _check_connection(connection)
    parameters = {key: given[key] for key in CONNECTION_PARAMETERS if given.get(key) is not None}
    tls = "SSL" in getattr(connection, "__name__", "") or bool(given.get("ssl"))
    return parameters, tls


def _single(pool: Any) -> Settings:
    given = pool.connection_kwargs
    parameters, tls = _read(given, pool.connection_class)
    address = Address(
        given.get("host", "localhost"), given.get("port", PORT), given.get("path", "")
    )
    scheme = "unix" if address.path else "rediss" if tls else "redis"
    shown = (
        f"{scheme}://{address}/{parameters.get('db', 0)}"
        if not address.path
        else f"unix://{address}"
    )
    return Settings("single", (address,), "", parameters, {}, tls, shown)


def _sentinel(pool: Any) -> Settings:
    parameters, tls = _read(pool.connection_kwargs, pool.connection_class)
    sentinels = pool.sentinel_manager.sentinels
    kwargs = [sentinel.connection_pool.connection_kwargs for sentinel in sentinels]
    addresses = tuple(Address(given["host"], given["port"], sentinel=True) for given in kwargs)
    login, _ = _read(kwargs[0], sentinels[0].connection_pool.connection_class)
    hosts = ",".join(map(str, addresses))
    shown = f"redis{'s' * tls}+sentinel://{hosts}/{pool.service_name}/{parameters.get('db', 0)}"
    return Settings("sentinel", addresses, pool.service_name, parameters, login, tls, shown)


def _cluster(client: Any, nodes: Any) -> Settings:
    if getattr(nodes, "address_remap", None) is not None:
        raise TypeError(
            "a client with address_remap: the servers are reached where they say that they are. "
            "Have each say an address that can be reached (cluster-announce-ip and -port)"
        )
    given = getattr(nodes, "connection_kwargs", None) or getattr(client, "connection_kwargs", {})
    parameters, tls = _read(given, given.get("connection_class"))
    addresses = tuple(Address(node.host, node.port) for node in nodes.startup_nodes.values())
    database = f"/{parameters['db']}" if parameters.get("db") else ""
    shown = f"redis{'s' * tls}+cluster://{','.join(map(str, addresses))}{database}"
    return Settings("cluster", addresses, "", parameters, {}, tls, shown)
