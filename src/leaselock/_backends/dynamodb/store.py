"""Opening a store in DynamoDB.

``dynamodb://table?region=eu-west-1``, with the options

region=         the region; else the one that boto3 finds
endpoint=       another server, such as http://localhost:8000
profile=        a profile of the AWS configuration files
prefix=         what the keys of the items begin with, so that several programs can share a table
session_token=  belongs to a login before the table, ``KEY_ID:SECRET@table``
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leaselock._backends.aws import OPTIONS, PUBLIC, of_client, settings_of
from leaselock._backends.document.store import COMMON_OPTIONS, document_store, opened
from leaselock._backends.dynamodb.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends import Opened
    from leaselock._backends.url import StoreURL

SERVICE = "dynamodb"
# Where a client is given, which names no table.
TABLE = "leaselock"
LONGEST_PREFIX = 512


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL, or of the user's client or table of boto3."""
    settings, url = settings_of(named, STORE, SERVICE, _check, _of_client)
    shown = url.shown((*PUBLIC, "prefix", *COMMON_OPTIONS))
    store = Table(settings, url.authority, url.option("prefix", _prefix, ""), shown, now)
    return opened(STORE, url, store, None, now, shown=shown)


def _check(url: StoreURL) -> None:
    if url.path not in ("", "/"):
        raise ValueError(
            "the URL of a DynamoDB store names a table and no path: dynamodb://table?region=..."
        )
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{3,255}", url.authority):
        raise ValueError(
            "the URL of a DynamoDB store names a table, of 3 to 255 letters, digits, '_', '-' and "
            "'.': dynamodb://table?region=..."
        )


def _prefix(text: str) -> str:
    if len(text.encode()) > LONGEST_PREFIX:
        raise ValueError(f"of at most {LONGEST_PREFIX} bytes")
    return text


def _of_client(target: Any) -> tuple[Any, str, str]:
    """The client of boto3 and the table; TypeError if it is none of DynamoDB."""
    if of_client(target) != SERVICE:
        raise TypeError(f"a {type(target).__name__} is no client of DynamoDB")
    return getattr(target.meta, "client", target), getattr(target, "table_name", TABLE), ""


STORE = document_store("DynamoDB", open_store, (*OPTIONS, "prefix"))
