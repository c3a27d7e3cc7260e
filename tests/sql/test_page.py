"""The programs of docs/how-to/optimistic.md run as they are printed, on every database."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import leaselock

if TYPE_CHECKING:
    from tests.sql.places import Database

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "optimistic.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def running(program: str, **given: Any) -> dict[str, Any]:
    """The names that the program, which contains this text, has at its end."""
    (chosen,) = (text for text in PROGRAMS if program in text)
    namespace: dict[str, Any] = {"__name__": "page", **given}
    exec(compile(chosen, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


def test_no_program_is_left_out() -> None:
    assert len(PROGRAMS) == 4


def test_a_version_column(database: Database) -> None:
    engine = database.engine()
    withdraw = running("def withdraw", engine=engine)["withdraw"]
    withdraw(5, 10)
    with pytest.raises(ValueError, match="not enough money"):
        withdraw(5, 1000)
    engine.dispose()
    assert database.row() == (90, 2, None)


def test_version_id_col(database: Database) -> None:
    engine = database.engine()
    running("def deposit", engine=engine)["deposit"](5, 10)
    engine.dispose()
    assert database.row() == (110, 2, None)


def test_a_fenced_write(database: Database) -> None:
    engine = database.engine()
    with leaselock.Client("memory://") as client:
        token = running("fenced_write(", engine=engine, client=client)["lease"].token
    engine.dispose()
    assert database.row() == (42, 1, token)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_lock_inside_a_transaction(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    engine, async_engine = database.engine(), create_async_engine(database.async_url)
    names = running("def pay_async", engine=engine, async_engine=async_engine)
    names["pay"](5, 10)
    engine.dispose()

    async def main() -> None:
        await names["pay_async"](5, 10)
        await async_engine.dispose()

    asyncio.run(main())
    assert database.row() == (80, 1, None)
