"""The connections of users: which driver made them, and the driver's connection below Django's."""

from __future__ import annotations

import sys
from typing import Any


def driver_of(connection: object) -> str | None:
    """The name of the DB-API package of the connection; None if it is of none."""
    for cls in type(connection).__mro__:
        top = cls.__module__.partition(".")[0]
        if hasattr(sys.modules.get(top), "paramstyle"):
            return top
    return None


def raw(target: Any) -> Any:
    """The driver's connection of a connection of Django; any other object is returned.

    Raises TransactionManagementError if a statement of the transaction has failed.
    """
    if type(target).__module__.partition(".")[0] != "django":
        return target
    if not hasattr(target, "ensure_connection"):
        return target
    target.validate_no_broken_transaction()
    target.ensure_connection()
    return target.connection
