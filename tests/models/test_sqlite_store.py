"""The SQLite store among several processes: order, deaths, messages, busy files, other clocks."""

from __future__ import annotations

import ast
import time
from typing import TYPE_CHECKING

import pytest
from tests.models.process import ROOT, Client, Process, claim, heard, sight

from leaselock.backends.sqlite.lock_row import SQL
from leaselock.core.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Inspect,
    LockState,
    Release,
    Renew,
    SetLifetime,
)
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# --- several processes ----------------------------------------------------------------------------


def test_processes_exclude_one_another(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    with Process(path, "one") as one, Process(path, "two") as two:
        first = int(one.order("ask n"))
        assert (two.order("ask n"), here.ask("n")) == ("busy", None)
        assert one.order("ask n") == str(first), "the same claim has the same answer"
        assert two.order("leave n") == "absent"
        assert one.order("leave n") == "held"
        second = here.ask("n")
        assert second is not None
        assert second > first
        assert (one.order("ask n"), one.order("ask other").isdecimal()) == ("busy", True)


def test_the_queue_of_processes_is_in_order(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    here.ask("n")
    with Process(path, "one") as one, Process(path, "two") as two:
        assert [one.order("wait n"), two.order("wait n")] == ["busy", "busy"]
        assert [waiter.client for waiter in sight(here, "n").waiting] == ["one", "two"]
        here.leave("n")
        assert (two.order("wait n"), one.order("wait n").isdecimal()) == ("busy", True)
        one.order("leave n")
        assert two.order("wait n").isdecimal()


# --- deaths and messages --------------------------------------------------------------------------


def test_the_death_of_a_watched_client_is_reported_at_once(
    path: Path, clients: Callable[[str], Client]
) -> None:
    here = clients("here")
    with Process(path, "holder") as holder, Process(path, "ahead") as ahead:
        holder.order("ask n")
        ahead.order("wait n")
        assert here.ask("n", wait=True) is None
        ahead.kill()
        assert heard(here) == (WAKE_ALL,)
        assert here.ask("n", wait=True) is None
        holder.kill()
        assert heard(here) == (WAKE_ALL,)
        assert here.ask("n", wait=True) is not None


def test_a_release_wakes_the_first_waiter(path: Path, clients: Callable[[str], Client]) -> None:
    here = clients("here")
    with Process(path, "holder") as holder:
        holder.order("ask n")
        here.ask("n", wait=True)
        holder.order("leave n")
        assert heard(here) == ("here:1",)
        assert here.ask("n", wait=True) is not None


def test_a_message_to_a_dead_client_is_ignored(
    path: Path, clients: Callable[[str], Client]
) -> None:
    here = clients("here")
    here.ask("n")
    with Process(path, "first") as first, Process(path, "second") as second:
        first.order("wait n")
        second.order("wait n")
        second.kill()
        assert here.leave("n") == "held"
        first.kill()
        assert here.leave("n") == "absent"
        assert sight(here, "n") == LockState.exclusive("n", None, None, ())
        assert here.ask("n") is not None
    here.file.registry().notify("nobody", 1)


def test_a_fifo_that_is_full_loses_only_a_hint(clients: Callable[[str], Client]) -> None:
    here = clients("here")
    here.ask("n")
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
        lambda mine: Inspect(None, "*"),
    ],
    ids=["ask", "leave", "bury", "renew", "retie", "break", "look"],
)
def test_a_file_that_stays_busy_is_refused_in_time(
    request_of: Callable[[object], object], path: Path, clients: Callable[[str], Client]
) -> None:
    client = clients("here")
    client.ask("n")
    with Process(path, "other") as other:
        assert other.order("transaction") == "begun"
        began = time.monotonic()
        for name in ("n", "m"):
            with pytest.raises(NotApplied, match="in the middle of a transaction"):
                client.call(request_of(claim("here", name)), patience=0.2)
        assert 0.4 <= time.monotonic() - began < 1.4
        other.order("end")
    held = sight(client, "n").held
    assert held is not None
    assert (held.client, held.lifetime) == ("here", "either")
    assert sight(client, "m") == LockState.exclusive("m", None, None, ())


def test_a_frozen_transaction_ends_with_its_process(
    path: Path, clients: Callable[[str], Client]
) -> None:
    client = clients("here")
    client.ask("m")
    with Process(path, "other") as other:
        other.order("transaction")
        other.stop()
        with pytest.raises(NotApplied, match="if that process is stopped, continue it or end it"):
            client.ask("n", patience=0.1)
        other.kill()
        assert client.ask("n") is not None


# --- the statements -------------------------------------------------------------------------------


def test_every_statement_is_used() -> None:
    sources = (ROOT / "src/leaselock/backends/sqlite").glob("*.py")
    trees = [ast.parse(source.read_text("utf-8")) for source in sources]
    used = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(SQL) <= used
    assert all(SQL.values()), "a statement without text"
