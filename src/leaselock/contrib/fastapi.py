"""Locks for FastAPI and Starlette: one client for the application, and a dependency for requests.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0"))

    @app.post("/orders/{order}/charge")
    async def charge(order: int, lease: Annotated[AsyncLease, locked("order:{order}")]):
        ...

The lock is acquired before the function runs, and released when it has returned, before the
response is sent. A busy lock is answered with 423 (Locked), a lost lease or a store that does not
answer with 503. Several locks are one dependency, `locked_all`. The name may be that of a
dependency, such as one that knows the user:

    def of_user(user: Annotated[User, Depends(current_user)]) -> str:
        return f"user:{user.id}"

    @app.post("/checkout")
    async def checkout(lease: Annotated[AsyncLease, locked(of_user)]): ...
"""

from __future__ import annotations

import functools
import inspect
import logging
import string
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

from fastapi import Depends, HTTPException, Request
from fastapi.params import Depends as Dependency

from leaselock import (
    AcquireTimeout,
    AsyncClient,
    InvalidName,
    LeaseLost,
    LockArguments,
    StoreError,
)
from leaselock._core.client.validation import checked_name, refuse, refuse_wrapped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from fastapi.dependencies.models import Dependant
    from starlette.applications import Starlette

    from leaselock import AsyncLock, AsyncLockAll

log = logging.getLogger("leaselock.contrib.fastapi")

# How long a request waits for a lock unless it says otherwise, in seconds.
TIMEOUT = 5.0
AGAIN = {"Retry-After": "1"}
# The reasons of a StoreError that may pass by themselves.
OUTAGE = ("unreachable", "refused")
# The attributes of a dependency that have the format strings of its locks' names, and all names.
TEMPLATES, NAMES = "leaselock_templates", "leaselock_names"
# What a request holds, in its scope.
SCOPE = "leaselock"
_SEVERAL = (
    "a request depends on several locks by several locked(...): two requests that acquire them in "
    "different orders would wait for each other. Depend on locked_all(...), with all their names"
)


