"""What is run again, how often, and when no more; in both colours."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from tests.sql.places import Account, async_session, session
from tests.sql.test_alchemy import Versioned

from leaselock.errors import RowNotFound, StaleVersion
from leaselock.optimistic import compare_and_set, retry_on_conflict
from leaselock.optimistic.retry import Tries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.sql.places import Database

ROW: dict[str, object] = {"id": 5}
STALE = StaleVersion("account", ROW, 1, 2)


def run(colour: str, times_lost: int, error: Exception = STALE, **rules: Any) -> list[int]:
    """The calls of a function that fails *times_lost* times before it succeeds."""
    calls: list[int] = []

    @retry_on_conflict(**rules)
    def work(step: int) -> list[int]:
        calls.append(step)
        if len(calls) <= times_lost:
            raise error
        return calls

    @retry_on_conflict(**rules)
    async def work_async(step: int) -> list[int]:
        await asyncio.sleep(0)
        calls.append(step)
        if len(calls) <= times_lost:
            raise error
        return calls

    try:
        return work(step=1) if colour == "plain" else asyncio.run(work_async(step=1))
    except type(error):
        assert len(calls) <= times_lost
        raise


@pytest.fixture(params=["plain", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    """Both kinds of functions."""
    name: str = request.param
    return name


def test_it_is_run_again_until_it_succeeds(colour: str) -> None:
    reported: list[tuple[Exception, int]] = []
    assert run(colour, 0) == [1]
    assert run(colour, 3, on_conflict=lambda *conflict: reported.append(conflict)) == [1] * 4
    assert reported == [(STALE, 1), (STALE, 2), (STALE, 3)]


def test_it_is_given_up_after_so_many_attempts(colour: str) -> None:
    error = StaleVersion("account", ROW, 1, 2)
    with pytest.raises(StaleVersion) as raised:
        run(colour, 5, error, attempts=2)
    assert raised.value is error
    assert error.__notes__[0].startswith("leaselock: given up after 2 attempts in 0.0")


def test_it_is_given_up_after_some_time(colour: str) -> None:
    error = StaleVersion("account", ROW, 1, 2)
    with pytest.raises(StaleVersion):
        run(colour, 999, error, attempts=None, timeout=0.05)
    assert "leaselock: given up after" in error.__notes__[0]
    with pytest.raises(StaleVersion):
        run(colour, 999, STALE, timeout=0)


def test_pauses_grow_at_random_up_to_a_second() -> None:
    def lengths() -> list[float]:
        tries = Tries(None, None, None)
        return [tries.pause_after(STALE) or 0.0 for _ in range(20)]

    several = [lengths() for _ in range(50)]
    for number, most in enumerate([0.005, 0.01, 0.02, 0.04, 0.08]):
        drawn = {found[number] for found in several}
        assert all(most / 10 <= length <= most for length in drawn)
        assert len(drawn) > 10
    assert all(0.1 <= found[-1] <= 1.0 for found in several)


def test_other_errors_are_raised_at_once(colour: str) -> None:
    for error in (RowNotFound("account", ROW), ValueError("its own")):
        with pytest.raises(type(error)) as raised:
            run(colour, 1, error)
        assert raised.value is error
        assert not hasattr(error, "__notes__")


def test_the_function_stays_what_it_was() -> None:
    @retry_on_conflict
    def plain(a: int, *, b: str = "b") -> str:
        """Say what it does."""
        return b * a

    @retry_on_conflict
    async def coloured() -> int:
        return 1

    assert plain(2) == "bb"
    assert (plain.__name__, plain.__doc__) == ("plain", "Say what it does.")
    assert list(inspect.signature(plain).parameters) == ["a", "b"]
    assert inspect.iscoroutinefunction(coloured)
    assert not inspect.iscoroutinefunction(plain)


def test_mistakes_are_found_when_it_is_decorated() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    functions: list[Callable[..., Any]] = [generator, async_generator]
    for function in functions:
        with pytest.raises(TypeError, match="a generator gives out results before it fails"):
            retry_on_conflict(function)
    attempts: Any
    for attempts in (0, -1, True, 1.5, "3"):
        with pytest.raises(ValueError, match="attempts is 1 or more, or None"):
            retry_on_conflict(attempts=attempts)
    with pytest.raises(ValueError, match="timeout is from 0"):
        retry_on_conflict(timeout=-1.0)


def test_a_cancelled_task_is_not_run_again() -> None:
    calls = []

    @retry_on_conflict(attempts=None)
    async def work(second: asyncio.Event) -> None:
        calls.append(1)
        if len(calls) > 1:
            second.set()
            await asyncio.Event().wait()
        raise STALE

    async def main() -> None:
        second = asyncio.Event()
        task = asyncio.ensure_future(work(second))
        await second.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(calls) == 2


def overtaken(database: Database, calls: list[int]) -> None:
    """Let another client write the row, the first time."""
    calls.append(1)
    if len(calls) == 1:
        database.do("UPDATE account SET version = version + 1, balance = 50 WHERE id = 5")


def test_a_transaction_is_repeated_from_its_first_read(database: Database) -> None:
    calls: list[int] = []

    @retry_on_conflict
    def withdraw(amount: int) -> int:
        with database.plain() as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT balance, version FROM account WHERE id = 5")
            balance, version = cursor.fetchone()
            overtaken(database, calls)
            new = {"balance": balance - amount}
            number: int = compare_and_set(connection, "account", ROW, new, expected=version)
        return number

    assert withdraw(10) == 3
    assert len(calls) == 2
    assert database.row() == (40, 3, None)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_transaction_of_asyncio_is_repeated(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    calls: list[int] = []

    @retry_on_conflict
    async def withdraw(amount: int) -> None:
        async with async_session(database) as opened:
            row = await opened.get(Account, 5)
            overtaken(database, calls)
            new: dict[str, object] = {"balance": row.balance - amount}
            await compare_and_set(opened, Account, ROW, new, expected=row.version)

    asyncio.run(withdraw(10))
    assert len(calls) == 2
    assert database.row() == (40, 3, None)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_what_version_id_col_raises_is_repeated(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    calls: list[int] = []

    @retry_on_conflict
    def withdraw(amount: int) -> None:
        with session(database) as opened:
            row = opened.get(Versioned, 5)
            row.money -= amount
            overtaken(database, calls)

    withdraw(10)
    assert len(calls) == 2
    assert database.row() == (40, 3, None)
