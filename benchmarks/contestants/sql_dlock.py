"""sqlalchemy-dlock: a session lock without a token, a renewal, or word of a loss."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}


class Dlock:
    """On one connection of an engine, as its documentation shows it."""

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
        """Take it."""
        self.lock = self.create(self.connection, "bench")
        # Its wait without end is one that MariaDB does not know.
        assert self.lock.acquire(timeout=60)

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """End the session."""
        self.connection.close()
        self.connection.engine.dispose()
