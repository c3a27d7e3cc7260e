"""Tables of checks, by which the doctors of the stores report what they have found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.contract.backend import Finding
from leaselock._core.rows.checks import Case, otherwise, report

if TYPE_CHECKING:
    from leaselock._core.rows.checks import Check

TABLE: tuple[Check, ...] = (
    (
        Case("fail", lambda disk: disk["free"] < 10, "{where}: {free} bytes are free", "free some"),
        Case("warn", lambda disk: disk["free"] < 20, "{where}: little room"),
        Case("ok", otherwise, "{where}: enough room", server="{where}"),
    ),
    Case("warn", lambda disk: disk["old"], "{where!r} is old"),
    lambda disk: Finding("skip", "not examined") if disk["where"] == "b" else None,
)


def test_the_first_case_that_is_true_is_reported_for_each_row() -> None:
    def levels(free: int, *, old: bool = False, where: str = "a") -> list[str]:
        found = report(TABLE, {"free": free, "old": old, "where": where})
        return [finding.level for finding in found]

    assert levels(9) == ["fail"]
    assert levels(19, old=True) == ["warn", "warn"]
    assert levels(20, where="b") == ["ok", "skip"]


def test_texts_name_facts() -> None:
    strange = "{free}"
    found = report(TABLE, {"free": 1, "old": True, "where": strange})
    assert found == [
        Finding("fail", "{free}: 1 bytes are free", "free some"),
        Finding("warn", "'{free}' is old"),
    ]
    (found_ok,) = report(TABLE, {"free": 20, "old": False, "where": "a"})
    assert found_ok == Finding("ok", "a: enough room", server="a")
