"""python-dynamodb-lock, with its defaults: a lease of 30 s, renewed every 5 s."""

from __future__ import annotations

import logging
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

TABLE = "python-dynamodb-lock"
# Its own limit is a lease and a try, 35 s, which eight processes without a queue exceed.
PATIENCE = timedelta(minutes=5)


class DynamoDBLock:
    """One client and its lock. A waiter tries every 5 s, and has no place in a queue; no token."""

    version: ClassVar[str] = version("python-dynamodb-lock")
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        url = urlsplit(Path(folder, "url").read_text())
        options = {name: values[0] for name, values in parse_qs(url.query).items()}
        words: dict[str, Any] = {
            "region_name": options["region"],
            "endpoint_url": options["endpoint"],
            "aws_access_key_id": unquote(url.username or ""),
            "aws_secret_access_key": unquote(url.password or ""),
        }
        logging.getLogger("python_dynamodb_lock").setLevel(logging.ERROR)
        client = boto3.client("dynamodb", **words)
        if TABLE not in client.list_tables()["TableNames"]:
            DynamoDBLockClient.create_dynamodb_table(client, table_name=TABLE)
        self.client = DynamoDBLockClient(boto3.resource("dynamodb", **words), table_name=TABLE)
        self.lock: Any = None

    def acquire(self) -> None:
        """Acquire the lock."""
        self.lock = self.client.acquire_lock("bench", sort_key="-", retry_timeout=PATIENCE)

    def release(self) -> None:
        """Release the lock."""
        self.lock.release(best_effort=False)

    def close(self) -> None:
        """End its threads."""
        self.client.close()
