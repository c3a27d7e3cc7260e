"""The token that a command names, and the holder of a lock in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.exit_codes import Usage
from leaselock._cli.formatting import describe, format_duration

if TYPE_CHECKING:
    from leaselock import Holder
    from leaselock._cli.options import TokenOptions


def token_of(options: TokenOptions) -> int:
    """The token, which follows the name or --token."""
    tokens = {token for token in (options.given, options.token) if token is not None}
    if len(tokens) != 1:
        problem = "two tokens were given" if tokens else "the token is missing"
        raise Usage(f"{problem}: leaselock {options.command} NAME TOKEN")
    return int(tokens.pop())


def state_of(holder: Holder | None) -> str:
    """Return who holds a lock, and with which token, as the end of a sentence."""
    if holder is None:
        return "free"
    token = "no token" if holder.token is None else f"token {holder.token}"
    if holder.cooling_down:
        left = "" if holder.remaining is None else f" for {format_duration(holder.remaining)}"
        return f"cooling down{left}, held last by {holder}, {token}"
    return f"held by {describe(holder)}, {token}"
