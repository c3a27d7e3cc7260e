"""Readers, writers and permits: violations are found, and what is allowed is not reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.testing.histories import HistoryBuilder

import leaselock
from leaselock._core.contract.backend import compatible
from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import MODES, Event
from leaselock.testing.recorder import Recorder
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LIMIT = 3


class ModeHistoryBuilder(HistoryBuilder):
    """A history in which attempts have modes, or permits."""

    def share(self, hold: int, ts: int, mode: str = "shared", *, pid: int = 1) -> None:
        """State the mode of an attempt."""
        self.put(ts, Event.SHARING, hold, pid, aux=MODES[mode])

    def read(self, start: int, end: int, token: int, *, pid: int, mode: str = "shared") -> int:
        """Add a hold in a mode."""
        hold = self.hold(start, end, token, pid=pid)
        self.share(hold, start - 1, mode, pid=pid)
        return hold

    def permits(self, start: int, end: int, token: int, count: int, *, pid: int) -> int:
        """Add a hold of permits."""
        hold = self.hold(start, end, token, pid=pid)
        self.put(start - 1, Event.PERMITS, hold, pid, LIMIT, count)
        return hold

    def refuse_read(self, asked: int, ts: int) -> int:
        """Add a reader that was refused at once."""
        hold = self.refuse(asked, ts)
        self.share(hold, asked, pid=9)
        return hold

    def refuse_permits(self, asked: int, ts: int, count: int) -> int:
        """Add a claim of permits that was refused at once."""
        hold = self.refuse(asked, ts)
        self.put(asked, Event.PERMITS, hold, 9, LIMIT, count)
        return hold


def test_readers_may_overlap_and_learn_of_their_grants_in_any_order() -> None:
    builder = ModeHistoryBuilder()
    builder.read(10, 50, 2, pid=1)
    builder.read(10, 60, 1, pid=2)
    builder.read(40, 70, 3, pid=3, mode="update")
    builder.hold(80, 90, 4, pid=4)
    assert builder.check().ok


@pytest.mark.parametrize(
    ("first", "second"),
    [("shared", ""), ("", "shared"), ("update", ""), ("", "update"), ("update", "update")],
)
def test_a_writer_beside_another_is_found(first: str, second: str) -> None:
    builder = ModeHistoryBuilder()
    for start, mode in ((10, first), (20, second)):
        hold = builder.hold(start, start + 30, start, pid=start)
        if mode:
            builder.share(hold, start - 1, mode, pid=start)
    assert builder.check().kinds() == {Kind.OVERLAP}


def test_a_writer_beside_an_earlier_one_of_several_readers_is_found() -> None:
    builder = ModeHistoryBuilder()
    builder.read(10, 100, 1, pid=1)
    builder.read(20, 30, 2, pid=2)
    builder.hold(50, 60, 3, pid=3)
    assert len(builder.check().violations) == 1


def test_an_older_token_than_that_of_a_writer_is_found() -> None:
    builder = ModeHistoryBuilder()
    builder.hold(10, 20, 5, pid=1)
    builder.read(40, 50, 4, pid=2)
    assert builder.check().kinds() == {Kind.TOKEN_ORDER}


def test_a_writer_with_an_older_token_than_a_reader_is_found() -> None:
    builder = ModeHistoryBuilder()
    builder.read(10, 20, 5, pid=1)
    builder.hold(21, 30, 4, pid=2)
    assert builder.check().kinds() == {Kind.TOKEN_ORDER}


def test_permits_within_the_limit() -> None:
    builder = ModeHistoryBuilder()
    builder.permits(10, 50, 1, 2, pid=1)
    builder.permits(20, 30, 2, 1, pid=2)
    builder.permits(31, 60, 3, 1, pid=3)
    builder.permits(51, 60, 4, 2, pid=4)
    assert builder.check().ok


def test_one_permit_too_many_is_found_and_described() -> None:
    builder = ModeHistoryBuilder()
    builder.permits(10, 50, 1, 2, pid=1)
    builder.permits(20, 40, 2, 1, pid=2)
    builder.permits(30, 35, 3, 1, pid=3)
    verdict = builder.check()
    assert verdict.kinds() == {Kind.OVERLAP}
    assert "4 permits were held" in str(verdict)


@pytest.mark.parametrize(("reads", "ok"), [(False, True), (True, False)])
def test_a_refused_reader_must_be_explained_by_a_writer(reads: bool, ok: bool) -> None:
    builder = ModeHistoryBuilder()
    hold = builder.hold(10, 50, 1, pid=1)
    if reads:
        builder.share(hold, 9, pid=1)
    builder.refuse_read(20, 30)
    assert (builder.check().kinds() == {Kind.REFUSAL}) is not ok


def test_a_writer_that_waits_explains_a_refused_reader() -> None:
    builder = ModeHistoryBuilder()
    builder.read(10, 50, 1, pid=1)
    waiting = builder.grant(51, 2, pid=2, began=15)
    builder.release(waiting, 60, pid=2)
    builder.refuse_read(20, 30)
    assert builder.check().ok


@pytest.mark.parametrize(("count", "ok"), [(1, False), (2, True)])
def test_refused_permits_must_be_explained_by_their_number(count: int, ok: bool) -> None:
    builder = ModeHistoryBuilder()
    builder.permits(10, 50, 1, 2, pid=1)
    builder.permits(60, 70, 2, 3, pid=2)
    builder.refuse_permits(20, 30, count)
    builder.refuse_permits(65, 66, 1)
    assert (builder.check().kinds() == {Kind.REFUSAL}) is not ok


# --- a store whose rules are broken ---------------------------------------------------------------


def readers_enter(others: Sequence[Any], claim: Any, limit: int = 0) -> bool:
    """A reader enters beside a writer."""
    return claim.mode == "shared" or compatible(others, claim, limit)


def one_permit_more(others: Sequence[Any], claim: Any, limit: int = 0) -> bool:
    """One permit more than the limit is granted."""
    return compatible(others, claim, limit + 1)


def attempted(client: leaselock.Client, recorder: Recorder, mode: str) -> tuple[Any, Any]:
    """The lock of that mode, and the record of an attempt."""
    if mode == "permits":
        lock: Any = client.semaphore("s", permits=LIMIT)
        attempt = recorder.acquiring("s", permits=1, limit=LIMIT)
    else:
        sides = client.rwlock("a")
        lock = sides.read if mode == "shared" else sides.write
        attempt = recorder.acquiring("a", mode=mode)
    return lock, attempt


def history_of(folder: Path, url: str, modes: Sequence[str]) -> History:
    """What clients observed that acquired one after the other, and released in that order."""
    recorder = Recorder(folder)
    held, clients = [], []
    for mode in modes:
        client = leaselock.Client(url)
        clients.append(client)
        lock, attempt = attempted(client, recorder, mode)
        lease = lock.try_acquire()
        if lease is None:
            attempt.refused()
            continue
        attempt.granted(lease.token)
        held.append((attempt, lease))
    for attempt, lease in held:
        attempt.releasing()
        lease.release()
        attempt.released()
    for client in clients:
        client.close()
    recorder.close()
    return History.read(folder)


PLANTED = [
    (readers_enter, ["exclusive", "shared"]),
    (one_permit_more, ["permits"] * (LIMIT + 1)),
]


@pytest.mark.parametrize(("broken", "modes"), PLANTED)
def test_a_store_with_broken_rules_is_found(
    broken: Any, modes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://checker {broken.__name__}"
    assert check(history_of(tmp_path / "right", url, modes)).ok
    monkeypatch.setattr("leaselock._core.rows.rules.compatible", broken)
    found = check(history_of(tmp_path / "broken", url, modes))
    assert found.kinds() == {Kind.OVERLAP}
