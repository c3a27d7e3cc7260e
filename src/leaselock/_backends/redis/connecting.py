"""How redis-py opens a connection for us: its parameters, and what its errors mean.

Invariant: until a connection is open no command was sent, so a failure here is never
`OutcomeUnknown`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.redis.messages import Unreachable
from leaselock._backends.redis.settings import connection_class, parameters_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings


def new_connection(module: Any, settings: Settings, address: Address, seconds: float) -> Any:
    """redis-py's connection object for *address*, not connected yet; *module* has its classes."""
    arguments = dict(settings.sentinel_parameters if address.sentinel else settings.parameters)
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


def refusal(address: Address, error: Exception) -> Exception:
    """The error of ours for a failed attempt to connect."""
    exceptions = library("redis.exceptions", "redis")
    final = (exceptions.AuthenticationError, exceptions.NoPermissionError)
    if isinstance(error, final) and "already authenticated" in str(error):
        return NotApplied(
            f"{address}: permission denied: the server wants a password: write "
            "redis://:PASSWORD@host or redis://USER:PASSWORD@host",  # pragma: allowlist secret
            "denied",
        )
    if isinstance(error, final):
        return NotApplied(f"{address}: permission denied: {error}", "denied")
    spoken = str(error).upper()
    if isinstance(error, exceptions.ResponseError) and ("HELLO" in spoken or "NOPROTO" in spoken):
        return NotApplied(
            f"{address}: leaselock needs RESP3 (HELLO 3), which Redis has since version 6, and "
            f"Valkey (it said: {error})",
            "misconfigured",
        )
    return Unreachable(f"{address}: {str(error) or 'no connection within its time'}")