def lifespan(
    store: Any = None, *, instrument: Callable[[AsyncClient], object] | None = None, **options: Any
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a lifespan that opens an AsyncClient as `app.state.leaselock`, and closes it.

    *store* and *options* are those of AsyncClient. *instrument* is called with the client, such as
    `leaselock.contrib.prometheus.instrument`. Inside a lifespan of your own write
    `async with lifespan(...)(app): yield`. At the start it raises RuntimeError if a lock's name
    needs a parameter that the path of its route does not have.
    """

    @asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        _check_routes(app)
        async with AsyncClient(store, **options) as app.state.leaselock:
            if instrument is not None:
                instrument(app.state.leaselock)
            yield

    return opened


Name: TypeAlias = "str | Callable[..., Any] | Dependency"
Make: TypeAlias = "Callable[..., AbstractAsyncContextManager[Any]]"


def locked(name: Name, **options: Unpack[LockArguments]) -> Any:
    """Return a dependency that holds a lock while a request is handled; its value is the lease.

    *name* is a format string over the parameters of the path, "order:{order}"; or a dependency that
    returns the name: a function, or `Depends(function)`. *options* are those of `AsyncClient.lock`,
    with *owner* "lock", because each request is an owner of its own, and a *timeout* of 5 seconds.
    The client does not see who holds a busy lock. A name that is no format string, or is invalid
    whatever the parameters are, raises ValueError.

    A request that needs several locks depends on `locked_all`: two `locked` of different names
    raise RuntimeError at the start, because two requests could wait for each other. Of the same
    name, they are one lock.

    >>> @app.post("/checkout")
    ... async def checkout(lease: Annotated[AsyncLease, locked(of_user, timeout=2)]): ...
    """
    return _dependency((name,), options, _one)


def locked_all(*names: Name, **options: Unpack[LockArguments]) -> Any:
    """Return a dependency that holds several locks while a request is handled, all or none; its
    value is their `AsyncLeases`.

    They are acquired in the order of their names, within one *timeout*, so that requests cannot
    wait for each other. The same name twice is one lock. Otherwise as `locked`.

    >>> @app.post("/accounts/{source}/transfer/{target}")
    ... async def transfer(
    ...     leases: Annotated[AsyncLeases, locked_all("account:{source}", "account:{target}")]
    ... ): ...
    """
    if not names:
        raise ValueError("locked_all needs the names of locks")
    return _dependency(names, options, _several)


class _Locked(Dependency):
    """The dependency, which is no decorator."""

    def __call__(self, *_: object) -> NoReturn:
        raise TypeError(
            "locked is no decorator: write `lease: Annotated[AsyncLease, locked(...)]` as a "
            "parameter of the function, or @app.post(path, dependencies=[locked(...)])"
        )


def _dependency(names: Sequence[Name], arguments: LockArguments, make: Make) -> Any:
    how: dict[str, Any] = {"owner": "lock", "timeout": TIMEOUT, **arguments}
    refuse("guard", how.keys() - LockArguments.__annotations__)
    needed = [_needed(name) for name in names]

    async def held(request: Request, **found: Any) -> AsyncIterator[Any]:
        texts = [
            _rendered(each, request) if isinstance(each, str) else found[f"name_{number}"]
            for number, each in enumerate(needed)
        ]
        async with _held(request, texts, functools.partial(make, how=how)) as lease:
            yield lease

    by_keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("request", by_keyword, annotation=Request)]
    for number, each in enumerate(needed):
        if not isinstance(each, str):
            annotation = Annotated[Any, each]
            name = f"name_{number}"
            parameters.append(inspect.Parameter(name, by_keyword, annotation=annotation))
    held.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    setattr(held, TEMPLATES, tuple(each for each in needed if isinstance(each, str)))
    setattr(held, NAMES, frozenset(names))
    # Before the response is sent: what has lost its lock is not answered with success.
    return _Locked(held, scope="function")


def _needed(name: Name) -> str | Dependency:
    """What a request needs for the name of a lock: a format string, or a dependency."""
    refuse_wrapped(name, "locked(...)")
    if isinstance(name, str):
        if not _fields(name):
            checked_name(name.format())
        return name
    return name if isinstance(name, Dependency) else Depends(name)


@asynccontextmanager
async def _held(request: Request, names: list[str], make: Callable[..., Any]) -> AsyncIterator[Any]:
    """Hold the locks for a request, and answer it where that fails."""
    client: AsyncClient | None = getattr(request.app.state, "leaselock", None)
    if client is None:
        raise RuntimeError(
            "this application has no client of leaselock: give it lifespan=lifespan(...); "
            "that of an application in which it is mounted does not count"
        )
    # What this request holds already, by dependencies before this one.
    holds: dict[tuple[str, ...], Any] = request.scope.setdefault(SCOPE, {})
    wanted = tuple(sorted(set(map(str, names))))
    if wanted in holds:
        yield holds[wanted]
        return
    if holds:
        raise RuntimeError(_SEVERAL)
    entered = False
    try:
        async with make(client, names) as lease:
            entered, holds[wanted] = True, lease
            try:
                yield lease
            finally:
                del holds[wanted]
    except Exception as error:
        if (answer := _answer(error, names, entered=entered)) is None:
            raise
        raise answer from error


def _answer(error: Exception, names: list[str], *, entered: bool) -> HTTPException | None:
    """The answer to a request whose lock was not acquired or not held; None for an error of its
    function, which may be about a lock of its own.
    """
    if isinstance(error, LeaseLost) and error.name in names:
        return HTTPException(503, f"{error.name!r} was lost", AGAIN)
    if entered:
        return None
    if isinstance(error, InvalidName):  # by a parameter of the path, which the client has chosen
        return HTTPException(422, str(error))
    if isinstance(error, AcquireTimeout):
        return HTTPException(423, f"{error.name!r} is locked", AGAIN)
    if isinstance(error, StoreError) and error.reason in OUTAGE:
        log.warning("answered 503, because the store of locks does not answer: %s", error)
        return HTTPException(503, "the store of locks does not answer", AGAIN)
    return None


def _one(client: AsyncClient, names: list[str], how: dict[str, Any]) -> AsyncLock:
    return client.lock(names[0], **how)


def _several(client: AsyncClient, names: list[str], how: dict[str, Any]) -> AsyncLockAll:
    return client.lock_all([client.lock(name, **how) for name in names], timeout=how["timeout"])


def _fields(template: str) -> set[str]:
    """The parameters that a format string needs."""
    fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    return {field.replace("[", ".").split(".")[0] for field in fields}


def _check_routes(app: Starlette) -> None:
    """RuntimeError for a lock whose name needs what the path of its route does not have."""
    for route in _routes(app):
        dependant: Dependant | None = getattr(route, "dependant", None)
        known = getattr(route, "param_convertors", {})
        locks = list(_locks(dependant)) if dependant else []
        if len({getattr(lock, NAMES) for lock in locks}) > 1:
            raise RuntimeError(f"{getattr(route, 'path', route)}: {_SEVERAL}")
        for template in [name for lock in locks for name in getattr(lock, TEMPLATES)]:
            if missing := sorted(_fields(template) - set(known)):
                raise RuntimeError(_unknown(template, repr(missing[0]), known))


def _routes(app: Starlette) -> Iterator[object]:
    """The routes, those of routers included: newer versions of FastAPI keep a router as one."""
    for route in app.routes:
        included = getattr(route, "effective_route_contexts", None)
        yield from included() if included else (route,)


def _locks(dependant: Dependant) -> Iterator[object]:
    """The locks that a route depends on."""
    if hasattr(dependant.call, TEMPLATES):
        yield dependant.call
    for each in dependant.dependencies:
        yield from _locks(each)


def _unknown(template: str, missing: object, known: Iterable[str]) -> str:
    return (
        f"the lock's name {template!r} needs {missing}, which is no parameter of the path: it has "
        f"{', '.join(known) or 'none'}"
    )


def _rendered(name: str, request: Request) -> str:
    """The name of the lock for a request."""
    try:
        return name.format(**request.path_params)
    except LookupError as error:
        raise RuntimeError(_unknown(name, error, request.path_params)) from error
