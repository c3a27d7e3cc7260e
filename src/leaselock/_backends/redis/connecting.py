"""How redis-py opens a connection for us: its parameters, and what its errors mean.

Invariant: until a connection is open no command was sent, so a failure here is never
`OutcomeUnknown`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.redis.messages import Unreachable
from leaselock._backends.redis.settings import connection_class, parameters_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings

LOGIN = "redis://:PASSWORD@host or redis://USER:PASSWORD@host"  # pragma: allowlist secret
SENTINEL_LOGIN = "the login of the sentinels, ?sentinel_password= and, if any, ?sentinel_username="

FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def parameters(settings: Settings, address: Address) -> Mapping[str, Any]:
    """Those for a server, or for a sentinel."""
    return settings.sentinel_parameters if address.sentinel else settings.parameters


def new_connection(module: Any, settings: Settings, address: Address, seconds: float) -> Any:
    """redis-py's connection object for *address*, not connected yet; *module* has its classes."""
    arguments = dict(parameters(settings, address))
    kind = connection_class(module, address, settings.tls)
    if address.path:
        arguments["path"] = address.path
    else:
        arguments |= {"host": address.host, "port": address.port, "socket_keepalive": True}
    if "maint_notifications_config" in parameters_of(kind):
        # Releases that announce the maintenance of a server would read its messages themselves.
        maintenance = library("redis.maint_notifications", "redis")
        off = maintenance.MaintNotificationsConfig(enabled=False)
        arguments["maint_notifications_config"] = off
    return kind(
        **arguments,
        protocol=3,
        decode_responses=False,
        socket_connect_timeout=seconds,
        socket_timeout=seconds,
    )


def refusal(settings: Settings, address: Address, error: Exception) -> Exception:
    """The error of ours for a failed attempt to connect: `Unreachable` if the server did not answer
    or cannot serve at the moment. Any other answer is one to a wrong setting.
    """
    exceptions = library("redis.exceptions", "redis")
    if isinstance(error, (exceptions.AuthenticationError, exceptions.NoPermissionError)):
        missing = "already authenticated" in str(error)
        text = "the server wants a password" if missing else str(error)
        login = f": write {LOGIN}" if missing and not address.sentinel else ""
        if address.sentinel:
            login = f": write {SENTINEL_LOGIN}"
        return NotApplied(f"{address}: permission denied: {text}{login}", "denied")
    if isinstance(error, exceptions.ConnectionError):
        problem = _setting(settings, address, error)
        if problem:
            return NotApplied(f"{address}: {problem}", "misconfigured")
        return Unreachable(f"{address}: {str(error) or 'no connection within its time'}")
    if not isinstance(error, exceptions.ResponseError) or is_temporary(error):
        doubt = " (does it use TLS?)" if settings.tls else ""
        return Unreachable(f"{address}: {str(error) or 'no connection within its time'}{doubt}")
    spoken = str(error).upper()
    if "HELLO" in spoken or "NOPROTO" in spoken:
        return NotApplied(
            f"{address}: leaselock needs RESP3 (HELLO 3), which Redis has since version 6, and "
            f"Valkey (it said: {error})",
            "misconfigured",
        )
    database = settings.parameters.get("db", 0)
    advice = f": the URL names database {database}; the first is /0" if database else ""
    return NotApplied(f"{address}: {error}{advice}", "misconfigured")


def _setting(settings: Settings, address: Address, error: Exception) -> str:
    """Which setting must be corrected; "" if the server was not reached."""
    if not settings.tls:
        return ""
    from leaselock._backends.tls import NOT_TLS, REFUSED, error_behind, tls_problem  # loads ssl

    named = parameters(settings, address)
    for word in FILES:
        if word in named and not os.access(named[word], os.R_OK):
            return f"the file of ?{word}= cannot be read: {named[word]!r}"
    problem = tls_problem(error_behind(error))
    if problem == NOT_TLS:
        return f"{problem}: write redis:// in place of rediss://"
    if problem.startswith(REFUSED):
        return f"{problem}: give one (?ssl_certfile= and ?ssl_keyfile=)"
    return problem and f"{problem}: name the authority that has signed it (?ssl_ca_certs=FILE)"


def is_temporary(error: Exception) -> bool:
    """Whether a server that says this can serve later."""
    names = ("BusyLoadingError", "MasterDownError", "ClusterDownError", "TryAgainError")
    return type(error).__name__ in names or str(error).startswith("max number of clients")
