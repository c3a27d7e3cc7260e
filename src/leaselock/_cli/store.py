"""The client of the store that the options name."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from leaselock import Client, LeaselockError
from leaselock._api.connect import (
    EMBEDDED,
    FILE_VARIABLE,
    OF_PROCESS,
    VARIABLE,
    may_hold_secret,
    named_by_environment,
    scheme_of,
    url_in_file,
)
from leaselock._cli.exit_codes import Misconfigured, Usage
from leaselock._cli.output import say

if TYPE_CHECKING:
    from typing import Any, TypeVar

    from leaselock import AsyncClient, OnOutage
    from leaselock._cli.options import Options, WaitOptions

    AnyClient = TypeVar("AnyClient", Client, AsyncClient)

URL, URL_FILE = VARIABLE, FILE_VARIABLE
# Set for a command that runs under a lock: the URL of that lock's store, without secrets.
OUTER_URL = "LEASELOCK_BACKEND"
OP_TIMEOUT = 5.0
# A command in a message of the library, with the URL as it is shown: without password and options.
ADVISED = re.compile(r"leaselock (doctor|setup) '[^']*'")
# Who may read a file besides its user and group.
OTHERS = 0o004


def open_client(options: Options) -> Client:
    """Return a client of the store that the options name; it sends no request yet."""
    return open_as(Client, options)


def open_as(kind: type[AnyClient], options: Options) -> AnyClient:
    """Return a client of that *kind*."""
    op_timeout = op_timeout_of(options)
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


def as_given(text: str, options: Options) -> str:
    """Return a message in which the commands to type name the store as this command does: the URL
    in it lacks the password and the options, and a command with it would report another fault.
    """
    import shlex

    given = ""
    if options.url_file is not None:
        given = f" --url-file {shlex.quote(options.url_file)}"
    elif options.backend is not None and may_hold_secret(options.backend):
        given = " --url URL, with the same URL"
    elif options.backend is not None:
        given = f" --url {shlex.quote(options.backend)}"
    return ADVISED.sub(lambda found: f"leaselock {found[1]}{given}", text)


def readable_by_others(options: Options) -> str | None:
    """Return the path of the file with the URL if it has a secret and all users can read it."""
    path = options.url_file or (None if options.backend else os.environ.get(URL_FILE))
    if not path:
        return None
    mode = os.stat(path).st_mode
    # A pipe has been read already.
    if not stat.S_ISREG(mode) or not mode & OTHERS or not may_hold_secret(url_in_file(path)):
        return None
    return path


def op_timeout_of(options: Options) -> float:
    """Return the limit for each reply of the store."""
    return OP_TIMEOUT if options.op_timeout is None else options.op_timeout


def outage_settings(
    options: WaitOptions, on_outage: OnOutage = "fail", patience: float | None = None
) -> dict[str, Any]:
    """Return what an acquire does while the store is out of reach. A try does not wait for the
    holder; for the store it waits as long as any other request, so that a failover within that time
    makes no job fail.
    """
    if on_outage == "fail" and options.timeout == 0.0:
        on_outage, patience = "wait", op_timeout_of(options)
    return {"on_outage": on_outage, "outage_timeout": patience}


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
