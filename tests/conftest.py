"""Assertions of the suite are explained by pytest, as those of tests are.

Here, because this is read before any other module of the tests can have imported the suite.
"""

import pytest

pytest.register_assert_rewrite("holdfast.testing.conformance")

# A server of Java's, or a database, is heavy: one process of a parallel run starts it, and runs all
# that need it.
HEAVY = {"ensemble"}
DATABASES = ("tests/sql/", "test_sql")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a heavy server together (`--dist loadgroup`)."""
    for item in items:
        for fixture in HEAVY.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(fixture))
        if any(word in item.nodeid for word in DATABASES):
            item.add_marker(pytest.mark.xdist_group("databases"))
