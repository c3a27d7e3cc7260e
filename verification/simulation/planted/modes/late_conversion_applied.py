"""A conversion that arrives late is applied: the number of the conversion is not compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Convert, Converted

FAULTS = {"slow": 0.1, "delay": 0.005, "freeze": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        return real(row, request if hold is None else request._replace(step=hold.step + 1))

    patch.setattr(rules, "convert", convert)
