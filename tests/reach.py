"""Whether a test can start a server, by the functions that it reaches.

Every server of the tests starts inside `testkit.servers.costs.starting`. So a test needs a server
if its function, its fixtures or its parameters reach that function by the names in their code.
In a run that starts no servers, `starting` fails: a start that is not seen here is seen there.
"""

from __future__ import annotations

from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from testkit.servers.costs import starting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

# The code that is searched; other code starts no servers of the tests.
TESTS = ("tests", "testkit", "verification", "benchmarks", "examples")
SERVERS = "testkit.servers."
Seen = dict[int, bool]


def needs_server(item: pytest.Item, seen: Seen) -> bool:
    """Return whether a test may start a server. *seen* is what is known of functions."""
    called = getattr(item, "callspec", None)
    params = list(called.params.values()) if called else []
    names = {*getattr(item, "fixturenames", ()), *(each for each in params if type(each) is str)}
    manager = item.session._fixturemanager
    fixtures = [each for name in names for each in manager.getfixturedefs(name, item) or ()]
    used = [getattr(item, "function", None), *params, *(each.func for each in fixtures)]
    return any(reaches(each, seen) for each in used)


def reaches(value: object, seen: Seen) -> bool:
    """Return whether a function, or what a value holds, starts a server."""
    value = plain(value)
    if value is starting:
        return True
    # Not isinstance: an object of another library may act when its class is read.
    kind = type(value)
    searched = value if issubclass(kind, FunctionType | type) else kind
    if not _ours(searched) and not issubclass(kind, list | tuple | set | dict | partial):
        return False
    if id(value) not in seen:
        seen[id(value)] = False  # it may reach itself
        seen[id(value)] = any(reaches(each, seen) for each in held_by(value))
    return seen[id(value)]


def _ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in TESTS


def plain(value: Any) -> Any:
    """Return the function inside a method, a property or a decorated function."""
    if type(value) in (MethodType, staticmethod, classmethod):
        value = value.__func__
    if type(value) is property:
        value = value.fget
    while (
        value is not starting
        and issubclass(type(value), FunctionType)
        and (wrapped := vars(value).get("__wrapped__"))
    ):
        value = wrapped
    return value


def wrapped_by(value: Any) -> Any:
    """Return the function inside a decorated one."""
    return vars(value).get("__wrapped__") if issubclass(type(value), FunctionType) else None


def held_by(value: Any) -> Iterator[object]:
    """Return what a function names, a class defines, and a container or an object holds."""
    if isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    elif isinstance(value, FunctionType):
        yield from named_in(value, value.__code__)
        yield from (cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
    elif isinstance(value, type):
        yield from (each for kind in value.__mro__ if _ours(kind) for each in vars(kind).values())
    else:
        yield type(value)
        yield from list(getattr(value, "__dict__", {}).values())


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def named_in(function: FunctionType, code: CodeType) -> Iterator[object]:
    """Return the values of the global names in a function and in the functions inside it."""
    for name in code.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]
        elif name.startswith(SERVERS):
            # It imports a server's module when it is called.
            yield starting
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from named_in(function, constant)
