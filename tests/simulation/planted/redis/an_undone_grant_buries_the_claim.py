"""A grant that no replica confirmed is given back with the whole claim, which still waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.backends.redis.hash import Hash

if TYPE_CHECKING:
    import pytest

    from holdfast.backends.redis.steps import Steps, Word
    from holdfast.core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def undo(self: Hash, claim: Claim, token: Word) -> Steps[None]:
        yield from self._leave(claim, "", 120_000, "")

    patch.setattr(Hash, "_undo", undo)
