"""The client libraries of the stores, and which versions of each are supported.

This table is the only one: a library is checked against it when a store is opened, the extras in
`pyproject.toml` have the same bounds, and `scripts/libraries` runs the conformance suite at both
ends.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from types import ModuleType


class Library(NamedTuple):
    """One client library."""

    project: str
    """Its name on the package index."""
    lowest: str
    """The lowest supported version."""
    newest: str
    """The newest supported version: each release that begins with it, such as 8.4 with 8."""

    @property
    def requirement(self) -> str:
        """The supported versions, as pip reads them."""
        *head, last = numbers(self.newest)
        return f"{self.project}>={self.lowest},<{'.'.join(map(str, [*head, last + 1]))}"

    def supports(self, version: str) -> bool:
        """Whether *version* is one of them."""
        installed, newest = numbers(version), numbers(self.newest)
        return numbers(self.lowest) <= installed and installed[: len(newest)] <= newest


# By the package that is imported.
LIBRARIES = {
    "redis": Library("redis", "5.3", "8"),
    "hiredis": Library("hiredis", "3.2", "3"),
    "valkey": Library("valkey", "6.0", "6"),
    "kazoo": Library("kazoo", "2.11", "2"),
    "psycopg": Library("psycopg", "3.2", "3"),
    "pymysql": Library("PyMySQL", "1.2", "1"),
    "sqlalchemy": Library("SQLAlchemy", "2.0", "2"),
    "yaml": Library("PyYAML", "6.0.1", "6"),
    "boto3": Library("boto3", "1.40", "1"),
}


def numbers(version: str) -> list[int]:
    """The numbers at the beginning of a version, to be compared: [8, 1] of "8.1" and "8.1b2"."""
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in match[0].split(".")] if match else [0]


def library(module: str, extra: str) -> ModuleType:
    """A module of a client library. ImportError, with the command that installs the right one,
    where the library is missing or its version is not supported.
    """
    check_version(module.partition(".")[0], extra)
    return import_module(module)


@cache
def check_version(package: str, extra: str = "") -> None:
    """ImportError if the installed version of *package* is not supported, or there is none."""
    supported = LIBRARIES[package]
    try:
        module = import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        from leaselock._extras import install_command

        command = install_command(extra, supported.requirement)
        raise ImportError(f"{package} is not installed: {command}") from error
    # PyMySQL says in `__version__` which version of mysqlclient it stands in for.
    version = str(getattr(module, "VERSION_STRING", None) or getattr(module, "__version__", "?"))
    if not supported.supports(version):
        raise ImportError(
            f"{supported.project} {version} is installed, and leaselock supports "
            f"{supported.lowest} to {supported.newest}.x: pip install '{supported.requirement}'"
        )
