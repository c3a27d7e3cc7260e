"""The addresses of a host, and how much of the time to connect each of them gets."""

from __future__ import annotations

import socket


def time_per_address(host: str, port: int, seconds: float) -> float:
    """For how long to try each address of *host*, so that all of them take *seconds* at most.

    Client libraries try one after the other, each for the whole of their timeout.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return seconds  # the client library reports it
    return seconds / max(1, len(addresses))
