"""What the findings of several stores have in common."""

from __future__ import annotations

import pytest

from leaselock._core.rows.maintenance import (
    FEWEST_CLIENTS,
    clients_finding,
    space_finding,
    tls_finding,
)


def test_tls_counts_if_it_was_requested() -> None:
    assert tls_finding("r:1", "", True, "x").level == "ok"
    careless = tls_finding("r:1", "no name", True, "x")
    assert (careless.level, careless.advice) == ("warn", "x")
    assert careless.what.endswith(": no name")
    assert tls_finding("r:1", "no name", False, "x").level == "ok"


def test_room_for_few_clients_is_a_warning() -> None:
    enough = clients_finding("r:1", "100 at most", 10 * FEWEST_CLIENTS, 10, "x")
    assert (enough.level, enough.advice) == ("ok", "")
    crowded = clients_finding("r:1", "100 at most", 10 * FEWEST_CLIENTS - 1, 10, "x")
    assert (crowded.level, crowded.advice) == ("warn", "x")
    assert "4 clients of 10 connections each fit: 100 at most" in crowded.what
    assert "1 client of 10" in clients_finding("r:1", "", 19, 10, "x").what
    assert "0 clients of 10" in clients_finding("r:1", "", -3, 10, "x").what


@pytest.mark.parametrize(
    ("free", "level", "what"),
    [
        (900, "fail", "900 KiB are free on the disk"),
        (1500, "warn", "1500 KiB are free on the disk"),
        (2048, "ok", "2 MiB are free on the disk"),
    ],
)
def test_a_disk_fills(free: int, level: str, what: str) -> None:
    found = space_finding("the disk", free * 1024, low=2 * 2**20, least=2**20)
    assert (found.level, found.what) == (level, what)
