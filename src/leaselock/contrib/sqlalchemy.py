"""Fenced rows for SQLAlchemy's ORM: `FencedMixin` refuses the late write of a former holder.

    class Account(FencedMixin, Base):
        __tablename__ = "account"
        ...

    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.get(Account, 7).balance += 10
        session.commit()

Each UPDATE and DELETE of the row compares and writes the fencing token in one statement, by
SQLAlchemy's own version counter. FenceRejected is raised if a newer holder has written the row, and
StaleDataError if another session has written it since this one read it. Statements for many rows,
such as `session.execute(update(Account))`, are not compared.

`refuse_in_transactions(client, Session)` has the client refuse locks that would be released before
the commit.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, event, inspect
from sqlalchemy.orm import (
    Mapped,
    Session,
    SessionTransaction,
    SessionTransactionOrigin,
    mapped_column,
    object_session,
)

from leaselock import FenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.orm import Mapper, scoped_session, sessionmaker

    from leaselock import AsyncClient, AsyncLease, Client, Lease

_begun: ContextVar[tuple[weakref.ref[SessionTransaction], ...]] = ContextVar(
    "leaselock_transactions", default=()
)
_token: ContextVar[int | None] = ContextVar("leaselock_fence", default=None)


@contextmanager
def fencing(lease: Lease | AsyncLease) -> Iterator[None]:
    """Write fenced rows with the token of *lease*, in this thread or task, for a block."""
    lease.ensure()
    before = _token.set(lease.token)
    try:
        yield
    finally:
        _token.reset(before)


def refuse_in_transactions(
    client: Client | AsyncClient,
    sessions: type[Session] | sessionmaker[Any] | scoped_session[Any] = Session,
) -> None:
    """Have *client* raise RuntimeError for a lock that is acquired inside `with session.begin()` of
    one of these *sessions* in the same thread or task: it would be released before the commit, and
    the next holder would read the rows as they were.

    Write ``with client.lock(name), session.begin():``, or take `leaselock.sql.lock` inside the
    transaction. A transaction that a session has begun by itself does not count: only the program
    knows whether it commits before the lock ends. Of an AsyncSession, give the
    `sync_session_class`.

    >>> refuse_in_transactions(client, Session)
    """
    event.listen(sessions, "after_transaction_create", _note_begin)
    client._core.check_acquires(_check)


def _note_begin(_session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None and transaction.origin is SessionTransactionOrigin.BEGIN:
        _begun.set((*_open(), weakref.ref(transaction)))


def _open() -> list[weakref.ref[SessionTransaction]]:
    """The transactions that this thread or task has begun, and that have not ended."""
    return [each for each in _begun.get() if (begun := each()) is not None and begun.is_active]


def _check() -> None:
    if _open():
        raise RuntimeError(
            "this lock would be acquired inside `with session.begin()` and released before the "
            "commit, so that the next holder would not see what this one has written: write "
            "`with client.lock(name), session.begin():`, or take leaselock.sql.lock(session, name) "
            "inside the transaction"
        )


class FencedMixin:
    """Adds the column *fence* to a mapped class, and compares it with each write."""

    fence: Mapped[int] = mapped_column(BigInteger)


@event.listens_for(FencedMixin, "after_mapper_constructed", propagate=True)
def _count_versions(mapper: Mapper[Any], cls: type) -> None:
    """Make *fence* the version counter. Not by `__mapper_args__`, which a class may have itself."""
    fence = mapper.columns["fence"]
    if mapper.version_id_col is None:
        mapper.version_id_col, mapper.version_id_generator = fence, False  # `_write` sets it
    elif mapper.version_id_col is not fence:
        raise TypeError(f"{cls.__name__} is fenced, and has another version counter, too")


@event.listens_for(FencedMixin, "before_update", propagate=True)
def _update(mapper: Mapper[Any], connection: Connection, row: FencedMixin) -> None:
    session = object_session(row)
    # This event is sent for rows without changes, too, for which there is no UPDATE.
    if session is None or session.is_modified(row, include_collections=False):
        _write(mapper, connection, row)


@event.listens_for(FencedMixin, "before_insert", propagate=True)
@event.listens_for(FencedMixin, "before_delete", propagate=True)
def _write(mapper: Mapper[Any], _connection: Connection, row: FencedMixin) -> None:
    token = _token.get()
    if token is None:
        raise RuntimeError(
            f"a row of {mapper.local_table} is written outside `with fencing(lease)`"
        )
    # The one that this session has read; the statement compares it with the one in the table.
    stored: int | None = inspect(row).committed_state.get("fence", row.fence)
    if stored is not None and token < stored:
        key = dict(
            zip(
                (c.name for c in mapper.primary_key),
                mapper.primary_key_from_instance(row),
                strict=True,
            )
        )
        raise FenceRejected(str(mapper.local_table), key, token, stored)
    row.fence = token
