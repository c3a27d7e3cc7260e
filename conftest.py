"""What every run needs: a known environment, the shared servers, a tier, and a report.

Assertions of the conformance suite are explained by pytest, as those of tests are. That is said
here, because this is read before any other module of the tests can have imported the suite.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from tests import randomness, surroundings, tiers

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytest_plugins = ["testkit.servers.fixtures", "tests.report"]
pytest.register_assert_rewrite("testkit.conformance", "testkit.adapter")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The tier that is run."""
    parser.addoption("--tier", choices=tiers.TIERS, default="all", help="see tests/tiers.py")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every process that runs tests begins alike."""
    surroundings.prepare()
    tiers.prepare(config)
    randomness.prepare(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No later collection of garbage looks at modules and tests: they stay until the end.

    To look at all of them takes longer than the short leases of the tests last.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import a module whose tests are all in another tier."""
    return tiers.ignored(collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier."""
    tiers.select(config, items)
