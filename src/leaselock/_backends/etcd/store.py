"""Locks in etcd v3: one key for each lock, written by compare and set.

The options in the URL ``etcd://[user:password@]host1:2379,host2,host3/prefix?…``, where ``etcds://``
is TLS:

ca=FILE               the authorities that the certificate of a server may be signed by; by default
                      those that the system trusts
cert=FILE, key=FILE   the certificate of the client, if the servers ask for one
watch=yes|no          whether waiters are told of changes, or read at intervals (?poll=)
poll=, token_ttl=     as for every store of the protocol `document`

The path of the URL is what the keys begin with: the key of a lock is ``prefix/name``.
"""

from __future__ import annotations

import shlex
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from leaselock._backends.document.adapter import (
    Conflict,
    DocumentStore,
    Found,
    Page,
    Stored,
    Traits,
)
from leaselock._backends.document.http import Pool
from leaselock._backends.document.store import COMMON_OPTIONS, document_store, opened
from leaselock._backends.etcd.gateway import Gateway, encoded
from leaselock._backends.etcd.listener import EtcdListener
from leaselock._backends.url import decoded, parse, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leaselock._backends import Opened
    from leaselock._backends.url import StoreURL
    from leaselock._core.contract.backend import Finding

PORT = 2379
PREFIX = "leaselock"
OPTIONS = ("ca", "cert", "key", "watch")
# The header Date has whole seconds, and the clocks of the members may differ by one.
TRAITS = Traits(clock_uncertainty=2.0)
# How many documents one request lists.
PAGE_SIZE = 500


class EtcdStore(DocumentStore):
    """Carries out requests."""

    def __init__(self, gateway: Gateway, prefix: str, page_size: int = PAGE_SIZE) -> None:
        super().__init__(TRAITS)
        self.gateway = gateway
        self.page_size = page_size
        self.prefix = f"{prefix}/".encode()

    def key(self, name: str) -> bytes:
        """The key of a lock."""
        return self.prefix + name.encode("utf-8", "surrogateescape")

    def describe(self, name: str) -> tuple[str, str]:
        """The key of the lock, and the command that deletes it."""
        key = self.key(name).decode("utf-8", "replace")
        return f"the key {key!r}", f"etcdctl del {shlex.quote(key)}"

    def get(self, name: str, until: float) -> Found:
        """Read the document; the read is linearizable, as all of etcd are by default."""
        body = {"key": encoded(self.key(name))}
        reply, _, date = self.gateway.post("kv/range", body, until)
        return _found(reply.get("kvs", ()), date)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write the document if its revision is *version*."""
        put = {"requestPut": {"key": encoded(self.key(name)), "value": encoded(value)}}
        reply, date = self._swap(name, version, put, until)
        if reply.get("succeeded"):
            return Stored(int(reply["header"]["revision"]), date)
        return Conflict(_found(reply["responses"][0]["response_range"].get("kvs", ()), date))

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete the document if its revision is *version*."""
        delete = {"requestDeleteRange": {"key": encoded(self.key(name))}}
        reply, _ = self._swap(name, version, delete, until)
        return bool(reply.get("succeeded"))

    def _swap(
        self, name: str, version: Any, then: Mapping[str, Any], until: float
    ) -> tuple[Any, float | None]:
        key = encoded(self.key(name))
        compared = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version or 0}
        body = {
            "compare": [compared],
            "success": [then],
            "failure": [{"requestRange": {"key": key}}],
        }
        reply, _, date = self.gateway.post("kv/txn", body, until)
        return reply, date

    def list(self, position: Any, until: float) -> Page:
        """Up to *page_size* documents, from the key after *position* on."""
        first = self.prefix if position is None else position + b"\0"
        body = {
            "key": encoded(first),
            "range_end": encoded(after(self.prefix)),
            "limit": self.page_size,
        }
        reply, _, date = self.gateway.post("kv/range", body, until)
        pairs = reply.get("kvs", ())
        keys = [b64decode(pair["key"]) for pair in pairs]
        names = [key[len(self.prefix) :].decode("utf-8", "surrogateescape") for key in keys]
        values = [_found([pair], date) for pair in pairs]
        last = keys[-1] if reply.get("more") else None
        return Page(tuple(zip(names, values, strict=True)), last)

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Examine the members."""
        from leaselock._backends.etcd.doctor import Doctor  # loaded where it is used

        return tuple(Doctor(self.gateway, self.key("")).findings(until))

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Nothing is needed: the first write of a lock creates its key."""
        return ()

    def close(self) -> None:
        """Close the connections."""
        self.gateway.pool.close()

    def after_fork(self) -> None:
        """Drop the connections of the parent."""
        self.gateway.after_fork()


def after(prefix: bytes) -> bytes:
    """The first key after all that begin with *prefix*, which ends with a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _found(pairs: Sequence[Mapping[str, str]], date: float | None) -> Found:
    if not pairs:
        return Found(None, None, date)
    return Found(b64decode(pairs[0].get("value", "")), int(pairs[0]["mod_revision"]), date)


def open_store(named: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL. Nothing is connected yet."""
    url = parse(named)
    STORE.protocol_of(url)
    hosts = url.hosts(PORT)
    if not hosts:
        raise ValueError("the URL of an etcd store names a host: etcd://host:2379/prefix")
    if url.fragment is not None:
        raise ValueError("the URL of an etcd store has a '#': write it as %23")
    pool = Pool(hosts, now, _tls(url))
    gateway = Gateway(pool, _login(url))
    store = EtcdStore(gateway, decoded(url.path.removeprefix("/").rstrip("/")) or PREFIX)
    watches = url.option("watch", yes_or_no, default=True)
    listener = EtcdListener(gateway, store.key) if watches else None
    shown = url.shown((*OPTIONS, *COMMON_OPTIONS))
    return opened(STORE, url, store, listener, now, shown=shown)


def _tls(url: StoreURL) -> Any:
    if url.scheme == "etcds":
        from leaselock._backends.tls import tls_context  # loads ssl

        return tls_context(url.options, "etcd")
    for name in ("ca", "cert", "key"):
        if name in url.options:
            raise ValueError(f"?{name}= is for TLS: write etcds:// before the hosts")
    return None


def _login(url: StoreURL) -> tuple[str, str] | None:
    if url.user is None and url.password is None:
        return None
    if not (url.user and url.password):
        raise ValueError("a login to etcd has a user and a password: etcd://[user:password@]host")
    return url.user, url.password


STORE = document_store("etcd", open_store, OPTIONS, listens=True)
