"""The seeds of a scenario: a quarter is played in the first tier, the others in the second."""

from __future__ import annotations

import pytest

# The numbers of the quarters.
QUARTERS = (0, *(pytest.param(n, marks=pytest.mark.statistical) for n in (1, 2, 3)))
