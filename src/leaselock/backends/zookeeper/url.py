"""``zookeeper://host1:2181,host2,host3/root?…``: what a URL says, and how it is shown.

timeout=10            the session that is asked for, in seconds; the servers have the last word
names=kazoo|curator   how our nodes are called (module `turn`)
auth=digest:user:pw   credentials, with which our nodes are ours alone; also user:pw@ before
                      the hosts
sasl=DIGEST-MD5       the same user and password by SASL; or GSSAPI, with the ticket at hand
acl=creator|open      who may touch our nodes; with credentials: creator
tls=yes, ca=, cert=, key=   files for TLS; the server's name is checked
protocol=queue|single
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from leaselock.backends import check_protocol
from leaselock.backends.zookeeper.places import ROOT
from leaselock.backends.zookeeper.turn import CURATOR, KAZOO

PROTOCOLS = ("queue", "single")
MARKS = {"kazoo": KAZOO, "curator": CURATOR}
KNOWN = "timeout names auth sasl acl tls ca cert key protocol".split()
SHORTEST, LONGEST = 0.1, 3600.0
TIMEOUT = 10.0


class Target(NamedTuple):
    """A store that is named."""

    hosts: str
    root: str
    timeout: float
    mark: str
    protocol: str
    shown: str
    options: dict[str, Any]
    """What kazoo's client is made with, besides."""
    creator: bool
    """Our nodes can be touched by these credentials only."""

    def __repr__(self) -> str:
        return f"<Target {self.shown}>"  # without the credentials


def parsed(url: str) -> Target:
    """What *url* says; ValueError for what makes no sense."""
    rest = url.partition("#")[0].partition("://")[2]
    place, _, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    secret, _, hosts = authority.rpartition("@")
    words = _words(query)
    if not hosts:
        raise ValueError("the URL of a ZooKeeper store names a host: zookeeper://host:2181/root")
    options = _options(words, unquote(secret))
    acl = words.get("acl", "creator" if len(options) and _known(options) else "open")
    _one_of("acl", acl, ("creator", "open"))
    return Target(
        hosts,
        _root(slash + path),
        _timeout(words.get("timeout", str(TIMEOUT))),
        MARKS[_one_of("names", words.get("names", "kazoo"), tuple(MARKS))],
        check_protocol(words.get("protocol"), PROTOCOLS, "ZooKeeper"),
        f"zookeeper://{hosts}{slash}{path}",
        options,
        acl == "creator",
    )


def _words(query: str) -> dict[str, str]:
    words = dict(parse_qsl(query, keep_blank_values=True))
    for word in words:
        _one_of("parameter", word, KNOWN)
    return words


def _one_of(what: str, word: str, known: list[str] | tuple[str, ...]) -> str:
    if word not in known:
        choice = ", ".join(known)
        raise ValueError(f"the URL of a ZooKeeper store: {what} {word!r} is not one of {choice}")
    return word


def _root(path: str) -> str:
    root = unquote(path).rstrip("/") or ROOT
    if any(part in ("", ".", "..") for part in root[1:].split("/")):
        raise ValueError(f"{root!r} is not a path in ZooKeeper")
    return root


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"timeout={text}: a session lasts {SHORTEST:g} to {LONGEST:g} seconds")
    return seconds


def _known(options: dict[str, Any]) -> bool:
    return "auth_data" in options or "sasl_options" in options


def _options(words: dict[str, str], secret: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "sasl" in words:
        user, _, password = secret.partition(":")
        sasl = {"mechanism": words["sasl"]}
        options["sasl_options"] = sasl | ({"username": user, "password": password} if user else {})
    elif secret or "auth" in words:
        scheme, _, credential = words.get("auth", f"digest:{secret}").partition(":")
        options["auth_data"] = [(scheme, credential)]
    if _one_of("tls", words.get("tls", "no"), ("yes", "no")) == "yes":
        files = {"ca": "ca", "cert": "certfile", "key": "keyfile"}
        options |= {"use_ssl": True, "check_hostname": True}
        options |= {kazoo: words[ours] for ours, kazoo in files.items() if ours in words}
    return options
