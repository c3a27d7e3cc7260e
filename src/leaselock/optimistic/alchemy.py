"""Conditional writes through SQLAlchemy: on a Connection or a Session, in the caller's transaction.

This module is imported when an object of SQLAlchemy is passed in, so SQLAlchemy is imported by
then. Asynchronous connections and sessions run the same code through `run_sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm.attributes import set_committed_value

from leaselock.optimistic.condition import COMPARED, handle

if TYPE_CHECKING:
    from leaselock.optimistic.condition import Write

MYSQL = ("mysql", "mariadb")


def is_async(target: object) -> bool:
    """Whether it is an asynchronous connection or session."""
    return isinstance(target, AsyncConnection | AsyncSession | async_scoped_session)


def perform(target: object, write: Write) -> int:
    """Carry out the write on a blocking connection or session."""
    return handle(Alchemy(target, write), write)


async def perform_async(target: Any, write: Write) -> int:
    """Carry out the write on an asynchronous connection or session."""
    if isinstance(target, async_scoped_session):
        target = target()
    number: int = await target.run_sync(perform, write)
    return number


class Alchemy:
    """A Connection or a Session, and the table of the write as SQLAlchemy knows it."""

    # SQLAlchemy makes MySQL drivers report matched rows. That can be turned off, so it is not
    # relied on.
    unchanged_is_unmatched = False
    snapshots = False

    def __init__(self, target: Any, write: Write) -> None:
        if isinstance(target, orm.scoped_session):
            target = target()
        if not isinstance(target, sqlalchemy.Connection | orm.Session):
            raise TypeError(
                f"a Connection or a Session is wanted, not {type(target).__name__}: "
                "with engine.begin() as connection: …"
            )
        self.target = target
        self.mapper: orm.Mapper[Any] | None = None
        self.entity: Any = self._entity(write)

    def _entity(self, write: Write) -> Any:
        if isinstance(write.table, str):
            schema, _, name = write.table.rpartition(".")
            names = {*write.key, *write.values, write.column}
            return sqlalchemy.table(
                name, *map(sqlalchemy.column, sorted(names)), schema=schema or None
            )
        entity = sqlalchemy.inspect(write.table, raiseerr=False)
        if isinstance(entity, orm.Mapper):
            self.mapper = entity
            return entity.class_
        if isinstance(entity, sqlalchemy.TableClause):
            return entity
        raise TypeError(f"a table is a Table, a mapped class or a str, not {write.table!r:.80}")

    def column(self, write: Write, name: str) -> Any:
        """The column, or the mapped attribute, of that name."""
        if self.mapper is not None:
            known = name in self.mapper.column_attrs
            attribute = getattr(self.entity, name, None)
        else:
            known = name in self.entity.c
            attribute = self.entity.c.get(name)
        if not known:
            raise ValueError(f"{self.name(write)} has no column {name!r}")
        return attribute

    def update(self, write: Write) -> int:
        """Execute the UPDATE. Returns how many rows it matched."""
        column = self.column(write, write.column)
        condition = COMPARED[write.condition](column, write.limit)
        if write.fence:
            condition = sqlalchemy.or_(column.is_(None), condition)
        new = {**write.values, write.column: write.new}
        values = {self.column(write, name): value for name, value in new.items()}
        statement = sqlalchemy.update(self.entity).where(*self._key(write), condition)
        result = self._run(statement.values(values))
        self.unchanged_is_unmatched = self.snapshots = result.context.dialect.name in MYSQL
        matched: int = result.rowcount
        if matched == 1:
            self._update_session(write, new)
        return matched

    def look(self, write: Write, *, current: bool) -> tuple[object] | None:
        """The version or fence of the row; None without a row. *current*: not from a snapshot."""
        statement = sqlalchemy.select(self.column(write, write.column)).where(*self._key(write))
        if current:
            statement = statement.with_for_update(read=True)
        row = self._run(statement).first()
        return None if row is None else (row[0],)

    def _key(self, write: Write) -> list[Any]:
        return [self.column(write, name) == value for name, value in write.key.items()]

    def _run(self, statement: Any) -> Any:
        if isinstance(self.target, orm.Session):
            return self.target.execute(statement, execution_options={"synchronize_session": False})
        return self.target.execute(statement)

    def _update_session(self, write: Write, new: dict[str, object]) -> None:
        """Update the object of this row, if the session has loaded it.

        SQLAlchemy would do so itself, but also if no row was matched.
        """
        if self.mapper is None or not isinstance(self.target, orm.Session):
            return
        names = [self.mapper.get_property_by_column(c).key for c in self.mapper.primary_key]
        if set(names) != set(write.key):
            return
        identity = self.mapper.identity_key_from_primary_key(tuple(write.key[n] for n in names))
        loaded = self.target.identity_map.get(identity)
        if loaded is None:
            return
        for name, value in new.items():
            if hasattr(value, "__clause_element__") or isinstance(value, sqlalchemy.ClauseElement):
                self.target.expire(loaded, [name])
            else:
                set_committed_value(loaded, name, value)

    def name(self, write: Write) -> str:
        """The name of the table, for messages."""
        if isinstance(write.table, str):
            return write.table
        table: Any = self.entity if self.mapper is None else self.mapper.local_table
        return str(table.fullname)
