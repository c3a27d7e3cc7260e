"""URLs of databases, and the errors for wrong ones, before any connection is made."""

from __future__ import annotations

import ssl
import sys
from importlib import import_module
from typing import Any

import pytest

import leaselock
from leaselock._backends.libraries import check_version
from leaselock._backends.sql import mysql
from leaselock._backends.sql.keys import ADVISORY, lock_word, short_word
from leaselock._backends.sql.url import parsed

# Without type hints, which mypy is not to miss.
pymysql: Any = import_module("pymysql")
WRONG = {
    "postgresql://h/d?protocol=queue": "it knows lease, row, advisory",
    "postgresql://h/d?session=0.5": r"\?session= must be 1 to 3600 seconds, not '0.5'",
    "postgresql://h/d?session=soon": r"\?session= must be 1 to 3600 seconds, not 'soon'",
    "mysql://h/d?pool=0": r"\?pool= must be a number from 1 to 1000",
    "mysql://h/d?proxy=yes": r"\?proxy= must be session or transaction",
    "mysql://h/d?ssl=off": r"\?ssl= is yes or no",
    "mysql://h/d?ssl=no&ssl_ca=/ca.pem": "with no, there is no ssl_ca=",
    "mysql://h/d?ssl_key=/key.pem": r"has \?ssl_key= without \?ssl_cert=: give both files",
    "mysql://h/d?ssl_ca=/no/such/file": r"\?ssl_ca= must be a file of certificates in PEM format",
    "mysql://h/d?ssl_cert=/no/such/file": r"\?ssl_cert= and \?ssl_key= must be files in PEM",
    "mysql://h/d?charset=latin1": "knows .*token_ttl, unix_socket, but not 'charset'",
    "postgresql://a:5432,b:5433/d": r"say \?host=one,two&port=5432,5433",
    "postgresql://h/d?colour=blue": 'invalid connection option "colour"',
}


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=WRONG[url]):
        leaselock.Client(url)
    with pytest.raises(ValueError, match=WRONG[url]):
        leaselock.AsyncClient(url)


@pytest.mark.parametrize(
    ("url", "library", "package"),
    [
        ("postgresql://h/d", "psycopg", r"psycopg\[binary\]"),
        ("mariadb://h/d", "pymysql", "pymysql"),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(
    url: str, library: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    check_version.cache_clear()
    words = f"(?i){library} is not installed: pip install '{package}"
    with pytest.raises(ImportError, match=words):
        leaselock.Client(url)


def test_the_secrets_of_a_url_are_not_shown() -> None:
    for url in ("postgresql://me:pass%40word@h:1/d", "mysql://me:pass%40word@h:1/d?ssl=no"):
        with leaselock.Client(url) as client:
            assert "h:1/d" in repr(client)
            assert "word" not in repr(client)


def test_half_a_character_in_a_url_does_not_reveal_its_password() -> None:
    with pytest.raises(ValueError, match="percent-encoding") as caught:
        leaselock.Client("postgresql://me:hidden@h/d\ud800")
    assert "hidden" not in repr(caught.value)


def test_a_target_is_shown_without_its_password() -> None:
    target = parsed("postgresql://me:hidden@h/d")  # pragma: allowlist secret
    assert repr(target).startswith("<Target postgresql://")
    assert "hidden" not in repr(target)


def test_names_of_locks_in_mysql_are_not_truncated() -> None:
    """GET_LOCK takes 64 characters, and ignores their case."""
    names = [lock_word("a"), lock_word("A"), short_word(ADVISORY, "a"), short_word(ADVISORY, "A")]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 and name == name.lower() for name in names)


@pytest.mark.parametrize(
    ("query", "verifies", "required"),
    [("", ssl.CERT_NONE, False), ("?ssl=yes", ssl.CERT_REQUIRED, True)],
    ids=["preferred", "required"],
)
def test_connections_to_mysql_load_the_authorities_of_the_system_once(
    query: str, verifies: ssl.VerifyMode, required: bool
) -> None:
    """Loading takes 20 ms, in which no other thread runs: fifty connects stopped an event loop."""
    target = parsed(f"mysql://user@nowhere/locks{query}")
    one, other = (mysql._unconnected(pymysql, mysql.arguments(target)) for _ in range(2))
    assert one.ctx is other.ctx
    assert (one.ssl, one.ctx.verify_mode, one.ctx.check_hostname) == (True, verifies, required)
    assert one._ssl_required == required


def test_a_url_may_exclude_tls_to_mysql() -> None:
    target = parsed("mysql://user@nowhere/locks?ssl=no")
    assert not mysql._unconnected(pymysql, mysql.arguments(target)).ssl
