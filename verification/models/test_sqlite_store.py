"""The SQLite store with several processes: order, deaths, messages, busy files, other clocks."""

from __future__ import annotations

import ast
import time
from typing import TYPE_CHECKING

import pytest
from tests.pace import pace
from verification.models.process import ROOT, Client, Process, claim, heard, inspect

from leaselock._backends.sqlite.lock_row import SQL
from leaselock._core.contract.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    LockState,
    Release,
    Renew,
    SetLifetime,
)
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.first_tier


# --- several processes ----------------------------------------------------------------------------


def test_processes_exclude_one_another(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    with Process(path, "one") as one, Process(path, "two") as two:
        first = int(one.order("acquire n"))
        assert (two.order("acquire n"), here.acquire("n")) == ("busy", None)
        assert one.order("acquire n") == str(first), "the same claim has the same answer"
        assert two.order("release n") == "absent"
        assert one.order("release n") == "held"
        second = here.acquire("n")
        assert second is not None
        assert second > first
        assert (one.order("acquire n"), one.order("acquire other").isdecimal()) == ("busy", True)


def test_the_queue_of_processes_is_in_order(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    here.acquire("n")
    with Process(path, "one") as one, Process(path, "two") as two:
        assert [one.order("wait n"), two.order("wait n")] == ["busy", "busy"]
        assert [waiter.client for waiter in inspect(here, "n").waiting] == ["one", "two"]
        here.release("n")
        assert (two.order("wait n"), one.order("wait n").isdecimal()) == ("busy", True)
        one.order("release n")
        assert two.order("wait n").isdecimal()


# --- deaths and messages --------------------------------------------------------------------------


def test_the_death_of_a_watched_client_is_reported_at_once(
    path: Path, clients: Callable[[str], Client]
) -> None:
    here = clients("here")
    with Process(path, "holder") as holder, Process(path, "ahead") as ahead:
        holder.order("acquire n")
        ahead.order("wait n")
        assert here.acquire("n", wait=True) is None
        ahead.kill()
        assert heard(here) == (WAKE_ALL,)
        assert here.acquire("n", wait=True) is None
        holder.kill()
        assert heard(here) == (WAKE_ALL,)
        assert here.acquire("n", wait=True) is not None


def test_a_release_wakes_the_first_waiter(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    with Process(path, "holder") as holder:
        holder.order("acquire n")
        here.acquire("n", wait=True)
        holder.order("release n")
        assert heard(here) == ("here:1",)
        assert here.acquire("n", wait=True) is not None


def test_a_message_to_a_dead_client_is_ignored(
    path: Path, clients: Callable[[str], Client]
) -> None:
    here = clients("here")
    here.acquire("n")
    with Process(path, "first") as first, Process(path, "second") as second:
        first.order("wait n")
        second.order("wait n")
        second.kill()
        assert here.release("n") == "held"
        first.kill()
        assert here.release("n") == "absent"
        assert inspect(here, "n") == LockState.exclusive("n", None, None, ())
        assert here.acquire("n") is not None
    here.file.registry().notify("absent", 1)


def test_a_fifo_that_is_full_loses_only_a_hint(clients: Callable[[str], Client]) -> None:
    here = clients("here")
    here.acquire("n")
    for _ in range(20_000):
        here.file.registry().notify("here", 7)
    words = heard(here)
    assert isinstance(words, tuple)
    assert set(words) == {"here:7"}
    assert len(words) > 1000


# --- others in a transaction ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_of",
    [
        lambda mine: Acquire(mine, True),
        lambda mine: Release(mine, False),
        lambda mine: Release(mine, True),
        lambda mine: Renew([mine]),
        lambda mine: SetLifetime(mine, "lease"),
        lambda mine: BreakLock("n", None),
    ],
    ids=["acquire", "release", "tombstone", "renew", "lifetime", "break"],
)
def test_a_file_that_stays_busy_is_refused_in_time(
    request_of: Callable[[object], object], path: Path, clients: Callable[[str], Client]
) -> None:
    client = clients("here")
    client.acquire("n")
    with Process(path, "other") as other:
        assert other.order("transaction") == "begun"
        began = time.monotonic()
        for name in ("n", "m"):
            with pytest.raises(NotApplied, match="in the middle of a transaction"):
                client.call(request_of(claim("here", name)), timeout=0.2)
        assert 0.4 <= time.monotonic() - began < 1.4 * pace()
        other.order("end")
    held = inspect(client, "n").held
    assert held is not None
    assert (held.client, held.lifetime) == ("here", "either")
    assert inspect(client, "m") == LockState.exclusive("m", None, None, ())


def test_a_frozen_transaction_ends_with_its_process(
    path: Path, clients: Callable[[str], Client]
) -> None:
    client = clients("here")
    client.acquire("m")
    with Process(path, "other") as other:
        other.order("transaction")
        other.stop()
        with pytest.raises(NotApplied, match="if that process is stopped, continue it or end it"):
            client.acquire("n", timeout=0.1)
        other.kill()
        assert client.acquire("n") is not None


# --- the statements -------------------------------------------------------------------------------


def test_every_statement_is_used() -> None:
    sources = (ROOT / "src/leaselock/_backends/sqlite").glob("*.py")
    trees = [ast.parse(source.read_text("utf-8")) for source in sources]
    used = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(SQL) <= used
    assert all(SQL.values()), "a statement without text"
