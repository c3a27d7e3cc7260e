"""The client that the options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Client

if TYPE_CHECKING:
    import argparse


def client_of(options: argparse.Namespace) -> Client:
    """A client of the store that the options name."""
    timeout = 5.0 if options.op_timeout is None else options.op_timeout
    return Client(options.backend, op_timeout=timeout)


def timeout_of(options: argparse.Namespace) -> float | None:
    """How long to wait for a lock."""
    if getattr(options, "nonblock", False):
        return 0.0
    wait: float | None = options.wait
    return wait
