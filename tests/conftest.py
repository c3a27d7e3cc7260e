"""Assertions of the suite are explained by pytest, as those of tests are.

Here, because this is read before any other module of the tests can have imported the suite.
"""

import pytest
from tests import surroundings

pytest_plugins = ["tests.servers.fixtures"]
pytest.register_assert_rewrite("leaselock.testing.conformance")

# Servers of Java's and databases are heavy: one process of a parallel run starts them, and runs all
# that need them. By words of a test's path, or by its fixture.
HEAVY = {
    "ensemble": "ensemble",
    "zookeeper": "ensemble",
    "tests/sql/": "databases",
    "test_sql": "databases",
}


def pytest_configure() -> None:
    """Every process that runs tests begins alike."""
    surroundings.prepare()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a heavy server together (`--dist loadgroup`)."""
    for item in items:
        words = (item.nodeid, *getattr(item, "fixturenames", ()))
        for sign, group in HEAVY.items():
            if any(sign in word for word in words):
                item.add_marker(pytest.mark.xdist_group(group))
                break
