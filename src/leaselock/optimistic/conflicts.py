"""Which errors mean that a transaction had a conflict, so that a repetition may succeed.

Invariant: a transaction with a conflict was not applied. Errors are recognized by their codes, so
no driver is imported.

    SQLSTATE 40001, 40P01   serialization failure, deadlock: PostgreSQL and its relatives, MySQL
    MySQL 1213, 1205, 1020  deadlock, lock wait timeout, record has changed since last read
    SQLite 5, 6             busy or locked: another writer was first
"""

from __future__ import annotations

from leaselock.errors import StaleVersion

STATES = {"40001", "40P01"}
MYSQL_CODES = {1213, 1205, 1020}
SQLITE_CODES = {5, 6}
MYSQL_MODULES = {"pymysql", "MySQLdb", "mysql", "mariadb", "aiomysql", "asyncmy"}


def is_conflict(error: BaseException) -> bool:
    """Whether the work may be repeated after this error."""
    if isinstance(error, StaleVersion) or _is_stale_data(error):
        return True
    # SQLAlchemy keeps the error of the driver in `orig`.
    cause = getattr(error, "orig", None) or error
    return _state(cause) in STATES or _is_mysql(cause) or _is_sqlite(cause)


def _is_stale_data(error: BaseException) -> bool:
    """Whether it was raised by `version_id_col` of SQLAlchemy."""
    return any(
        cls.__name__ == "StaleDataError" and cls.__module__.startswith("sqlalchemy.")
        for cls in type(error).__mro__
    )


def _state(error: BaseException) -> object:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _is_mysql(error: BaseException) -> bool:
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return bool(modules & MYSQL_MODULES and error.args and error.args[0] in MYSQL_CODES)


def _is_sqlite(error: BaseException) -> bool:
    # The lower byte is the primary code; the rest extends it, as in SQLITE_BUSY_SNAPSHOT.
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in SQLITE_CODES
