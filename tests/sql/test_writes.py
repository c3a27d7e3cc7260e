"""What conditional writes promise, on every database and by every route."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from leaselock.errors import FenceRejected, LeaselockError, NotApplied, RowNotFound, StaleVersion

if TYPE_CHECKING:
    from tests.sql.places import Database, Route

MISSING: dict[str, object] = {"id": 7}


def test_the_version_read_is_replaced(database: Database, route: Route) -> None:
    assert route.compare(database, {"balance": 90}, expected=1) == 2
    assert route.compare(database, {}, expected=2) == 3
    assert database.row() == (90, 3, None)
    assert database.row(key=6) == (100, 1, None)


def test_a_stale_version_is_refused_and_nothing_written(database: Database, route: Route) -> None:
    route.compare(database, {"balance": 90}, expected=1)
    with pytest.raises(StaleVersion) as raised:
        route.compare(database, {"balance": 80}, expected=1)
    error = raised.value
    assert (error.table, error.key, error.expected, error.found) == ("account", {"id": 5}, 1, 2)
    assert str(error) == (
        "account {'id': 5} has version 2, not 1: it was changed after it was read"
    )
    assert database.row() == (90, 2, None)


def test_a_missing_row_is_another_error(database: Database, route: Route) -> None:
    with pytest.raises(RowNotFound, match=r"account has no row \{'id': 7\}"):
        route.compare(database, {"balance": 1}, expected=1, key=MISSING)


def test_a_version_of_null_is_no_race(database: Database, route: Route) -> None:
    database.do("UPDATE account SET version = NULL")
    with pytest.raises(NotApplied, match=r"version is NULL.*NOT NULL DEFAULT 0"):
        route.compare(database, {"balance": 1}, expected=1)
    assert database.row() == (100, None, None)


def test_a_key_that_is_none_is_found_out(database: Database, route: Route) -> None:
    # "version" is the same in both rows. The error ends the transaction, which undoes it.
    with pytest.raises(ValueError, match="2 rows matched and were changed, roll back"):
        route.compare(database, {"owner": "eve"}, expected=1, key={"balance": 100})
    assert database.row("owner") == ("ann",)


def test_a_fence_rises_and_never_falls(database: Database, route: Route) -> None:
    assert route.fence(database, {"balance": 1}, token=33) == 33  # NULL until then
    assert route.fence(database, {"balance": 2}, token=34) == 34
    with pytest.raises(FenceRejected) as raised:
        route.fence(database, {"balance": 3}, token=33)
    assert (raised.value.token, raised.value.found) == (33, 34)
    assert "refuses token 33: a newer holder, with token 34, has written it" in str(raised.value)
    assert database.row() == (2, 1, 34)


def test_a_holder_writes_as_often_as_it_likes(database: Database, route: Route) -> None:
    for balance in (1, 2, 2, 2):  # the last ones change nothing, and are no rejection for that
        assert route.fence(database, {"balance": balance}, token=34) == 34
    assert route.fence(database, {}, token=35) == 35
    assert database.row() == (2, 1, 35)


def test_what_may_happen_once_happens_once(database: Database, route: Route) -> None:
    route.fence(database, {"balance": 1}, token=34, once=True)
    with pytest.raises(FenceRejected, match="was already written with token 34"):
        route.fence(database, {"balance": 2}, token=34, once=True)
    with pytest.raises(FenceRejected, match="refuses token 33"):
        route.fence(database, {"balance": 2}, token=33, once=True)
    assert database.row() == (1, 1, 34)


def test_other_columns_may_have_the_number(database: Database, route: Route) -> None:
    assert route.fence(database, {"owner": "eve"}, token=34, column="version") == 34
    assert database.row("owner, version, fence") == ("eve", 34, None)


def test_the_errors_can_be_sent_to_another_process() -> None:
    key: dict[str, object] = {"id": 5}
    errors: list[LeaselockError] = [
        StaleVersion("account", key, 1, 2),
        FenceRejected("account", key, 1, 2),
        RowNotFound("account", key),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert isinstance(errors[2], LookupError)
