"""`run` returns when the leadership is lost, instead of campaigning again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.election import Term

if TYPE_CHECKING:
    import pytest

    from leaselock._core.election import Candidacy


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Term.__init__

    def begin(self: Term, candidacy: Candidacy) -> None:
        real(self, candidacy)
        self.__class__ = Whole

    class Whole(Term):
        """A term that is never cut short."""

        @property
        def cut_short(self) -> bool:
            """No."""
            return False

        @cut_short.setter
        def cut_short(self, cut: bool) -> None:
            """Ignored."""

    patch.setattr(Term, "__init__", begin)
