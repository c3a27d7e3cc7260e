"""The seeds of a scenario in parts: the first tier plays the first half of the first quarter, and
the second tier the rest.
"""

from __future__ import annotations

import pytest

# Where each part begins and ends, in quarters.
QUARTERS = (
    (0.0, 0.5),
    *(
        pytest.param(part, marks=pytest.mark.statistical)
        for part in ((0.5, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    ),
)


def seeds_of(quarter: tuple[float, float], seeds: int) -> tuple[int, int]:
    """Return the first seed of a part and their number; a quarter has *seeds*."""
    first, end = (round(edge * seeds) for edge in quarter)
    return first, end - first
