"""How to reach a store: from a URL, or read off a client that the user has, which stays as it is.

Never taken over are time-outs, retries and decoding: below us a request is sent once, within a
deadline. Secrets live in the terms of connections and nowhere else; `shown` has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from leaselock.backends import library
from leaselock.backends.redis.messages import Address
from leaselock.backends.redis.topology import Cluster, Sentinels, Single

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock.backends.redis.topology import Topology

OURS = ("protocol", "replicas")
# What of a URL's words is shown: those that cannot be a secret.
PUBLIC = (*OURS, "db")
SENTINEL_PORT = 26379
PORT = 6379
# What redis-py's connections of asyncio do not know.
OCSP = (
    *("ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    *("ssl_ocsp_context", "ssl_ocsp_expected_cert"),
)
# What of a client's terms says where and as whom; all else is about its own manner of asking.
TERMS = (
    *("username", "password", "credential_provider", "db", "client_name"),
    *("socket_keepalive", "socket_keepalive_options", "socket_type"),
    *("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data"),
    *("ssl_ca_path", "ssl_check_hostname", "ssl_password", "ssl_min_version", "ssl_ciphers"),
    *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
    *OCSP,
)


class Settings(NamedTuple):
    """A store: where it is, and on what terms its servers and its sentinels are reached."""

    topology: str
    addresses: tuple[Address, ...]
    service: str
    terms: Mapping[str, Any]
    sentinel_terms: Mapping[str, Any]
    tls: bool
    shown: str
    protocol: str | None
    replicas: int

    def __repr__(self) -> str:
        return f"<Settings {self.shown}>"  # without the passwords

    def for_tasks(self) -> Settings:
        """For connections of asyncio; ValueError where it says what they cannot do."""
        said = [word for word in OCSP if self.terms.get(word) or self.sentinel_terms.get(word)]
        if said:
            words = f"{self.shown}: redis-py checks {said[0]} on blocking connections only"
            raise ValueError(f"{words}: use leaselock.Client, or leave it out")
        terms, asked = (
            {word: value for word, value in given.items() if word not in OCSP}
            for given in (self.terms, self.sentinel_terms)
        )
        return self._replace(terms=terms, sentinel_terms=asked)

    def topology_of(self, now: Callable[[], float]) -> Topology:
        """The way to find the server of a key."""
        if self.topology == "cluster":
            return Cluster(self.addresses)
        if self.topology == "sentinel":
            return Sentinels(self.addresses, self.service, now)
        return Single(self.addresses[0])


def settings_of(target: object, *, aio: bool = False) -> Settings:
    """The settings of a URL or of a client; ValueError or TypeError with what is wrong."""
    library("redis", "redis")
    library("hiredis", "redis")
    from leaselock.backends.redis.clients import settings_of_client

    found = _of_url(target) if isinstance(target, str) else settings_of_client(target)
    return found.for_tasks() if aio else found


def _of_url(url: str) -> Settings:
    scheme, _, rest = url.partition("://")
    scheme, _, topology = scheme.lower().partition("+")
    tls = scheme == "rediss"
    parts = urlsplit(f"{scheme}://{rest}")
    own = {key: value for key, value in parse_qsl(parts.query) if key in OURS}
    terms = _terms(url, parts, topology)
    if topology not in ("", "sentinel", "cluster"):
        raise ValueError(f"{scheme}+{topology}:// is not known; known are +sentinel and +cluster")
    addresses, service = _places(scheme, parts, topology, terms)
    return Settings(
        topology or "single",
        addresses,
        service,
        terms,
        _sentinel_terms(terms),
        tls,
        shown(url),
        own.get("protocol"),
        _replicas(own.get("replicas", "0")),
    )


def _replicas(text: str) -> int:
    if not text.isdigit() or int(text) > 100:
        raise ValueError(f"?replicas= is a number of replicas to wait for, not {text!r}")
    return int(text)


def _terms(url: str, parts: Any, topology: str) -> dict[str, Any]:
    """What redis-py makes of the URL, one host of it standing for all."""
    connection = library("redis.connection", "redis")
    login, _, _ = parts.netloc.rpartition("@")
    host = "localhost" if topology else parts.netloc.rpartition("@")[2]
    netloc = f"{login}@{host}" if login else host
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] not in OURS])
    path = "" if topology else parts.path
    try:
        # Not by urlunsplit, which leaves out the slashes of a path without a host.
        terms: dict[str, Any] = connection.parse_url(f"{parts.scheme}://{netloc}{path}?{query}")
    except ValueError as error:
        raise ValueError(f"{shown(url)}: {error}") from error
    terms.pop("connection_class", None)
    unknown = sorted(set(terms) - {*TERMS, "host", "port", "path", "sentinel_password"})
    unknown = [word for word in unknown if not word.startswith("sentinel_")]
    # redis-py reads them as texts, and then checks nothing.
    unknown += [word for word in terms if "ocsp" in word]
    if unknown:
        raise ValueError(f"{shown(url)}: a Redis URL for locks does not know {', '.join(unknown)}")
    if topology == "sentinel" and parts.path.count("/") > 1:
        terms["db"] = _database(url, parts.path.split("/")[2])
    elif not topology and parts.scheme != "unix" and parts.path.strip("/"):
        terms["db"] = _database(url, parts.path.strip("/"))
    return terms


def _database(url: str, text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{shown(url)}: a database is a number, not {text!r}")
    return int(text)


def _places(
    scheme: str, parts: Any, topology: str, terms: dict[str, Any]
) -> tuple[tuple[Address, ...], str]:
    host, port, path = terms.pop("host", "localhost"), terms.pop("port", PORT), ""
    path = terms.pop("path", "")
    if not topology:
        return ((Address(host, port, path),), "")
    hosts = parts.netloc.rpartition("@")[2]
    usual = SENTINEL_PORT if topology == "sentinel" else PORT
    found = tuple(_host(word, usual, topology == "sentinel") for word in hosts.split(","))
    if topology == "cluster":
        return found, ""
    service = parts.path.split("/")[1] if parts.path else ""
    if not service:
        raise ValueError(
            "a URL of sentinels names the master, too: redis+sentinel://host,host/NAME"
        )
    return found, service


def _host(text: str, usual: int, sentinel: bool) -> Address:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(usual)
    if not host or not port.isdigit():
        raise ValueError(f"{text!r} is no host, or host:port")
    return Address(host.strip("[]"), int(port), sentinel=sentinel)


def _sentinel_terms(terms: dict[str, Any]) -> dict[str, Any]:
    """Terms of the sentinels: their own login, if any, and the same TLS."""
    special = {
        key.removeprefix("sentinel_"): terms.pop(key)
        for key in list(terms)
        if key.startswith("sentinel_")
    }
    return {key: value for key, value in terms.items() if key.startswith("ssl_")} | special


def shown(url: str) -> str:
    """The URL without its secrets."""
    scheme, _, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    netloc, slash, path = place.partition("/") if scheme != "unix" else (place, "", "")
    host = netloc.rpartition("@")[2]
    public = [(key, value) for key, value in parse_qsl(query) if key in PUBLIC]
    words = f"?{urlencode(public)}" if mark and public else ""
    return f"{scheme.lower()}://{host}{slash}{path}{words}"
