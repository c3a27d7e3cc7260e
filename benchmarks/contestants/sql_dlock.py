"""sqlalchemy-dlock: a session lock without a token, and without notice of loss."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


class Dlock:
    """A lock on one connection of an engine, as the documentation shows it."""

    version: ClassVar[str] = version("sqlalchemy-dlock")
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        scheme, _, rest = Path(folder, "url").read_text().partition(":")
        engine = import_module("sqlalchemy").create_engine(f"{DRIVERS[scheme]}:{rest}")
        self.connection: Any = engine.connect()
        self.create: Any = import_module("sqlalchemy_dlock").create_sadlock
        self.lock: Any = None

    def acquire(self) -> None:
        """Acquire the lock."""
        self.lock = self.create(self.connection, "bench")
        # MariaDB does not support the unlimited wait of the library.
        assert self.lock.acquire(timeout=60)

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        self.connection.engine.dispose()
