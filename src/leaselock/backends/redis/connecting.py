"""How redis-py makes a connection for us: on what terms, and what it means when it cannot.

Law: until a connection stands nothing was asked, so what fails here is never Unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.redis.steps import Unreachable
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address


def terms_for(settings: Settings, address: Address, seconds: float) -> dict[str, Any]:
    """What redis-py is told of a connection to *address*."""
    terms = dict(settings.sentinel_terms if address.sentinel else settings.terms)
    if address.path:
        terms["path"] = address.path
    else:
        terms |= {"host": address.host, "port": address.port, "socket_keepalive": True}
    maintenance = library("redis.maint_notifications", "redis")
    return terms | {
        "protocol": 3,
        "decode_responses": False,
        "socket_connect_timeout": seconds,
        "socket_timeout": seconds,
        "maint_notifications_config": maintenance.MaintNotificationsConfig(enabled=False),
    }


def kind_for(module: Any, settings: Settings, address: Address) -> Any:
    """redis-py's class for a connection to *address*."""
    if address.path:
        return module.UnixDomainSocketConnection
    return module.SSLConnection if settings.tls else module.Connection


def refusal(address: Address, error: Exception) -> Exception:
    """What a failed connection means: nothing was asked yet."""
    exceptions = library("redis.exceptions", "redis")
    final = (exceptions.AuthenticationError, exceptions.NoPermissionError)
    if isinstance(error, final):
        return NotApplied(f"{address}: permission denied: {error}")
    if isinstance(error, exceptions.ResponseError) and "HELLO" in str(error).upper():
        return NotApplied(f"{address}: Redis 6 or later, or Valkey, is needed (it said: {error})")
    return Unreachable(f"{address}: {str(error) or 'no connection within its time'}")
