"""Assertions of the suite are explained by pytest, as those of tests are."""

import pytest
from tests.servers.ensembles import ensemble

pytest.register_assert_rewrite("holdfast.testing.conformance")
__all__ = ["ensemble"]
