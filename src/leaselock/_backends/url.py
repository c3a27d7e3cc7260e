"""The URL of a store: login, hosts, path and typed options, read the same way for every store.

The form is ``scheme://[user[:password]@]host[:port],…/path?option=value``. Messages never quote a
part of the URL that may hold a secret, and `StoreURL.shown` leaves all secrets out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")
# These stores have no login, so '@' is an ordinary character in their URLs.
EMBEDDED = ("memory", "sqlite")
# Locks in these end with the process.
OF_PROCESS = ("memory",)
# In these URLs a path is the name of a file, which may contain any character.
FILES = (*EMBEDDED, "unix")
# The drivers that URLs of SQLAlchemy may name; the first one is the one that is used.
DRIVERS = {
    "postgresql": ("psycopg", "psycopg_async"),
    "mysql": ("pymysql",),
    "mariadb": ("pymysql",),
}
# Options whose value contains a secret have one of these in their name.
SECRET_NAMES = ("pass", "pwd", "secret", "token", "auth")
LARGEST_PORT = 65535
# For how many seconds a token counter is kept after the last grant, and the most that may be said.
TOKEN_TTL = 7 * 86400.0
LONGEST_TTL = 3650 * 86400.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
QUOTE = (
    "in the URL of a store, write the reserved characters of a user name, a password and a path "
    "in percent-encoding: '@' as %40, '/' as %2F, '?' as %3F, '#' as %23, '[' as %5B, ']' as %5D"
)


class Host(NamedTuple):
    """One server: a name or an address without brackets, and its port."""

    name: str
    port: int | None


class StoreURL(NamedTuple):
    """The parts of a URL. User, password and option values are decoded, the path is not."""

    scheme: str
    """In lower case."""
    user: str | None
    password: str | None
    authority: str
    """The hosts as written, without the login."""
    path: str
    """As written, in percent-encoding, with its leading slash."""
    options: Mapping[str, str]
    fragment: str | None

    def __repr__(self) -> str:
        return f"<StoreURL {self.shown()}>"  # without the password

    def hosts(self, default_port: int | None = None) -> tuple[Host, ...]:
        """The servers, in the order written; ValueError unless each is a host or host:port."""
        if not self.authority:
            return ()
        return tuple(_host(text, default_port) for text in self.authority.split(","))

    def segments(self) -> tuple[str, ...]:
        """The decoded parts of the path between its slashes."""
        return tuple(map(decoded, self.path.removeprefix("/").split("/")))

    def option(self, name: str, read: Callable[[str], T], default: T) -> T:
        """The option, converted by *read* (see `seconds`, `whole_number`, `one_of`).

        *read* raises ValueError with the rest of a sentence that begins "?name= must be".
        """
        text = self.options.get(name)
        if text is None:
            return default
        try:
            return read(text)
        except ValueError as error:
            given = "" if is_secret(name) else f", not {text!r}"
            raise ValueError(f"?{name}= must be {error}{given}") from None

    def check_options(self, known: Collection[str], store: str) -> None:
        """ValueError, with a list of the known options, if the URL has another one."""
        for name in self.options:
            if name not in known:
                # What follows an unquoted '&' in a password looks like an option.
                hidden = any(map(is_secret, self.options))
                raise ValueError(
                    f"a URL for {store} has {'an' if hidden else 'the'} unknown option"
                    f"{'' if hidden else f' {name!r}'}: it knows {', '.join(known)}"
                )

    def shown(self, public: Collection[str] = ()) -> str:
        """The URL without its login, and of its options only those in *public*."""
        from urllib.parse import urlencode

        options = [(key, value) for key, value in self.options.items() if key in public]
        query = f"?{urlencode(options)}" if options else ""
        return f"{self.scheme}://{self.authority}{self.path}{query}"


def scheme_of(url: str) -> str:
    """The scheme of a URL, in lower case."""
    return url.partition(":")[0].lower()


def may_hold_secret(url: str) -> bool:
    """Whether one URL or several may hold a secret: before a host or in an option."""
    if scheme_of(url) in EMBEDDED:
        return False
    # This also finds a password with an unquoted slash, and one in the second of several URLs. An
    # option whose name is percent-encoded counts as a secret.
    login, at, _ = url.partition("://")[2].rpartition("@")
    parts = url.replace("?", "&").replace(",", "&").split("&")
    names = [part.partition("=")[0] for part in parts if "://" not in part]
    return bool(at and ":" in login) or any("%" in name or is_secret(name) for name in names)


def with_user(shown: str, user: str | None) -> str:
    """The URL without its secrets, but with the user, as a command needs it."""
    if not user:
        return shown
    from urllib.parse import quote

    scheme, mark, rest = shown.partition("://")
    return f"{scheme}{mark}{quote(user, safe='')}@{rest}"


def without_driver(url: str) -> str:
    """The URL without the driver that SQLAlchemy's URLs name. ValueError for one that is not used:
    its options and its connections would be others.
    """
    scheme, mark, rest = url.partition("://")
    database, plus, driver = scheme.lower().partition("+")
    if not (mark and plus and database in DRIVERS):
        return url
    if driver not in DRIVERS[database]:
        raise ValueError(
            f"locks in {database} are not held through {driver or 'a driver without a name'}: "
            f"write {database}:// (it connects with {DRIVERS[database][0]})"
        )
    return f"{database}://{rest}"


def check_form(text: str, schemes: Collection[str]) -> None:
    """ValueError that says what to write, for a text that is nearly the URL of a store."""
    if text != text.strip() or any(character < " " for character in text):
        raise ValueError(
            "a blank or a control character at the beginning or the end of the URL, or within it: "
            "remove it, and write %20 where a blank is meant"
        )
    scheme, _, rest = text.partition(":")
    scheme = scheme.lower()
    if scheme not in schemes:
        scheme, _, rest = text.partition("//")
        if scheme.lower() in schemes:
            raise ValueError(_meant(scheme.lower(), rest))
        if re.fullmatch(r"[\w.-]+:[0-9]{1,5}(/[0-9]*)?", text):
            raise ValueError(f"{_meant('redis', text)} (or with the scheme of another store)")
        _refuse_path(text)
    elif scheme not in EMBEDDED and not rest.startswith("//"):
        raise ValueError(_meant(scheme, rest))


def _refuse_path(text: str) -> None:
    """ValueError that says how to name a file, for a text that is the path of one."""
    if "://" in text or "@" in text:
        return
    if text.startswith((".", "/", "~")) or text.endswith((".db", ".sqlite", ".sqlite3")):
        from urllib.parse import quote

        raise ValueError(
            f"{text!r} is the path of a file, and a str is the URL of a store: write "
            f"'sqlite:///{quote(expanded(text))}', or pathlib.Path({text!r})"
        )


def expanded(path: str) -> str:
    """The path with the home directory in place of ``~``, as a shell has it."""
    if not path.startswith("~"):
        return path
    import os

    return os.path.expanduser(path)


def _meant(scheme: str, rest: str) -> str:
    # Before an '@' there may be a password.
    location = "..." if "@" in rest else rest.lstrip("/")
    return f"the URL of a store has '://' behind its scheme: write {scheme}://{location}"


def parse(text: str) -> StoreURL:
    """The parts of *text*; ValueError where reserved characters were not quoted, so that a
    password could be taken for another part.
    """
    before, mark, fragment = text.partition("#")
    before, _, query = before.partition("?")
    scheme, _, rest = before.partition(":")
    scheme = scheme.lower()
    netloc, slash, path = rest[2:].partition("/") if rest[:2] == "//" else ("", "", rest)
    login, at, authority = ("", "", netloc) if scheme in EMBEDDED else netloc.rpartition("@")
    if scheme not in FILES and _is_malformed(text, login, path, query, fragment):
        raise ValueError(f"this is not a valid URL: {QUOTE}")
    user, colon, password = login.partition(":")
    return StoreURL(
        scheme,
        decoded(user) if at else None,
        decoded(password) if colon else None,
        authority,
        slash + path,
        _options(query),
        fragment if mark else None,
    )


def _is_malformed(text: str, login: str, path: str, query: str, fragment: str) -> bool:
    from urllib.parse import urlsplit

    try:
        # urlsplit() refuses letters of other scripts that are equivalent to reserved characters;
        # its errors, like those of encode(), quote the URL. Later versions of it refuse brackets
        # behind the first host; `_host` checks them.
        urlsplit(text.replace("[", "").replace("]", ""))
        text.encode()
    except ValueError:
        return True
    options = [option for option in query.split("&") if not option.startswith("auth=")]
    odd = {*"[]"} & {*login} or text.count("[") != text.count("]")
    return bool(odd) or any("@" in part for part in (path, fragment, *options))


def _options(query: str) -> dict[str, str]:
    pairs = [option.partition("=") for option in query.split("&") if option]
    return {_plus_decoded(name): _plus_decoded(value) for name, _, value in pairs}


def _plus_decoded(text: str) -> str:
    return decoded(text.replace("+", " "))


def decoded(text: str) -> str:
    """*text* without percent-encoding."""
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)


def _host(text: str, default_port: int | None) -> Host:
    # An IPv6 address contains colons, so it is written in brackets.
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", text)
    port = int(match[3]) if match and match[3] else default_port
    if match is None or not 0 <= (port or 0) <= LARGEST_PORT:
        # The text is not quoted: with its host missing, it would be a user name and a password.
        raise ValueError(
            "the hosts in the URL of a store must be written as host, host:port or [IPv6]:port, "
            f"with a port up to {LARGEST_PORT} and commas in between"
        )
    return Host(decoded(match[1] or match[2]), port)


def is_secret(name: str) -> bool:
    """Whether the option *name* may contain a secret."""
    return name != "token_ttl" and any(part in name.lower() for part in SECRET_NAMES)


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Reads a duration from *least* to *most* seconds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"{least:g} to {most:g} seconds")
        return value

    return read


def duration(least: float, most: float) -> Callable[[str], float]:
    """Reads a number of seconds, or a duration such as 90s, 30m, 12h or 7d."""

    def read(text: str) -> float:
        unit = UNITS.get(text[-1:])
        try:
            return seconds(least, most)(text if unit is None else text[:-1]) * (unit or 1.0)
        except ValueError as error:
            raise ValueError(f"{error}, or a duration such as 90s, 30m, 12h or 7d") from None

    return read


def token_ttl(url: StoreURL) -> float:
    """The option ``?token_ttl=``, in seconds; 0 keeps the counters for ever."""
    return url.option("token_ttl", duration(0.0, LONGEST_TTL), TOKEN_TTL)


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Reads an integer from *least* to *most*."""

    def read(text: str) -> int:
        # int() also takes signs, underscores and the digits of other scripts.
        if not (text.isascii() and text.isdigit() and len(text) < 20) or not (
            least <= int(text) <= most
        ):
            raise ValueError(f"a number from {least} to {most}")
        return int(text)

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of *words*."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}")
        return text

    return read


def yes_or_no(text: str) -> bool:
    """Reads a switch."""
    return one_of("yes", "no")(text) == "yes"
