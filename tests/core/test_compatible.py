"""Which claims are compatible with which holds."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from leaselock._core.contract.backend import (
    Claim,
    HoldRecord,
    HoldState,
    LockState,
    Mode,
    compatible,
)

COMPATIBLE_MODES = {
    ("shared", "shared"),
    ("shared", "update"),
    ("update", "shared"),
    ("permits", "permits"),
}


def claim(mode: Mode = "exclusive", permits: int = 1) -> Claim:
    return Claim("a", "c:1", "c", 30.0, "{}", 0.0, mode=mode, permits=permits)


def hold(mode: Mode = "exclusive", permits: int = 1) -> HoldRecord:
    return HoldRecord("d:1", "d", "either", 7, 30.0, "{}", 0.0, mode=mode, permits=permits)


@pytest.mark.parametrize(("held", "wanted"), list(itertools.product(get_args(Mode), repeat=2)))
def test_modes(held: Mode, wanted: Mode) -> None:
    assert compatible([hold(held)], claim(wanted), 2) is ((held, wanted) in COMPATIBLE_MODES)
    assert compatible([claim(held)], claim(wanted), 2) is ((held, wanted) in COMPATIBLE_MODES)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_any_claim_gets_a_free_lock(mode: Mode) -> None:
    assert compatible([], claim(mode), 1)


def test_one_conflict_is_enough() -> None:
    assert compatible([hold("shared"), hold("shared"), hold("update")], claim("shared"))
    assert not compatible([hold("shared"), hold("update")], claim("update"))
    assert not compatible([hold("shared"), hold("upgrading")], claim("shared"))


@pytest.mark.parametrize(
    ("held", "permits", "limit", "fits"),
    [
        ((), 4, 4, True),
        ((), 5, 4, False),
        ((1, 2), 1, 4, True),
        ((1, 2), 2, 4, False),
        ((4,), 1, 4, False),
    ],
)
def test_permits(held: tuple[int, ...], permits: int, limit: int, fits: bool) -> None:
    others = [hold("permits", number) for number in held]
    assert compatible(others, claim("permits", permits), limit) is fits


def test_a_claim_is_exclusive_and_takes_one_permit_by_default() -> None:
    plain = Claim("a", "c:1", "c", 30.0, "{}", 0.0)
    assert (plain.mode, plain.permits) == ("exclusive", 1)


def test_the_state_of_a_lock_has_its_holds() -> None:
    one, other = hold(), hold()._replace(id="d:2")
    state = LockState("a", (HoldState(one, 1.0), HoldState(other, None)), ())
    assert (state.held, state.remaining) == (one, 1.0)
    free = LockState.exclusive("a", None, None, (claim(),))
    assert (free.held, free.remaining, free.holds) == (None, None, ())
    assert LockState.exclusive("a", one, 1.0, ()).holds == (HoldState(one, 1.0),)
