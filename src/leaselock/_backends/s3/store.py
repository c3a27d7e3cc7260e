"""Opening a store in S3 or in a service with its interface: ``s3://bucket/prefix?region=...``.

Its options are those of a DynamoDB store; *endpoint* is needed for another service than AWS. The
prefix is ``leaselock`` if the URL names none.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from leaselock._backends.aws import OPTIONS, PUBLIC, of_client, settings_of
from leaselock._backends.document.store import COMMON_OPTIONS, document_store, opened
from leaselock._backends.s3.bucket import SLOW, Bucket
from leaselock._backends.url import decoded

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends import Opened
    from leaselock._backends.url import StoreURL

SERVICE = "s3"
PREFIX = "leaselock"
LONGEST_PREFIX = 300


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL, or of the user's bucket of boto3."""
    settings, url = settings_of(named, STORE, SERVICE, _check, _of_bucket)
    shown = url.shown((*PUBLIC, *COMMON_OPTIONS))
    bucket = Bucket(settings, url.authority, _prefix(url.path), shown, now)
    warnings.warn(SLOW, UserWarning, stacklevel=2)
    return opened(STORE, url, bucket, None, now, shown=shown)


def _check(url: StoreURL) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", url.authority):
        raise ValueError(
            "the URL of an S3 store names a bucket, of 3 to 63 small letters, digits, '-' and '.': "
            "s3://bucket/prefix?region=..."
        )


def _prefix(path: str) -> str:
    prefix = decoded(path).strip("/") or PREFIX
    odd = any(part in ("", ".", "..") for part in prefix.split("/"))
    if odd or len(prefix.encode()) > LONGEST_PREFIX or not prefix.isprintable():
        raise ValueError(
            f"the prefix in the URL of an S3 store has up to {LONGEST_PREFIX} bytes, and no empty "
            "part, '.' or '..' between its slashes"
        )
    return f"{prefix}/"


def _of_bucket(target: Any) -> tuple[Any, str, str]:
    """The client and the name of a bucket of boto3; TypeError if it is none."""
    name = getattr(target, "name", None)
    if of_client(target) != SERVICE or not isinstance(name, str):
        raise TypeError('an S3 store is opened with a bucket: boto3.resource("s3").Bucket("name")')
    return target.meta.client, name, f"/{PREFIX}"


STORE = document_store("S3", open_store, OPTIONS, title="an object store (S3)")
