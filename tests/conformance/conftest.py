"""Assertions of the suite are explained by pytest, as those of tests are."""

import pytest

pytest.register_assert_rewrite("holdfast.testing.conformance")
