"""Validation of arguments, before any request is sent."""

from __future__ import annotations

import pytest

from leaselock._core.client import validation
from leaselock.errors import InvalidName


@pytest.mark.parametrize(
    "name", ["a", "x" * 255, "\N{SNOWMAN}" * 85, "\u3000", "\ue000", "a b/../c"]
)
def test_names(name: str) -> None:
    assert validation.checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 256,
        "\N{SNOWMAN}" * 86,
        "a\0",
        "a\n",
        "\x7f",
        "\x85",
        "\u2028",
        "\ud800",
        b"a",
        1,
        None,
    ],
)
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidName):
        validation.checked_name(name)


def test_labels_are_cut_to_whole_characters() -> None:
    assert validation.checked_label(None) is None
    assert validation.checked_label("\N{SNOWMAN}" * 100) == "\N{SNOWMAN}" * 85
    with pytest.raises(TypeError):
        validation.checked_label(1)


@pytest.mark.parametrize("token", [True, 1.0, "1", None])
def test_tokens_are_integers(token: object) -> None:
    with pytest.raises(TypeError):
        validation.checked_token(token)


@pytest.mark.parametrize("token", [0, -1, 2**63])
def test_tokens_are_positive_and_fit(token: int) -> None:
    with pytest.raises(ValueError, match="token"):
        validation.checked_token(token)
    assert validation.checked_token(2**63 - 1) == 2**63 - 1


def test_times() -> None:
    assert validation.checked_lease(30) == 30.0
    assert validation.checked_timeout(None) is None
    assert validation.checked_timeout(float("inf")) == float("inf")
    assert validation.checked_timeout(10**400) == float("inf")
    with pytest.raises(ValueError, match=r"lease is from .*, not inf$"):
        validation.checked_lease(10**400)
    with pytest.raises(ValueError, match=r"lease is from .*, not -inf$"):
        validation.checked_lease(-(10**400))
    with pytest.raises(ValueError, match="lease"):
        validation.checked_lease(0.01)
    with pytest.raises(TypeError, match="timeout"):
        validation.checked_timeout(False)
