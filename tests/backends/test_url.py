"""The parts of a store's URL, and the errors for an invalid one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.url import Host, one_of, parse, seconds, whole_number, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable


def test_all_parts() -> None:
    url = parse("Redis://me:p%40ss@a:1,[::1]:2,[fe80::1]/main/0?db=3&ssl_ca=%2Fca+file#x")
    assert (url.scheme, url.user, url.password) == ("redis", "me", "p@ss")
    assert url.hosts(6379) == (Host("a", 1), Host("::1", 2), Host("fe80::1", 6379))
    assert (url.path, url.segments(), url.fragment) == ("/main/0", ("main", "0"), "x")
    assert url.options == {"db": "3", "ssl_ca": "/ca file"}


def test_parts_that_are_missing() -> None:
    url = parse("postgresql://")
    assert (url.user, url.password, url.hosts(), url.path) == (None, None, (), "")
    assert (url.options, url.fragment) == ({}, None)
    assert parse("redis://:pw@h").user == ""
    assert parse("redis://me@h").password is None


def test_a_unix_socket() -> None:
    url = parse("unix://me:pw@/run/a@b.sock?db=1")
    assert (url.user, url.password, url.authority) == ("me", "pw", "")
    assert (url.path, url.shown(("db",))) == ("/run/a@b.sock", "unix:///run/a@b.sock?db=1")


def test_an_at_sign_is_ordinary_where_there_is_no_login() -> None:
    assert parse("memory://a@b/c").authority == "a@b"
    assert parse("sqlite:////a@b.db").path == "//a@b.db"


def test_the_shown_form_has_no_secret() -> None:
    url = parse("zookeeper://me:hidden@a,b:1/r?auth=digest:me:hidden&timeout=3&db=1")
    assert url.shown() == "zookeeper://a,b:1/r"
    assert url.shown(("timeout", "db")) == "zookeeper://a,b:1/r?timeout=3&db=1"
    assert "hidden" not in repr(url)


@pytest.mark.parametrize(
    "url",
    [
        *("redis://me:hid/den@h", "redis://me:hid?den@h", "redis://me:hid#den@h"),
        *("redis://me:hid[den@h", "redis://me:hidden@h/\ud800", "redis://me:hid?a=b&den@h"),
        *("redis://me:hidden@[h", "redis://me:hidden\uff20h/"),
    ],
)
def test_reserved_characters_must_be_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="percent-encoding") as caught:
        parse(url)
    assert "hid" not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "hosts", ["a:x", "a:65536", "a:-1", "::1", "[::1", "[::1]x", ":1", "a,,b", "a:1:2", "me:hidden"]
)
def test_invalid_hosts(hosts: str) -> None:
    with pytest.raises(ValueError, match=r"host:port or \[IPv6\]:port") as caught:
        parse(f"redis://{hosts}").hosts() if "[::1" not in hosts else _parsed_hosts(hosts)
    assert "hidden" not in repr(caught.value)


def _parsed_hosts(hosts: str) -> object:
    # urlsplit() finds brackets that do not match, before the hosts are read one by one.
    url = parse("redis://h")
    return url._replace(authority=hosts).hosts()


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (seconds(1, 60), "2.5", 2.5),
        (whole_number(1, 100), "100", 100),
        (one_of("a", "b"), "b", "b"),
        (yes_or_no, "yes", True),
        (yes_or_no, "no", False),
    ],
)
def test_an_option_is_converted(read: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(f"redis://h?x={text}").option("x", read, None) == value
    assert parse("redis://h").option("x", read, "default") == "default"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (seconds(1, 60), "nan", r"\?x= must be 1 to 60 seconds, not 'nan'"),
        (seconds(1, 60), "soon", r"\?x= must be 1 to 60 seconds, not 'soon'"),
        (whole_number(1, 100), "101", r"\?x= must be a number from 1 to 100, not '101'"),
        (whole_number(1, 100), "٣", r"\?x= must be a number from 1 to 100"),
        (whole_number(0, 100), "+1", r"\?x= must be a number from 0 to 100"),
        (one_of("a", "b", "c"), "", r"\?x= must be a, b or c, not ''"),
        (yes_or_no, "1", r"\?x= must be yes or no, not '1'"),
    ],
)
def test_an_invalid_option_says_what_to_write(
    read: Callable[[str], Any], text: str, message: str
) -> None:
    url = parse("redis://h")._replace(options={"x": text})
    with pytest.raises(ValueError, match=message):
        url.option("x", read, None)


def test_an_invalid_secret_is_not_quoted() -> None:
    with pytest.raises(ValueError, match=r"\?auth= must be a or b$"):
        parse("redis://h?auth=hidden").option("auth", one_of("a", "b"), "a")


def test_an_unknown_option_lists_the_known_ones() -> None:
    message = "a URL for Redis has the unknown option 'c': it knows a, b"
    with pytest.raises(ValueError, match=message):
        parse("redis://h?a=1&c=2").check_options(("a", "b"), "Redis")
    # An unquoted '&' in a secret makes its end look like an option.
    with pytest.raises(ValueError, match="has an unknown option: it knows auth"):
        parse("redis://h?auth=hid&den").check_options(("auth",), "Redis")
