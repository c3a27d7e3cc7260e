"""FastAPI: the dependency, in one process; verification/frameworks/test_web_servers.py has four."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request

import leaselock
from leaselock import AsyncLease, AsyncLeases
from leaselock.contrib.fastapi import lifespan, locked, locked_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDER = locked("order:{order}", timeout=0.0)
Held = Annotated[AsyncLease, ORDER]


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """An application whose requests lock, and a client of it."""
    app = FastAPI(lifespan=lifespan(url, label="web"))

    @app.post("/orders/{order}")
    async def charge(order: int, lease: Held) -> dict[str, Any]:
        return {"order": order, "fence": lease.token}

    @app.post("/plain/{order}")
    def plain(order: int, lease: Held) -> dict[str, Any]:
        return {"order": order, "fence": lease.token}

    @app.post("/lost/{order}")
    async def lost(request: Request, lease: Held) -> str:
        await request.app.state.leaselock.break_lock(lease.name)
        return "done"

    @app.post("/cancelled/{order}")
    async def cancelled(request: Request, lease: Held) -> str:
        await request.app.state.leaselock.break_lock(lease.name)
        await lease.extend(60.0)
        return "done"

    @app.post("/nested/{order}")
    async def nested(request: Request, lease: Held) -> str:
        async with request.app.state.leaselock.lock("another", timeout=0):
            return "done"

    @app.post("/inner/{order}")
    async def inner(request: Request, lease: Held) -> str:
        client = request.app.state.leaselock
        async with client.lock("inner") as other:
            await client.break_lock("inner")
            await other.extend(60.0)
        return "done"

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


def test_the_client_of_the_application_is_instrumented(url: str) -> None:
    events: list[str] = []

    def instrument(client: leaselock.AsyncClient) -> None:
        client.on_event(lambda event: events.append(event.kind))

    async def play() -> None:
        app = FastAPI(lifespan=lifespan(url, instrument=instrument))
        async with app.router.lifespan_context(app), app.state.leaselock.lock("order:5"):
            pass

    asyncio.run(play())
    assert "granted" in events


@pytest.mark.parametrize("path", ["orders", "plain"])
def test_a_request_holds_its_lock(url: str, path: str) -> None:
    async def play() -> None:
        async with serving(url) as web, leaselock.AsyncClient(url) as other:
            first, second = [(await web.post(f"/{path}/5")).json()["fence"] for _ in range(2)]
            assert first < second
            async with other.lock("order:5"):
                busy = await web.post(f"/{path}/5")
                assert (busy.status_code, busy.json()) == (423, {"detail": "'order:5' is locked"})
                assert busy.headers["Retry-After"] == "1"
                assert (await web.post(f"/{path}/6")).status_code == 200

    asyncio.run(play())


@pytest.mark.parametrize("path", ["lost", "cancelled"])
def test_a_request_whose_lease_is_lost_does_not_succeed(url: str, path: str) -> None:
    async def play() -> None:
        async with serving(url) as web:
            lost = await web.post(f"/{path}/5")
            assert (lost.status_code, lost.json()) == (503, {"detail": "'order:5' was lost"})
            assert (await web.post("/orders/5")).status_code == 200

    asyncio.run(play())


def test_errors_of_the_function_stay_its_own(url: str) -> None:
    async def play() -> None:
        async with serving(url) as web, leaselock.AsyncClient(url) as other:
            async with other.lock("another"):
                assert (await web.post("/nested/5")).status_code == 500
            assert (await web.post("/nested/5")).status_code == 200

    asyncio.run(play())


def test_a_lost_lock_of_the_function_is_not_taken_for_that_of_the_request(url: str) -> None:
    async def play() -> None:
        async with serving(url) as web:
            assert (await web.post("/inner/5")).status_code == 500

    asyncio.run(play())


def test_a_name_that_the_request_makes_too_long_is_an_error_of_the_request(url: str) -> None:
    app = FastAPI(lifespan=lifespan(url))

    @app.get("/files/{name}", dependencies=[locked("file:{name}")])
    async def file(name: str) -> str:
        return name

    async def play() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as web,
        ):
            assert (await web.get("/files/a")).status_code == 200
            refused = await web.get(f"/files/{'a' * 300}")
            assert (refused.status_code, "255 bytes" in refused.text) == (422, True)

    asyncio.run(play())


@asynccontextmanager
async def visiting(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan is played."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as web,
    ):
        yield web


def test_an_application_without_a_client_is_told_so() -> None:
    app = FastAPI()
    app.get("/orders/{order}", dependencies=[ORDER])(lambda: None)

    async def play() -> None:
        async with visiting(app) as web:
            await web.get("/orders/5")

    with pytest.raises(RuntimeError, match="no client of leaselock"):
        asyncio.run(play())


@pytest.mark.parametrize("where", ["route", "router", "nested"])
def test_a_name_that_the_path_cannot_complete_is_an_error_at_the_start(
    url: str, where: str
) -> None:
    app, router = FastAPI(lifespan=lifespan(url)), APIRouter(prefix="/shop")

    def nested(lease: Held) -> None: ...

    depends = Depends(nested) if where == "nested" else ORDER
    target = app if where == "route" else router
    target.get("/orders/{number}", dependencies=[depends])(lambda: None)
    app.include_router(router)

    async def play() -> None:
        async with visiting(app):
            raise AssertionError("it has started")

    message = "needs 'order', which is no parameter of the path: it has number"
    with pytest.raises(RuntimeError, match=message):
        asyncio.run(play())


def test_a_name_that_is_never_valid_is_an_error_where_it_is_written() -> None:
    for name in ("", "a" * 300, "order:{order", "order:}"):
        with pytest.raises(ValueError, match=r"name|expected|Single"):
            locked(name)


async def user(authorization: Annotated[str, Header()] = "") -> str:
    if not authorization:
        raise HTTPException(401)
    return authorization


def of_user(name: Annotated[str, Depends(user)]) -> str:
    return f"user:{name}"


@pytest.mark.parametrize("form", ["function", "Depends"])
def test_a_lock_for_each_user(url: str, form: str) -> None:
    """Its name is that of a dependency, which has dependencies of its own."""
    app = FastAPI(lifespan=lifespan(url))

    held = locked(of_user if form == "function" else Depends(of_user), timeout=0)

    async def checkout(lease: AsyncLease) -> str:
        return lease.name

    checkout.__annotations__["lease"] = Annotated[AsyncLease, held]
    app.post("/checkout")(checkout)

    async def play() -> None:
        async with visiting(app) as web, leaselock.AsyncClient(url) as other:
            async with other.lock("user:ann"):
                busy = await web.post("/checkout", headers={"Authorization": "ann"})
                assert busy.status_code == 423
                free = await web.post("/checkout", headers={"Authorization": "ben"})
                assert (free.status_code, free.json()) == (200, "user:ben")
            assert (await web.post("/checkout")).status_code == 401
            long = await web.post("/checkout", headers={"Authorization": "a" * 300})
            assert long.status_code == 422

    asyncio.run(play())


def test_a_synchronous_client_excludes_the_requests_of_one_loop(url: str) -> None:
    """Each request is a task, and owns what it acquires; none waits for another one in its loop."""
    app, account = FastAPI(), {"balance": 0}
    client = leaselock.Client(url)

    @app.post("/deposit")
    async def deposit() -> None:
        with client.lock("account"):
            read = account["balance"]
            await asyncio.sleep(0)
            account["balance"] = read + 1

    async def requests() -> list[int]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as browser:
            answers = await asyncio.gather(*(browser.post("/deposit") for _ in range(60)))
        return [answer.status_code for answer in answers]

    with client:
        codes = asyncio.run(requests())
    assert set(codes) <= {200, 500}
    assert account["balance"] == codes.count(200) > 0


Both = Annotated[AsyncLeases, locked_all("account:{a}", "account:{b}", timeout=30)]


def test_requests_for_several_locks_do_not_wait_for_each_other(url: str) -> None:
    """In whatever order they name them; the same name twice is one lock."""
    app = FastAPI(lifespan=lifespan(url))
    inside: set[str] = set()

    @app.post("/{a}/to/{b}")
    async def transfer(a: str, b: str, leases: Both) -> list[str]:
        assert not inside & {a, b}
        inside.update((a, b))
        await asyncio.sleep(0)
        inside.difference_update((a, b))
        return [lease.name for lease in leases.leases]

    async def play() -> None:
        async with visiting(app) as web, leaselock.AsyncClient(url) as other:
            paths = ["/1/to/2", "/2/to/1"] * 8
            answers = await asyncio.gather(*(web.post(path) for path in paths))
            assert {answer.status_code for answer in answers} == {200}
            assert answers[1].json() == ["account:1", "account:2"]
            assert (await web.post("/1/to/1")).json() == ["account:1"]
            assert (await web.post(f"/1/to/{'a' * 300}")).status_code == 422
            assert not await other.lock("account:1").locked()

    asyncio.run(play())


def test_several_busy_locks_are_answered_with_the_one_that_is_held(url: str) -> None:
    app = FastAPI(lifespan=lifespan(url))
    both = locked_all("account:{a}", "account:{b}", timeout=0)
    app.post("/{a}/to/{b}", dependencies=[both])(lambda: None)

    async def play() -> None:
        async with visiting(app) as web, leaselock.AsyncClient(url) as other:
            async with other.lock("account:2"):
                busy = await web.post("/1/to/2")
            assert (busy.status_code, busy.json()) == (423, {"detail": "'account:2' is locked"})
            assert not await other.lock("account:1").locked()

    asyncio.run(play())


def test_several_locks_of_one_route_are_one_dependency(url: str) -> None:
    app = FastAPI(lifespan=lifespan(url))
    locks = [locked("account:{a}"), locked("account:{b}")]
    app.post("/{a}/to/{b}", dependencies=locks)(lambda: None)

    async def play() -> None:
        async with visiting(app):
            raise AssertionError("it has started")

    with pytest.raises(RuntimeError, match=r"/\{a\}/to/\{b\}: .*locked_all"):
        asyncio.run(play())


def test_several_locks_are_refused_where_no_lifespan_looks_at_the_routes(url: str) -> None:
    app = FastAPI()
    app.post("/{a}/to/{b}", dependencies=[locked("{a}"), locked("{b}")])(lambda: None)

    async def play() -> None:
        async with visiting(app) as web, leaselock.AsyncClient(url) as app.state.leaselock:
            assert (await web.post("/1/to/1")).status_code == 200
            await web.post("/1/to/2")

    with pytest.raises(RuntimeError, match="locked_all"):
        asyncio.run(play())


def test_a_router_and_its_route_lock_the_same_name_once(url: str) -> None:
    app = FastAPI(lifespan=lifespan(url))
    router = APIRouter(dependencies=[locked("order:{order}")])

    @router.get("/orders/{order}")
    async def order(lease: Annotated[AsyncLease, locked("order:{order}", timeout=0)]) -> str:
        return lease.name

    app.include_router(router)

    async def play() -> None:
        async with visiting(app) as web:
            for _ in range(2):
                found = await web.get("/orders/5")
                assert (found.status_code, found.json()) == (200, "order:5")

    asyncio.run(play())


def test_a_store_that_does_not_answer_is_503_and_a_wrong_one_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = FastAPI(lifespan=lifespan("redis://127.0.0.1:1/0", op_timeout=0.2))
    app.post("/orders/{order}", dependencies=[ORDER])(lambda: None)

    async def play() -> None:
        async with visiting(app) as web:
            outage = await web.post("/orders/5")
            assert outage.status_code == 503
            assert outage.headers["Retry-After"] == "1"
            assert "127.0.0.1" not in outage.text
        (said,) = [each for each in caplog.records if each.name == "leaselock.contrib.fastapi"]
        assert "redis://127.0.0.1:1/0" in said.getMessage()

    asyncio.run(play())


def test_locked_is_no_decorator() -> None:
    with pytest.raises(TypeError, match="is no decorator: write `lease: Annotated"):
        ORDER(lambda: None)
    with pytest.raises(TypeError, match="'timout': did you mean timeout="):
        locked("a", timout=5)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="needs the names"):
        locked_all()
