"""Removes what a test has left on a server of the user's."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from leaselock._backends import open_store
from leaselock.stores import DocumentStore
from testkit.adapter import remove_all

# The stores whose locks have a prefix in the URL.
REDIS = ("redis", "rediss", "unix")


def remove_locks(url: str, word: str) -> None:
    """Remove all locks under the prefix of a URL, which contains a word that nothing else has.

    A database has no prefixes: the author of a `Store` empties it in `fresh`. Files are in a folder
    of the test.
    """
    scheme = urlsplit(url).scheme
    if scheme in REDIS:
        remove_keys(url, word)
        return
    parts = open_store(url, time.monotonic).parts
    try:
        if parts and isinstance(parts[0], DocumentStore):
            remove_all(parts[0])
    finally:
        for part in parts:
            part.wake()
            part.close()


def remove_keys(url: str, word: str) -> None:
    """Remove all keys of Redis that contain a word."""
    import redis

    with redis.Redis.from_url(url.partition("?")[0]) as client:
        for key in client.scan_iter(f"*{word}*", count=1000):
            client.unlink(key)
