"""Records that cannot be read: how rows are checked, and what a client does with such a lock."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._backends.memory.store import MemoryRow, Table
from leaselock._backends.sql.session_records import SessionRow
from leaselock._core.client.inspection import lock_info
from leaselock._core.contract.backend import (
    Acquire,
    Claim,
    Doctor,
    Finding,
    Grant,
    HoldRecord,
    HoldState,
    Inspect,
    LockState,
    Renew,
    Unreadable,
    Watch,
    Watched,
)
from leaselock._core.rows import rules
from leaselock._core.rows.records import certainly_ended, checked, is_text, readable_text
from leaselock.errors import NotApplied

HOLD = HoldRecord("c:1", "c", "either", 7, 50.0, "{}", 1.0)
CLAIM = Claim("a", "c:1", "c", 30.0, "{}", 0.0)
WRONG: dict[str, tuple[Any, ...]] = {
    "id": (None, b"c:1", 1),
    "client": ("", "../c", None, "é"),
    "metadata": (None, b"{}", "\udcff"),
    "since": (None, "1", float("inf"), float("nan"), 1e300),
    "mode": (None, "", "both", 1, []),
    "permits": (0, -1, None, 1.5, 2**63),
}
WRONG_HOLD: dict[str, tuple[Any, ...]] = {
    **WRONG,
    "lifetime": (None, "", "long", []),
    "token": (-1, None, "7", 2**63, True),
    "expires": (None, "50", float("inf")),
    "step": (-1, None),
    "free_from": (None, "x"),
}
WRONG_CLAIM: dict[str, tuple[Any, ...]] = {
    **WRONG,
    "lease": (None, "x", -1.0, True),
    "last_seen": ("x",),
}


@pytest.mark.parametrize(("record", "wrong"), [(HOLD, WRONG_HOLD), (CLAIM, WRONG_CLAIM)])
def test_a_field_without_a_value_that_it_may_have_is_named(record: Any, wrong: Any) -> None:
    assert checked(record, "the row", "drop it") is record
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(Unreadable, match=f"the row cannot be read: {field} is .*drop it"):
                checked(record._replace(**{field: value}), "the row", "drop it")


def test_the_client_of_a_record_is_that_of_its_id() -> None:
    """Otherwise its client would be taken for dead, and the lock be granted."""
    cooling = HOLD._replace(id="released:c:1")
    assert checked(cooling, "the row", "drop it") is cooling
    with pytest.raises(Unreadable, match="its client is 'd', and its id 'c:1'"):
        checked(HOLD._replace(client="d"), "the row", "drop it")


def test_what_cannot_be_read_ends_with_its_lease() -> None:
    odd: Any = HOLD._replace(mode="both")  # type: ignore[arg-type]
    assert not certainly_ended(odd, 49.0)
    assert certainly_ended(odd, 50.0)
    assert not certainly_ended(odd._replace(free_from=60.0), 50.0)
    for lifetime in ("client", "long"):
        assert not certainly_ended(odd._replace(lifetime=lifetime), 50.0)
    assert not certainly_ended(odd._replace(expires="soon"), 50.0)


def test_bytes_that_are_not_utf_8_are_shown() -> None:
    assert is_text("naïve")
    assert not is_text(b"naive".decode() + "\udcff")
    assert readable_text("a\udcff") == "a\\udcff"
    assert readable_text(b"\xff") == "b'\\xff'"


def test_metadata_that_cannot_be_read_is_a_reason() -> None:
    held = LockState("a", (HoldState(HOLD._replace(metadata="junk"), 1.0),), ())
    waiting = LockState("a", (), (CLAIM._replace(metadata="junk"),))
    for state, kind in ((held, "holder"), (waiting, "waiter")):
        found = lock_info(state).unreadable
        assert found == f"the metadata of a {kind} cannot be read: it is described as 'junk'"


@pytest.mark.parametrize("number", ["-1", "9" * 4000, "1e300", "1e999"])
def test_a_number_that_no_process_has_is_not_shown(number: str) -> None:
    metadata = f'{{"host": "h", "pid": {number}, "thread": "t"}}'
    hold = HoldState(HOLD._replace(metadata=metadata), 1.0)
    (holder,) = lock_info(LockState("a", (hold,), ())).holders
    assert (holder.host, holder.pid) == ("unknown host", 0)
    assert len(holder.thread) < 100


class Damaged:
    """A store in which the record of the lock cannot be read, or a part of it cannot."""

    def __init__(self, service: Any, state: Any) -> None:
        self.registry = service.context(None).registry
        self.request = self.registry.backend.request
        self.state = state
        self.registry.backend.request = self._request

    async def _request(self, request: Any, until: float) -> Any:
        if isinstance(request, Inspect):
            if self.state is None:
                raise NotApplied("no right to list", "denied")
            return (self.state,)
        if isinstance(request, Watch):
            return Watched(self.state, 1.0)
        if isinstance(request, Doctor):
            return (Finding("ok", "it answers"),)
        return await self.request(request, until)


def damaged(state: LockState | None) -> tuple[Fixture, Any, Any]:
    """A client of a store with this lock."""
    fixture = Fixture()
    machine, service = fixture.client()
    Damaged(service, state)
    return fixture, machine, service


def test_an_unreadable_lock_is_neither_free_nor_broken() -> None:
    fixture, machine, service = damaged(LockState("a", (), (), unreadable="the row is junk"))
    mutex = mutex_of(service)
    calls: list[Any] = [mutex.holder(), mutex.holders(), mutex.waiters(), mutex.available()]
    calls += [service.break_lock("a", None), service.adopt("a", 1), mutex.watch().next()]
    for call in calls:
        with pytest.raises(NotApplied, match=r"'a'.*the row is junk") as caught:
            fixture.do(machine, call)
        assert type(caught.value) is NotApplied
        assert caught.value.reason == "misconfigured"
    (lock,) = fixture.do(machine, service.locks("*", False))
    assert lock.unreadable == "the row is junk"
    (_, finding) = fixture.do(machine, service.doctor())
    assert finding.level == "fail"
    assert "'a' cannot be read: the row is junk" in finding.what


def test_what_can_be_read_of_a_lock_is_used() -> None:
    hold = HoldState(HOLD, 10.0)
    fixture, machine, service = damaged(LockState("a", (hold,), (), unreadable="a waiter is junk"))
    mutex = mutex_of(service)
    holder = fixture.do(machine, mutex.holder())
    assert holder.token == 7
    assert fixture.do(machine, mutex.holders()) == [holder]
    assert fixture.do(machine, mutex.watch().next()).holder == holder
    with pytest.raises(NotApplied, match="a waiter is junk"):
        fixture.do(machine, mutex.waiters())


def test_doctor_says_that_the_locks_could_not_be_listed() -> None:
    fixture, machine, service = damaged(None)
    findings = fixture.do(machine, service.doctor())
    assert [finding.level for finding in findings] == ["ok", "skip"]


def test_an_unreadable_row_ends_no_request_for_others() -> None:
    table = Table(lambda: 1.0, lambda: 1, lambda client: True, lambda *_: None, lambda *_: None)
    good, bad = CLAIM, CLAIM._replace(name="b", id="c:2")
    assert isinstance(table.answer("c", Acquire(good, False)), Grant)

    def row_of(name: str) -> MemoryRow:
        if name == "b":
            raise Unreadable("the row of b is junk")
        return MemoryRow(table, "c", name)

    assert rules.answer(row_of, Renew([good, bad])) == (True, None)
    listed = rules.answer(row_of, Inspect(None, "*"), lambda: ["a", "b"])
    assert [(state.name, state.unreadable) for state in listed] == [
        ("a", ""),
        ("b", "the row of b is junk"),
    ]
    with pytest.raises(Unreadable, match="the row of b is junk"):
        rules.answer(row_of, Acquire(bad, False))


@pytest.mark.parametrize("position", range(8))
def test_the_row_of_a_session_without_a_value_is_unreadable(position: int) -> None:
    """All but two may not be missing: the token of one that waits, and the connection."""
    row: list[Any] = ["a", "c:1", "c", 5, 17, "{}", 1_700_000_000_000_000, "exclusive"]
    assert SessionRow(*row).is_readable()
    row[position] = None
    assert SessionRow(*row).is_readable() is (position in (3, 4))


@pytest.mark.parametrize(("position", "value"), [(1, "d:1"), (1, "c"), (2, ""), (2, "\N{SNOWMAN}")])
def test_the_row_of_a_session_has_the_id_of_its_client(position: int, value: str) -> None:
    row: list[Any] = ["a", "c:1", "c", 5, 17, "{}", 1_700_000_000_000_000, "exclusive"]
    row[position] = value
    assert not SessionRow(*row).is_readable()
