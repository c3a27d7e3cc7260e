"""What leaves the library: public exceptions, and the line of the user's program."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

from leaselock.drivers import system_env
from leaselock.drivers.errors import as_public
from leaselock.drivers.system_env import SystemEnv
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    import pytest


class Inner(NotApplied):
    """An exception of one backend."""


def test_an_exception_of_a_backend_leaves_as_its_public_class() -> None:
    public = as_public(Inner("out of reach"))
    assert type(public) is NotApplied
    assert public.args == ("out of reach",)
    itself = NotApplied("out of reach")
    assert as_public(itself) is itself


def test_the_line_of_the_user_is_the_first_one_outside_of_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library: dict[str, Any] = {"__name__": "leaselock.api.threads"}
    exec("def acquire(env):\n    return env.call_site()", library)
    tracing = False
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: tracing)
    assert not system_env._tracing()
    tracing = True
    site = library["acquire"](SystemEnv())
    assert site.startswith(f'  File "{__file__}", line ')
    assert site.endswith("in test_the_line_of_the_user_is_the_first_one_outside_of_the_library")
