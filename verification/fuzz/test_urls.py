"""The URLs of stores: any text opens a store or is refused, and no password is ever shown."""

from __future__ import annotations

from functools import cache
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import strategies as st
from verification.fuzz.properties import holds

from leaselock._backends import SCHEMES, open_store
from leaselock._backends.url import may_hold_secret
from leaselock.errors import LeaselockError

if TYPE_CHECKING:
    from leaselock._backends import Opened

# Opening an object store says what it is for.
pytestmark = pytest.mark.filterwarnings("ignore:an object store:UserWarning")

SERVERS = [scheme for scheme in SCHEMES if scheme not in ("memory", "sqlite", "unix")]
# What parts a URL, what is quoted in one, and what parsers have stumbled over.
ODD = (
    "".join(map(chr, range(33)))
    + ":/?#[]@!$&'()*+,;=%\\\"<>^`{|}~\x7f²٣℀\u2160\u212a\u017f\ud800\udcff"
)
PIECES = st.sampled_from(
    [
        *("://", "@", ":", "/", "?", "#", ",", "&", "=", "%", "%00", "%ff", "%2f", "..", "[::1]"),
        *("localhost", "h:1", "h:99999", ":memory:", "protocol=", "protocol=hash", "replicas=²"),
        *("pool=٣", "session=nan", "timeout=1e999", "acl=creator", "auth=digest:me:pw", "db=x"),
        *("sasl=GSSAPI", "tls=yes", "ssl_min_version=9", "socket_keepalive=maybe", "proxy=session"),
        *(f"{scheme}://" for scheme in SCHEMES),
    ]
)
SOME = st.text(st.characters() | st.sampled_from(ODD), max_size=8)
REST = st.lists(PIECES | SOME, max_size=6).map("".join)
# A word that comes about in no other way, so that each of its letters would be seen.
SECRET = "Qx7Jz"
PASSWORDS = st.text(st.sampled_from(ODD.replace("\ud800", "").replace("\udcff", "")), max_size=3)


def outcome(url: str) -> Opened | Exception:
    """The opened store, or the error."""
    try:
        opened = open_store(url, monotonic)
    except (ValueError, LeaselockError) as error:
        return error
    for part in opened.parts:
        part.close()
    return opened


def said(found: Opened | Exception) -> str:
    """Everything that is shown of it, including the causes of an error."""
    words: list[str] = []
    cause: BaseException | None = found if isinstance(found, Exception) else None
    while cause is not None:
        words += (str(cause), repr(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ".join(words) if isinstance(found, Exception) else found.shown + repr(found)


@cache
def plain(scheme: str) -> str:
    """A valid path for a URL of this scheme."""
    return "/main/0" if scheme.endswith("+sentinel") else "/locks" if "redis" not in scheme else ""


@holds(scheme=st.sampled_from(list(SCHEMES)), rest=REST)
def test_any_url_is_a_store_or_is_refused(scheme: str, rest: str) -> None:
    outcome(f"{scheme}://{rest}")


@holds(text=REST)
def test_any_text_is_a_store_or_is_refused(text: str) -> None:
    outcome(text)


@holds(urls=st.lists(st.sampled_from(SERVERS), min_size=2, max_size=4), rest=REST)
def test_urls_with_commas_are_a_store_or_are_refused(urls: list[str], rest: str) -> None:
    outcome(",".join(f"{scheme}://h{i}{rest}" for i, scheme in enumerate(urls)))


@holds(scheme=st.sampled_from(SERVERS), odd=PASSWORDS, rest=REST, end=PASSWORDS)
def test_a_quoted_password_is_not_shown(scheme: str, odd: str, rest: str, end: str) -> None:
    secret = quote(f"{odd}{SECRET}{end}", safe="")
    assert SECRET not in said(outcome(f"{scheme}://me:{secret}@h{plain(scheme)}{rest}"))


@holds(scheme=st.sampled_from(SERVERS), odd=PASSWORDS, end=PASSWORDS)
def test_an_unquoted_password_is_not_shown(scheme: str, odd: str, end: str) -> None:
    url = f"{scheme}://me:{SECRET}{odd}{SECRET}{end}@h:1{plain(scheme)}"
    assert SECRET not in said(outcome(url))


@holds(scheme=st.sampled_from(SERVERS), odd=PASSWORDS, raw=st.booleans())
def test_no_password_reaches_the_environment_of_a_command(scheme: str, odd: str, raw: bool) -> None:
    secret = f"{SECRET}{odd}" if raw else quote(f"{SECRET}{odd}", safe="")
    assert may_hold_secret(f"{scheme}://me:{secret}@h:1{plain(scheme)}")


@holds(
    scheme=st.sampled_from(SERVERS),
    word=st.sampled_from("password ssl_password sentinel_password sslpassword auth".split()),
    at=st.integers(0, 3),
)
def test_a_password_among_the_options_counts_however_it_is_written(
    scheme: str, word: str, at: int
) -> None:
    written = f"{word[:at]}%{ord(word[at]):02x}{word[at + 1 :]}"
    for option in (word, word.upper(), written):
        url = f"{scheme}://h:1{plain(scheme)}?{option}=digest:me:{SECRET}"
        assert may_hold_secret(url)
        assert SECRET not in said(outcome(url))
