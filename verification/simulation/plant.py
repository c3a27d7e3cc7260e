"""The registration of planted bugs.

Each module of `planted/` is about one scenario or store. A bug is a function that plants it with
`pytest.MonkeyPatch`; its docstring says what is wrong:

    @planted("redis", faults={"freeze": 0.05})
    def no_periodic_check(patch: pytest.MonkeyPatch) -> None:
        \"\"\"A waiter relies on messages alone.\"\"\"
        patch.setattr(Waiter, "CHECK_EVERY", FOREVER)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

# The module whose bugs have no prefix: what is wrong there would be wrong on every store.
WITHOUT_PREFIX = "sqlite"


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    """The module and the function: `redis/no_expiry`."""
    what: str
    kind: str
    """The scenario that must find it."""
    plant: Callable[[pytest.MonkeyPatch], None]
    faults: Mapping[str, float]
    """Faults that every scenario has then, so that few seeds are needed to find the bug."""
    settings: Mapping[str, object]
    """What the scenarios have instead of their usual settings, for the same reason."""


NAMED: dict[str, Bug] = {}


def planted(
    kind: str,
    faults: Mapping[str, float] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[[pytest.MonkeyPatch], None]]:
    """Register a planted bug, which the scenario *kind* with these *faults* must find. *settings*
    are values by their names in `verification.simulation`: `zoo.AWAY`.
    """

    def register(
        plant: Callable[[pytest.MonkeyPatch], None],
    ) -> Callable[[pytest.MonkeyPatch], None]:
        module = plant.__module__.rpartition(".")[2]
        name = plant.__name__ if module == WITHOUT_PREFIX else f"{module}/{plant.__name__}"
        assert name not in NAMED, f"two planted bugs are called {name}"
        what = " ".join((plant.__doc__ or "").split())
        NAMED[name] = Bug(name, what, kind, plant, faults or {}, settings or {})
        return plant

    return register
