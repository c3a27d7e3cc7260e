"""How to reach a store: read from a URL, or from a client of the user's, which stays unchanged.

Time-outs, retries and decoding are never taken over: a request is sent once, with a deadline.
Secrets are in the parameters of connections and nowhere else; `shown` has none.
"""

from __future__ import annotations

from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from leaselock._backends import library
from leaselock._backends.redis.keys import PREFIX, RESERVED
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.topology import Cluster, Sentinels, Single
from leaselock._backends.url import TOKEN_TTL, decoded, parse, token_ttl, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock._backends.redis.topology import Topology
    from leaselock._backends.url import StoreURL

OURS = ("protocol", "replicas", "prefix", "token_ttl")
# The options of a URL that are shown, because they cannot be a secret.
PUBLIC = (*OURS, "db")
SENTINEL_PORT = 26379
PORT = 6379
# Supported by redis-py's connections for threads only, and not in a URL.
OCSP = (
    *("ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    *("ssl_ocsp_context", "ssl_ocsp_expected_cert"),
)
# A login has its own place there, and the others are no text.
NOT_IN_A_URL = ("username", "password", "credential_provider", "socket_keepalive_options")
# What a client shows to be let in.
LOGIN = ("username", "password", "credential_provider", "ssl_certfile", "ssl_keyfile")
LONGEST_PREFIX = 200
CERT_REQS = ("none", "optional", "required")
# The parameters of a client that are taken over: where it connects, and as which user.
CONNECTION_PARAMETERS = (
    *("username", "password", "credential_provider", "db", "client_name"),
    *("socket_keepalive", "socket_keepalive_options", "socket_type"),
    *("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data"),
    *("ssl_ca_path", "ssl_check_hostname", "ssl_password", "ssl_min_version", "ssl_ciphers"),
    *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
    *OCSP,
)


# By whether the client is one for asyncio.
MODULES = ("redis.connection", "redis.asyncio.connection")


def connection_class(module: Any, address: Address, tls: bool) -> Any:
    """redis-py's class of connections to *address*; *module* is one of `MODULES`."""
    if address.path:
        return module.UnixDomainSocketConnection
    return module.SSLConnection if tls else module.Connection


@lru_cache(maxsize=8)
def parameters_of(kind: Any) -> frozenset[str]:
    """The parameters of a class of connections, which differ between releases of redis-py."""
    return frozenset(name for part in kind.__mro__ for name in signature(part.__init__).parameters)


class Settings(NamedTuple):
    """A store: where it is, and the parameters of connections to its servers and sentinels."""

    topology: str
    addresses: tuple[Address, ...]
    service: str
    parameters: Mapping[str, Any]
    sentinel_parameters: Mapping[str, Any]
    tls: bool
    shown: str
    protocol: str | None = None
    replicas: int = 0
    prefix: str = PREFIX
    token_ttl: float = TOKEN_TTL
    """In seconds; 0 keeps the counters for ever."""

    def __repr__(self) -> str:
        return f"<Settings {self.shown}>"  # without the passwords

    def supported(self, *, aio: bool) -> Settings:
        """The parameters that the installed redis-py knows; ValueError if others are set."""
        module = library(MODULES[aio], "redis")
        kinds = [connection_class(module, address, self.tls) for address in self.addresses]
        known = frozenset().union(*map(parameters_of, kinds))
        said = [
            w for given in (self.parameters, self.sentinel_parameters) for w in given if given[w]
        ]
        unknown = [word for word in said if word not in known]
        if unknown:
            version = library("redis", "redis").__version__
            colour = "asyncio" if aio else "threads"
            raise ValueError(
                f"{self.shown}: {', '.join(unknown)}: redis-py {version} does not have this option "
                f"for a {kinds[0].__name__} of {colour}: leave it out, or use another release"
            )
        parameters, for_sentinels = (
            {word: value for word, value in given.items() if word in known}
            for given in (self.parameters, self.sentinel_parameters)
        )
        return self._replace(parameters=parameters, sentinel_parameters=for_sentinels)

    def with_prefix(self, prefix: str) -> Settings:
        """The same store with another prefix; ValueError if it cannot be used."""
        checked_prefix(prefix)
        mark = "&" if "?" in self.shown else "?"
        said = "prefix=" in self.shown.partition("?")[2]
        if said and self.prefix != prefix:
            raise ValueError(
                f"two prefixes: the URL says {self.prefix!r}, and the argument says {prefix!r}"
            )
        shown = self.shown if said else f"{self.shown}{mark}{urlencode({'prefix': prefix})}"
        return self._replace(prefix=prefix, shown=shown)

    def topology_of(self, now: Callable[[], float]) -> Topology:
        """How the server of a key is found."""
        if self.topology == "cluster":
            return Cluster(self.addresses)
        if self.topology == "sentinel":
            return Sentinels(self.addresses, self.service, now)
        return Single(self.addresses[0])


def checked_prefix(text: object) -> str:
    """A prefix for the keys of locks; ValueError if it cannot be one."""
    if not isinstance(text, str):
        raise TypeError(f"prefix is a text, not {text!r}")
    if not text.isprintable() or len(text) > LONGEST_PREFIX or text.startswith(RESERVED):
        raise ValueError(
            f"the prefix {text!r:.40} cannot be used: at most {LONGEST_PREFIX} printable "
            f"characters, not beginning with {' or '.join(RESERVED)}"
        )
    return text


def settings_of_url(text: str) -> Settings:
    """The settings of a URL; ValueError if they cannot be used."""
    url = parse(text)
    if url.scheme.startswith("valkey"):  # the same store by another name
        url = url._replace(scheme=f"redis{url.scheme.removeprefix('valkey')}")
    scheme, _, topology = url.scheme.partition("+")
    if topology not in ("", "sentinel", "cluster"):
        raise ValueError(f"{scheme}+{topology}:// is not known; known are +sentinel and +cluster")
    tls = sorted(name for name in url.options if name.startswith("ssl_"))
    if tls and scheme != "rediss":
        raise ValueError(
            f"{_shown(url)}: ?{tls[0]}= is for TLS: write rediss{url.scheme.removeprefix(scheme)}://"
        )
    parameters = _connection_parameters(url)
    addresses, service = _servers(url, scheme, topology)
    if scheme != "unix":
        # A cluster has databases since Valkey 9.
        parameters |= _database(url, 1 if topology == "sentinel" else 0)
    return Settings(
        topology or "single",
        addresses,
        service,
        parameters,
        _sentinel_parameters(parameters),
        scheme == "rediss",
        _shown(url),
        url.options.get("protocol"),
        url.option("replicas", whole_number(0, 100), 0),
        checked_prefix(url.options.get("prefix", PREFIX)),
        token_ttl(url),
    )


def _database(url: StoreURL, index: int) -> dict[str, int]:
    """The number of the database, which is that part of the path, if there is one."""
    database = "/".join(decoded(url.path).strip("/").split("/")[index:])
    if database and not database.isdigit():
        raise ValueError(f"{_shown(url)}: a database is a number, not {database!r}")
    return {"db": int(database)} if database else {}


def _connection_parameters(url: StoreURL) -> dict[str, Any]:
    """The login, and the options that redis-py knows, with the types that it gives them."""
    connection = library("redis.connection", "redis")
    options = {name: value for name, value in url.options.items() if name not in OURS}
    try:
        parameters: dict[str, Any] = connection.parse_url(f"redis://localhost?{urlencode(options)}")
    except ValueError as error:
        raise ValueError(f"{_shown(url)}: {error}") from error
    del parameters["host"]
    unknown = sorted(name for name in parameters if name not in CONNECTION_PARAMETERS)
    unknown = [name for name in unknown if not name.startswith("sentinel_")]
    # redis-py reads these as texts, and then checks nothing.
    unknown += [name for name in parameters if "ocsp" in name]
    if unknown:
        known = sorted({*OURS, *CONNECTION_PARAMETERS} - {*OCSP, *NOT_IN_A_URL})
        raise ValueError(
            f"{_shown(url)}: a Redis URL for locks does not know {', '.join(unknown)}: it knows "
            f"{', '.join(known)}"
        )
    if "ssl_cert_reqs" in parameters:
        # Celery and the module ssl write CERT_NONE, redis-py none.
        word = str(parameters["ssl_cert_reqs"]).lower().removeprefix("cert_")
        if word not in CERT_REQS:
            raise ValueError(f"{_shown(url)}: ?ssl_cert_reqs= is one of {', '.join(CERT_REQS)}")
        parameters["ssl_cert_reqs"] = word
    login = {"username": url.user, "password": url.password}
    return parameters | {name: value for name, value in login.items() if value}


def _servers(url: StoreURL, scheme: str, topology: str) -> tuple[tuple[Address, ...], str]:
    """Where the servers listen, and the name of the master where sentinels watch it."""
    if scheme == "unix":
        return (Address("localhost", PORT, decoded(url.path)),), ""
    authority = url.authority
    if not topology and (not authority or authority.startswith(":")):
        authority = f"localhost{authority}"
    if not authority:
        raise ValueError(f"{_shown(url)}: the URL must name at least one host")
    sentinel = topology == "sentinel"
    hosts = url._replace(authority=authority).hosts(SENTINEL_PORT if sentinel else PORT)
    if not topology and len(hosts) > 1:
        raise ValueError(f"{_shown(url)}: several hosts are for redis+sentinel and redis+cluster")
    service = url.segments()[0] if sentinel else ""
    if sentinel and not service:
        raise ValueError(
            "a URL of sentinels names the master, too: redis+sentinel://host,host/NAME"
        )
    return tuple(Address(h.name, h.port or PORT, sentinel=sentinel) for h in hosts), service


def _sentinel_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters for sentinels: their own login, if any, and the same TLS."""
    special = {
        name.removeprefix("sentinel_"): parameters.pop(name)
        for name in list(parameters)
        if name.startswith("sentinel_")
    }
    return {name: value for name, value in parameters.items() if name.startswith("ssl_")} | special


def _shown(url: StoreURL) -> str:
    return url.shown(PUBLIC)
