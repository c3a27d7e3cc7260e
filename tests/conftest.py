"""Assertions of the suite are explained by pytest, as those of tests are.

Here, because this is read before any other module of the tests can have imported the suite.
"""

import pytest

pytest.register_assert_rewrite("holdfast.testing.conformance")
