"""What people write first, and what they are told where it is not what works."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import leaselock
from leaselock._backends.url import without_driver

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = quote(os.path.expanduser("~"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("./locks.db", "write 'sqlite:///./locks.db', or pathlib.Path"),
        ("locks.db", "write 'sqlite:///locks.db', or pathlib.Path"),
        ("/var/a b.db", "write 'sqlite:////var/a%20b.db', or "),
        ("~/x.db", f"write 'sqlite:///{HOME}/x.db', or "),
        ("sqlite:///~/x.db", f"a URL has no ~ for the home directory: write sqlite:///{HOME}/x.db"),
        ("redis://h?ssl_password=x", r"\?ssl_password= is for TLS: write rediss://"),
        ("redis+sentinel://h/m?ssl_ca_certs=x", r"ssl_ca_certs= is for TLS: write rediss\+sent"),
        ("postgresql+asyncpg://h/d", r"not held through asyncpg: write postgresql:// \(.*psycopg"),
        ("mysql+mysqldb://h/d", r"not held through mysqldb: write mysql:// \(.*pymysql"),
        ("mysql+://u:secret@h/d", "through a driver without a name: write mysql://"),
    ],
)
@pytest.mark.parametrize("client", [leaselock.Client, leaselock.AsyncClient])
def test_a_store_that_is_named_in_another_way(
    client: Callable[[str], object], url: str, text: str
) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        client(url)
    assert "secret" not in str(caught.value)


def test_the_suggested_file_is_the_one_that_a_path_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with leaselock.Client("sqlite:///./locks.db") as one, leaselock.Client(Path("locks.db")) as two:
        one.lock("a").acquire()
        assert two.lock("a").holder() is not None


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgresql+psycopg://u:p@h/d?sslmode=require", "postgresql://u:p@h/d?sslmode=require"),
        ("PostgreSQL+psycopg_async://h/d", "postgresql://h/d"),
        ("mysql+pymysql://h/d", "mysql://h/d"),
        ("mariadb+pymysql://h/d", "mariadb://h/d"),
        ("redis+cluster://h", "redis+cluster://h"),
        ("sqlite:///a+b.db", "sqlite:///a+b.db"),
    ],
)
def test_a_url_of_sqlalchemy_names_the_same_database(url: str, plain: str) -> None:
    assert without_driver(url) == plain
    with leaselock.Client(url) as client, leaselock.Client(plain) as same:
        assert client.url == same.url


@pytest.mark.parametrize("client", [leaselock.Client, leaselock.AsyncClient])
def test_the_store_is_the_first_argument(client: Any) -> None:
    with pytest.raises(TypeError, match="'url': the first argument of Client names the store"):
        client(url="memory://")


def test_a_guard_without_parentheses() -> None:
    with leaselock.Client("memory://") as client:
        guard: Any = client.guard
        with pytest.raises(TypeError, match=r"write @client.guard\('bill'\) above bill\(\)"):

            @guard  # type: ignore[untyped-decorator]
            def bill() -> None: ...


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_no_object_of_a_client_can_be_sent_to_another_process(send: Callable[[Any], Any]) -> None:
    client = leaselock.Client("memory://")
    lock, semaphore = client.lock("a"), client.semaphore("s", 2)
    with client, lock as lease:
        objects = [client, lock, lease, semaphore, client.rwlock("b"), client.lock_all(["c"])]
        for each in [*objects, client.election("e"), leaselock.AsyncClient("memory://")]:
            with pytest.raises(TypeError, match="make a client in each process"):
                send(each)
