"""Locks for FastAPI and Starlette: one client for the application, and a dependency for requests.

    app = FastAPI(lifespan=lifespan("redis://localhost:6379/0"))

    @app.post("/orders/{order}/charge")
    async def charge(order: int, lease: Annotated[AsyncLease, locked("order:{order}")]):
        ...

The lock is acquired before the function runs, and released when it has returned, before the
response is sent. A busy lock is answered with 423 (Locked), a lost lease with 503.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import Depends, HTTPException, Request

from leaselock import AcquireTimeout, AsyncClient, InvalidName, LeaseLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.applications import Starlette

    from leaselock import AsyncLease

# How long a request waits for a lock unless it says otherwise, in seconds.
TIMEOUT = 5.0
AGAIN = {"Retry-After": "1"}


def lifespan(
    store: Any = None, **options: Any
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a lifespan that opens an AsyncClient as `app.state.leaselock`, and closes it.

    *store* and *options* are those of AsyncClient. Inside a lifespan of your own write
    `async with lifespan(...)(app): yield`.
    """

    @asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        async with AsyncClient(store, **options) as app.state.leaselock:
            yield

    return opened


def locked(name: str, *, timeout: float | None = TIMEOUT, **options: Any) -> Any:
    """Return a dependency that holds a lock while a request is handled; its value is the lease.

    *name* is a format string over the parameters of the path: "order:{order}". *timeout* and
    *options* are those of `AsyncClient.lock`. Each request is an owner of its own. The client does
    not see who holds a busy lock.
    """

    async def held(request: Request) -> AsyncIterator[AsyncLease]:
        client: AsyncClient | None = getattr(request.app.state, "leaselock", None)
        if client is None:
            raise RuntimeError(
                "this application has no client of leaselock: give it lifespan=lifespan(...); "
                "that of an application in which it is mounted does not count"
            )
        rendered = _rendered(name, request)
        try:
            lock = client.lock(rendered, timeout=timeout, owner="lock", **options)
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

    # Before the response is sent: what has lost its lock is not answered with success.
    return Depends(held, scope="function")


def _rendered(name: str, request: Request) -> str:
    """The name of the lock for a request."""
    try:
        return name.format(**request.path_params)
    except LookupError as error:
        known = ", ".join(request.path_params) or "none"
        raise RuntimeError(
            f"the lock's name {name!r} needs {error}, which is no parameter of the path: it has "
            f"{known}"
        ) from error
