"""The client of the store that the options name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock import Client, LeaselockError
from leaselock._api.connect import (
    EMBEDDED,
    FILE_VARIABLE,
    OF_PROCESS,
    VARIABLE,
    named_by_environment,
    scheme_of,
    url_in_file,
)
from leaselock._cli.exit_codes import Misconfigured, Usage
from leaselock._cli.output import say

if TYPE_CHECKING:
    from typing import TypeVar

    from leaselock import AsyncClient
    from leaselock._cli.options import Options

    AnyClient = TypeVar("AnyClient", Client, AsyncClient)

URL, URL_FILE = VARIABLE, FILE_VARIABLE
# Set for a command that runs under a lock: the URL of that lock's store, without secrets.
OUTER_URL = "LEASELOCK_BACKEND"
OP_TIMEOUT = 5.0


def open_client(options: Options) -> Client:
    """Return a client of the store that the options name; it sends no request yet."""
    return open_as(Client, options)


def open_as(kind: type[AnyClient], options: Options) -> AnyClient:
    """Return a client of that *kind*."""
    op_timeout = OP_TIMEOUT if options.op_timeout is None else options.op_timeout
    if not 0.01 <= op_timeout <= 3600:
        raise Usage("--op-timeout is from 10ms to 1h")
    try:
        url = _url(options)
        check_url(url)
        client = kind(url, op_timeout=op_timeout)
    except (ValueError, ImportError, LeaselockError) as error:
        raise Misconfigured(str(error)) from error
    options.store = client.url
    if options.verbose:
        say(f"the store is {client.url}")
    return client


def _url(options: Options) -> str | None:
    """Return the URL that the options or the environment name; None for the embedded file."""
    if options.backend is not None and options.url_file is not None:
        raise Usage("either a URL or --url-file, not both")
    if options.url_file is not None:
        return url_in_file(options.url_file)
    if options.backend is not None and not options.backend.strip():
        raise Misconfigured("the URL that was given is empty: name a store, or leave it out")
    return options.backend or named_by_environment()


def check_url(url: str | None) -> None:
    """Misconfigured for a store that a command cannot use."""
    if url is not None and (scheme := scheme_of(url)) in OF_PROCESS:
        raise Misconfigured(f"locks in {scheme}:// end with this very command: name another store")
    outer = os.environ.get(OUTER_URL, "")
    if url is None and outer and scheme_of(outer) not in EMBEDDED:
        # Do not silently use the embedded file when the enclosing lock is in another store.
        raise Misconfigured(
            f"this runs under a lock of {outer}, but {URL} is not set (one with a password is "
            f"not passed on): set it, or give --url"
        )
