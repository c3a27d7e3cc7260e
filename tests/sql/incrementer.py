"""One of many processes that add one to the same row, without a lock: it prints its conflicts.

python incrementer.py KIND URL TIMES     begins at the first line that it reads
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from leaselock.optimistic import compare_and_set, retry_on_conflict


def connect(kind: str, url: str) -> Any:
    """By the driver alone: twenty processes are to begin at once."""
    if kind == "sqlite":
        return import_module("sqlite3").connect(url.removeprefix("sqlite:///"), timeout=10.0)
    if kind == "postgres":
        return import_module("psycopg").connect(url.replace("+psycopg", ""))
    parts = urlsplit(url)
    return import_module("pymysql").connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password,
        database=parts.path.strip("/"),
    )


def main(kind: str, url: str, times: int) -> None:
    """Add one, that many times."""
    connection = connect(kind, url)
    conflicts = []

    @retry_on_conflict(attempts=None, on_conflict=lambda *conflict: conflicts.append(conflict))
    def increment() -> None:
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT balance, version FROM account WHERE id = 5")
            balance, version = cursor.fetchone()
            new = {"balance": balance + 1}
            compare_and_set(connection, "account", {"id": 5}, new, expected=version)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(times):
        increment()
    connection.close()
    print(len(conflicts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
