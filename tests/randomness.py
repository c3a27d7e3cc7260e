"""Random choices of hypothesis: fixed in the first tier, new in the others, and reported."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import hypothesis

if TYPE_CHECKING:
    import pytest

FIXED = ("test", "check")


def prepare(config: pytest.Config) -> None:
    """Choose the seed; before any test is imported, since its settings inherit from the profile."""
    fixed = config.getoption("--tier") in FIXED
    # How long an example takes says more about the machine than about the code.
    # Examples of earlier runs would make this one differ, and the folder may not be ours.
    settings = hypothesis.settings(deadline=None, derandomize=fixed, database=None)
    hypothesis.settings.register_profile("leaselock", settings)
    hypothesis.settings.load_profile("leaselock")
    if not fixed and config.option.hypothesis_seed is None:
        # The processes that run tests for this one get its options.
        config.option.hypothesis_seed = secrets.randbelow(2**32)


def described(config: pytest.Config) -> str:
    """How to make the same choices again."""
    if config.getoption("--tier") in FIXED:
        return "seeds: all fixed"
    return f"seeds: --hypothesis-seed={config.option.hypothesis_seed}; all others are fixed"
