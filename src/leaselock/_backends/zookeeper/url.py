"""The options in the URL of a ZooKeeper store: ``zookeeper://host1:2181,host2,host3/root?…``.

timeout=10            the session timeout to ask for, in seconds; the servers may change it
names=kazoo|curator   the format of the names of our nodes (see `queue_order`)
auth=digest:user:pw   credentials; then only they may change our nodes. Also user:pw@ before
                      the hosts
sasl=DIGEST-MD5       the same user and password by SASL; or GSSAPI, with a Kerberos ticket
acl=creator|open      who may change our nodes; with credentials: creator
tls=yes, ca=, cert=, key=   files for TLS; the server's name is verified
extra_lock_patterns=…      patterns of other programs' nodes that count, with commas between them
protocol=queue|single

The path of the URL is the root, below which the locks are: ``/`` for that of the servers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from leaselock._backends import check_protocol
from leaselock._backends.url import StoreURL, decoded, one_of, parse, seconds, yes_or_no
from leaselock._backends.zookeeper.paths import ROOT
from leaselock._backends.zookeeper.queue_order import CURATOR, KAZOO, contender_pattern

PROTOCOLS = ("queue", "single")
MARKS = {"kazoo": KAZOO, "curator": CURATOR}
KNOWN = "timeout names extra_lock_patterns auth sasl acl tls ca cert key protocol".split()
SHORTEST, LONGEST = 0.1, 3600.0
TIMEOUT = 10.0


class Target(NamedTuple):
    """A store, and how to connect to it."""

    hosts: str
    root: str
    timeout: float
    mark: str
    protocol: str
    shown: str
    options: dict[str, Any]
    """More arguments for kazoo's client."""
    creator: bool
    """Only the user with these credentials may change our nodes."""
    extra: tuple[str, ...] = ()
    """Patterns of other programs' nodes."""

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"  # without the credentials


def parsed(text: str) -> Target:
    """The store that the URL *text* names; ValueError for an invalid URL."""
    url = parse(text)
    if not url.hosts():
        raise ValueError("the URL of a ZooKeeper store names a host: zookeeper://host:2181/root")
    url.check_options(KNOWN, "ZooKeeper")
    credentials = _credentials(url)
    acl = url.option("acl", one_of("creator", "open"), "creator" if credentials else "open")
    return Target(
        url.authority,
        _root(url.path),
        url.option("timeout", seconds(SHORTEST, LONGEST), TIMEOUT),
        MARKS[url.option("names", one_of(*MARKS), "kazoo")],
        check_protocol(url.options.get("protocol"), PROTOCOLS, "ZooKeeper"),
        url.shown(),
        credentials | _tls(url),
        acl == "creator",
        url.option("extra_lock_patterns", _patterns, ()),
    )


def _patterns(text: str) -> tuple[str, ...]:
    extra = tuple(filter(None, text.split(",")))
    contender_pattern(extra)
    return extra


def _root(path: str) -> str:
    root = (decoded(path).rstrip("/") or "/") if path else ROOT
    if root != "/" and any(part in ("", ".", "..") for part in root[1:].split("/")):
        raise ValueError(
            f"{root!r} is not a path in ZooKeeper: write one without empty parts, '.' and '..'"
        )
    return root


def _credentials(url: StoreURL) -> dict[str, Any]:
    user, password = url.user or "", url.password or ""
    if "sasl" in url.options:
        sasl = {"mechanism": url.options["sasl"]}
        return {"sasl_options": sasl | ({"username": user, "password": password} if user else {})}
    if "auth" in url.options:
        scheme, _, credential = url.options["auth"].partition(":")
        return {"auth_data": [(scheme, credential)]}
    if user or url.password is not None:
        credential = user if url.password is None else f"{user}:{password}"
        return {"auth_data": [("digest", credential)]}
    return {}


def _tls(url: StoreURL) -> dict[str, Any]:
    if not url.option("tls", yes_or_no, default=False):
        return {}
    files = {"ca": "ca", "cert": "certfile", "key": "keyfile"}
    given = {kazoo: url.options[ours] for ours, kazoo in files.items() if ours in url.options}
    return {"use_ssl": True, "check_hostname": True} | given
