"""Locks for FastAPI and Starlette: one client for the application, and a dependency for requests.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0"))

    @app.post("/orders/{order}/charge")
    async def charge(order: int, lease: Annotated[AsyncLease, locked("order:{order}")]):
        ...

The lock is acquired before the function runs, and released when it has returned, before the
response is sent. A busy lock is answered with 423 (Locked), a lost lease with 503. The name may be
that of a dependency, such as one that knows the user:

    def of_user(user: Annotated[User, Depends(current_user)]) -> str:
        return f"user:{user.id}"

    @app.post("/checkout")
    async def checkout(lease: Annotated[AsyncLease, locked(of_user)]): ...
"""

from __future__ import annotations

import string
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.params import Depends as Dependency

from leaselock import AcquireTimeout, AsyncClient, InvalidName, LeaseLost
from leaselock._core.validation import checked_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager

    from fastapi.dependencies.models import Dependant
    from starlette.applications import Starlette

    from leaselock import AsyncLease

# How long a request waits for a lock unless it says otherwise, in seconds.
TIMEOUT = 5.0
AGAIN = {"Retry-After": "1"}
# The attribute of a dependency that has the format string of its lock's name.
TEMPLATE = "leaselock_name"


def lifespan(
    store: Any = None, **options: Any
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a lifespan that opens an AsyncClient as `app.state.leaselock`, and closes it.

    *store* and *options* are those of AsyncClient. Inside a lifespan of your own write
    `async with lifespan(...)(app): yield`. At the start it raises RuntimeError if a lock's name
    needs a parameter that the path of its route does not have.
    """

    @asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        _check_routes(app)
        async with AsyncClient(store, **options) as app.state.leaselock:
            yield

    return opened


def locked(
    name: str | Callable[..., Any] | Dependency, *, timeout: float | None = TIMEOUT, **options: Any
) -> Any:
    """Return a dependency that holds a lock while a request is handled; its value is the lease.

    *name* is a format string over the parameters of the path, "order:{order}"; or a dependency that
    returns the name: a function, or `Depends(function)`. *timeout* is in seconds; it and *options*
    are those of `AsyncClient.lock`, with *owner* "lock": each request is an owner of its own. The
    client does not see who holds a busy lock. A name that is no format string, or is invalid
    whatever the parameters are, raises ValueError.

    >>> @app.post("/checkout")
    ... async def checkout(lease: Annotated[AsyncLease, locked(of_user, timeout=2)]): ...
    """
    options.setdefault("owner", "lock")
    if isinstance(name, str):
        template: str | None = name
        if not _fields(name):
            checked_name(name.format())

        async def named(request: Request) -> str:
            return _rendered(name, request)

        given = Depends(named)
    else:
        template = None
        given = name if isinstance(name, Dependency) else Depends(name)

    async def held(request: Request, name: Annotated[Any, given]) -> AsyncIterator[AsyncLease]:
        client: AsyncClient | None = getattr(request.app.state, "leaselock", None)
        if client is None:
            raise RuntimeError(
                "this application has no client of leaselock: give it lifespan=lifespan(...); "
                "that of an application in which it is mounted does not count"
            )
        try:
            lock = client.lock(name, timeout=timeout, **options)
        except InvalidName as error:  # by a parameter of the path, which the client has chosen
            raise HTTPException(422, str(error)) from error
        entered = False
        try:
            async with lock as lease:
                entered = True
                yield lease
        except AcquireTimeout as error:
            if entered:  # an error of the function, about a lock of its own
                raise
            raise HTTPException(423, f"{lock.name!r} is locked", AGAIN) from error
        except LeaseLost as error:
            if error.name != lock.name:  # as above
                raise
            raise HTTPException(503, f"{lock.name!r} was lost", AGAIN) from error

    # Not the text of `from __future__ import annotations`: *given* is local to this call.
    held.__annotations__ = {"request": Request, "name": Annotated[Any, given]}
    setattr(held, TEMPLATE, template)
    # Before the response is sent: what has lost its lock is not answered with success.
    return Depends(held, scope="function")


def _fields(template: str) -> set[str]:
    """The parameters that a format string needs."""
    fields = {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    return {field.replace("[", ".").split(".")[0] for field in fields}


def _check_routes(app: Starlette) -> None:
    """RuntimeError for a lock whose name needs what the path of its route does not have."""
    for route in _routes(app):
        dependant: Dependant | None = getattr(route, "dependant", None)
        known = getattr(route, "param_convertors", {})
        for template in _templates(dependant) if dependant else ():
            if missing := sorted(_fields(template) - set(known)):
                raise RuntimeError(_unknown(template, repr(missing[0]), known))


def _routes(app: Starlette) -> Iterator[object]:
    """The routes, those of routers included: newer versions of FastAPI keep a router as one."""
    for route in app.routes:
        included = getattr(route, "effective_route_contexts", None)
        yield from included() if included else (route,)


def _templates(dependant: Dependant) -> Iterator[str]:
    """The names of the locks that a route depends on."""
    template = getattr(dependant.call, TEMPLATE, None)
    if template is not None:
        yield template
    for each in dependant.dependencies:
        yield from _templates(each)


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
