"""The store that the options name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock import Client, LeaselockError
from leaselock.cli.codes import Misconfigured, Usage

if TYPE_CHECKING:
    import argparse

URL = "LEASELOCK_URL"
OUTER = "LEASELOCK_BACKEND"
OP_TIMEOUT = 5.0
EMBEDDED = "sqlite:"


def client_of(options: argparse.Namespace) -> Client:
    """A client of the store that the options name; nothing is asked of it yet."""
    patience = OP_TIMEOUT if options.op_timeout is None else options.op_timeout
    if not 0.01 <= patience <= 3600:
        raise Usage("--op-timeout is from 10ms to 1h")
    url = options.backend or os.environ.get(URL) or None
    _check(url)
    try:
        return Client(url, op_timeout=patience)
    except (ValueError, ImportError, LeaselockError) as error:
        raise Misconfigured(str(error)) from error


def _check(url: str | None) -> None:
    if url is not None and url.lower().startswith("memory:"):
        raise Misconfigured("locks in memory:// end with this very command: name another store")
    outer = os.environ.get(OUTER, "")
    if url is None and outer and not outer.startswith(EMBEDDED):
        # Never take the embedded file for the store that the locks around us are in.
        raise Misconfigured(
            f"this runs under a lock of {outer}, but {URL} is not set (one with a password is "
            f"not passed on): set it, or give --url"
        )


def timeout_of(options: argparse.Namespace) -> float | None:
    """How long to wait for a lock."""
    wait: float | None = 0.0 if getattr(options, "nonblock", False) else options.wait
    return wait
