"""The seeds of a story are played half in the first tier and half in the second."""

from __future__ import annotations

import pytest

# The number of the half.
HALVES = (0, pytest.param(1, marks=pytest.mark.statistical))
