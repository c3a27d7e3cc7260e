"""Servers of versions that the system does not have: `testkit.servers.versions`.

A test names its versions by `@on(...)` of `verification.versions.versions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.versions import using

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """The version that the servers of this test have."""
    name: str = request.param
    with using(name):
        yield name
