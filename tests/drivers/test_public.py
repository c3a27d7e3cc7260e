"""What leaves the library: public exceptions, and the line of the user's program."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from typing import Any

from leaselock._drivers.errors import as_public
from leaselock._drivers.system_env import SystemEnv
from leaselock.errors import NotApplied, StoreUnreachable


class Inner(NotApplied):
    """An exception of one backend."""


def test_an_exception_of_a_backend_is_raised_as_its_public_class() -> None:
    public = as_public(Inner("out of reach"))
    assert type(public) is NotApplied
    assert public.args == ("out of reach",)
    itself = NotApplied("out of reach")
    assert as_public(itself) is itself


def test_the_error_of_the_client_library_is_the_cause_without_its_frames() -> None:
    library, behind = ValueError("said by the library"), OSError("the reason")
    library.__context__ = behind
    for error in (library, behind):
        with contextlib.suppress(type(error)):
            raise error
    assert behind.__traceback__ is not None
    inner = Inner("out of reach")
    inner.__cause__ = library
    refused = NotApplied("refused")
    refused.__cause__ = inner
    public = as_public(refused, "redis://h", "redis://me@h")
    assert public.__cause__ is library
    assert public.__suppress_context__
    frames = [error.__traceback__ for error in (library, behind)]
    assert frames == [None, None]
    assert isinstance(public, NotApplied)
    assert (public.store, str(public)) == ("redis://h", "refused")


def test_only_an_unreachable_store_has_advice() -> None:
    for reason, said in (("unreachable", True), ("denied", False)):
        error = as_public(Inner("out of reach.", reason), "redis://h", "redis://me@h")  # type: ignore[arg-type]
        assert ("leaselock doctor 'redis://me@h'" in str(error)) is said
        assert type(error) is (StoreUnreachable if said else NotApplied)


def test_lines_are_recorded_while_memory_is_traced() -> None:
    assert SystemEnv().records_call_sites() == (sys.flags.dev_mode or tracemalloc.is_tracing())


def test_the_line_of_the_user_is_the_first_one_outside_of_the_library() -> None:
    library: dict[str, Any] = {"__name__": "leaselock._api.threads"}
    exec("def acquire(env):\n    return env.call_site()", library)
    site = library["acquire"](SystemEnv())
    assert site.startswith(f'  File "{__file__}", line ')
    assert site.endswith("in test_the_line_of_the_user_is_the_first_one_outside_of_the_library")
