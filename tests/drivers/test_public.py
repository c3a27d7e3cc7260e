"""What leaves the library: public exceptions, and the line of the user's program."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

from leaselock.drivers.errors import as_public
from leaselock.drivers.system_env import SystemEnv
from leaselock.errors import NotApplied


class Inner(NotApplied):
    """An exception of one backend."""


def test_an_exception_of_a_backend_is_raised_as_its_public_class() -> None:
    public = as_public(Inner("out of reach"))
    assert type(public) is NotApplied
    assert public.args == ("out of reach",)
    itself = NotApplied("out of reach")
    assert as_public(itself) is itself


def test_lines_are_recorded_while_memory_is_traced() -> None:
    assert SystemEnv().records_call_sites() == (sys.flags.dev_mode or tracemalloc.is_tracing())


def test_the_line_of_the_user_is_the_first_one_outside_of_the_library() -> None:
    library: dict[str, Any] = {"__name__": "leaselock.api.threads"}
    exec("def acquire(env):\n    return env.call_site()", library)
    site = library["acquire"](SystemEnv())
    assert site.startswith(f'  File "{__file__}", line ')
    assert site.endswith("in test_the_line_of_the_user_is_the_first_one_outside_of_the_library")
