"""Fenced rows of SQLAlchemy's ORM, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

import leaselock
from leaselock.contrib.sqlalchemy import FencedMixin, fencing, refuse_in_transactions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine
    from testkit.servers.postgres import Postgres


class Base(DeclarativeBase):
    """The tables of this test."""


# A class with arguments of its own for its mapper, which the mixin must not take for its own.
KINDS = {"polymorphic_on": "kind", "polymorphic_identity": "account"}
SAVINGS = {"polymorphic_identity": "savings"}


class Account(FencedMixin, Base):
    """A table whose late writes are refused."""

    __tablename__ = "fenced_account"

    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int] = mapped_column(default=0)
    kind: Mapped[str] = mapped_column(default="account")
    __mapper_args__ = KINDS


class Savings(Account):
    """A kind of account in the same table."""

    __mapper_args__ = SAVINGS


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/accounts.db"
    else:
        url = request.getfixturevalue("postgres").url.replace("://", "+psycopg://")
    made = create_engine(url)
    Base.metadata.create_all(made)
    yield made
    Base.metadata.drop_all(made)
    made.dispose()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[leaselock.Client]:
    with leaselock.Client(tmp_path / "locks.db") as made:
        yield made


def deposit(engine: Engine, number: int, amount: int) -> int:
    """Add to a balance, and return the fence of the row."""
    with Session(engine) as session:
        account = session.get_one(Account, number)
        account.balance += amount
        session.commit()
        return account.fence


def test_each_write_bears_the_token_of_its_lease(engine: Engine, client: leaselock.Client) -> None:
    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.add(Account(id=7))
        session.commit()
        assert deposit(engine, 7, 10) == lease.token
        assert deposit(engine, 7, 10) == lease.token  # twice under the same lease
    with client.lock("account:7") as later, fencing(later):
        assert lease.token < deposit(engine, 7, 1) == later.token
    with Session(engine) as session:
        assert session.get_one(Account, 7).balance == 21


def test_a_former_holder_is_refused(engine: Engine, client: leaselock.Client) -> None:
    with client.lock("account:7") as former:
        pass
    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.add(Account(id=7))
        session.commit()
        # The former holder, whose lease was valid when its block began, and is not any more.
        with pytest.raises(leaselock.NotHeld), fencing(former):
            pass


@pytest.mark.parametrize("delete", [False, True], ids=["update", "delete"])
def test_a_late_write_is_refused(engine: Engine, client: leaselock.Client, *, delete: bool) -> None:
    def write(session: Session) -> None:
        account = session.get_one(Account, 7)
        if delete:
            session.delete(account)
        else:
            account.balance = -1
        session.commit()

    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.add(Account(id=7))
        session.commit()
    frozen = client.lock("account:7").acquire()
    with fencing(frozen):
        with Session(engine) as session:
            read_before = session.get_one(Account, 7)
            session.expunge(read_before)
        with leaselock.Client(client.url) as other:
            other.break_lock("account:7")
            with other.lock("account:7") as newer, fencing(newer):
                deposit(engine, 7, 5)
        # It reads the row of the newer holder, and must not write it.
        with Session(engine) as session, pytest.raises(leaselock.FenceRejected, match="7"):
            write(session)
        # It has read the row before, so the statement finds another token.
        with Session(engine) as session:
            session.add(read_before)
            if delete:
                session.delete(read_before)
            else:
                read_before.balance = -1
            with pytest.raises(StaleDataError):
                session.commit()
    with pytest.raises(leaselock.LeaseLost):
        frozen.release()
    with Session(engine) as session:
        assert session.get_one(Account, 7).balance == 5


def test_a_class_with_a_version_counter_of_its_own_is_refused() -> None:
    class Own(DeclarativeBase):
        """Tables of this test alone."""

    with pytest.raises(TypeError, match="another version counter"):

        class Counted(FencedMixin, Own):
            __tablename__ = "counted"
            id: Mapped[int] = mapped_column(primary_key=True)
            version: Mapped[int] = mapped_column()
            __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


def test_a_holder_may_delete(engine: Engine, client: leaselock.Client) -> None:
    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.add(Savings(id=7))
        session.commit()
        session.delete(session.get_one(Savings, 7))
        session.commit()
        assert session.get(Account, 7) is None


def test_a_write_without_a_lease_is_an_error(engine: Engine, client: leaselock.Client) -> None:
    with Session(engine) as session:
        session.add(Account(id=7))
        with pytest.raises(RuntimeError, match="fencing"):
            session.flush()
    with client.lock("account:7") as lease, fencing(lease), Session(engine) as session:
        session.add(Account(id=7))
        session.commit()
    with Session(engine) as session:
        account = session.get_one(Account, 7)
        account.balance = account.balance  # no change, so nothing is written
        session.commit()
        account.balance += 1
        with pytest.raises(RuntimeError, match="fenced_account"):
            session.commit()


def test_a_lock_inside_a_transaction_is_refused(client: leaselock.Client) -> None:
    made = create_engine("sqlite://")
    sessions = sessionmaker(made)
    refuse_in_transactions(client, sessions)
    for end in ("commit", "rollback"):
        with sessions() as session:
            with client.lock("stock"), session.begin():
                with client.lock("stock"):  # held until after the commit
                    pass
                with pytest.raises(RuntimeError, match="released before the commit"):
                    client.lock("other").acquire()
                if end == "rollback":
                    session.rollback()
            client.lock("stock").acquire().release()
        with sessions.begin(), pytest.raises(RuntimeError, match=r"client.lock\(name\), session"):
            client.lock("stock").acquire()
    assert client.locks() == []
    made.dispose()


def test_a_transaction_of_an_async_session_is_seen(postgres: Postgres) -> None:
    class OurSession(Session):
        pass

    class OurAsyncSession(AsyncSession):
        sync_session_class = OurSession

    async def play() -> None:
        made = create_async_engine(postgres.url.replace("://", "+psycopg://"))
        async with leaselock.AsyncClient("memory://alchemy") as client:
            refuse_in_transactions(client, OurSession)
            async with OurAsyncSession(made) as session:
                async with client.lock("stock"), session.begin():
                    with pytest.raises(RuntimeError, match="released before the commit"):
                        await client.lock("other").acquire()
                await (await client.lock("other").acquire()).release()
        await made.dispose()

    asyncio.run(play())
