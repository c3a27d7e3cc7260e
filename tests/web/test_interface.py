"""The JSON interface, its description, the stream of events, and the metrics."""

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from tests.web.users import run, site

import leaselock
from leaselock import Holder, LockInfo, Waiter
from leaselock._web import feed
from leaselock._web.application import (
    FILES,
    MOST_VIEWERS,
    MOST_WAITERS,
    accepts_gzip,
    compressed,
)
from leaselock._web.feed import Feed, detail, graph
from leaselock._web.metrics import BY_FAMILY, StoreMetrics
from leaselock.contrib.labels import MOST_LABELS, OTHERS
from leaselock.live import View, advance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.web.users import Site


def hold(who: str, token: int | None, **more: Any) -> Holder:
    """A hold of the owner *who*, since the time that is its token."""
    fields: dict[str, Any] = {"owner": who, "remaining": 30.0} | more
    return Holder(who, 1, "main", float(token or 0), None, token, **fields)


def wait(who: str, since: float, **more: Any) -> Waiter:
    """A wait of the owner *who*."""
    return Waiter(who, 1, "main", since, None, **({"owner": who} | more))


def lock(name: str, *holds: Holder, waiters: tuple[Waiter, ...] = (), permits: int = 0) -> LockInfo:
    """A lock with holders and waiters."""
    return LockInfo(name, holds[0] if holds else None, waiters, holds, permits)


def view_of(*locks: LockInfo, after: View | None = None, at: float = 1000.0) -> View:
    """A view in which these locks were read."""
    return advance(after or View(), locks, at=at, clock=at)


# --- the description ----------------------------------------------------------------------------


def mismatches(value: Any, schema: Any, components: Any, where: str = "$") -> list[str]:
    """What a document has that its schema does not describe, and the reverse."""
    if "$ref" in schema:
        return mismatches(value, components[schema["$ref"].rpartition("/")[2]], components, where)
    if "oneOf" in schema:
        tried = [mismatches(value, each, components, where) for each in schema["oneOf"]]
        return [] if [] in tried else tried[0]
    if "allOf" in schema:
        merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in schema["allOf"]:
            whole = components[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
            merged["properties"] |= whole["properties"]
            merged["required"] += whole["required"]
        return mismatches(value, merged, components, where)
    return [*wrong_type(value, schema, where), *wrong_parts(value, schema, components, where)]


TYPES: dict[str, Any] = {
    **{"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)},
    **{"integer": int, "number": (int, float)},
}


def wrong_type(value: Any, schema: Any, where: str) -> list[str]:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = any(
        isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    )
    if not fits:
        return [f"{where}: {value!r} is not {kinds}"]
    return [] if value in schema.get("enum", [value]) else [f"{where}: {value!r} is unknown"]


def wrong_parts(value: Any, schema: Any, components: Any, where: str) -> list[str]:
    if isinstance(value, list):
        return [
            text
            for each in value
            for text in mismatches(each, schema["items"], components, f"{where}[]")
        ]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    differ = sorted(value.keys() ^ set(schema["required"]))
    found = [f"{where}: {name} is in one of the two" for name in differ]
    for name in value.keys() & schema["properties"].keys():
        own = schema["properties"][name]
        found += mismatches(value[name], own, components, f"{where}.{name}")
    return found


async def description(own: Site) -> Any:
    """The OpenAPI document."""
    return await own.get("/api/openapi.json")


def test_the_description_names_every_route() -> None:
    async def play() -> None:
        async with site() as own:
            described = {
                (path, method.upper())
                for path, methods in (await description(own))["paths"].items()
                for method in methods
            }
            routes = {
                (route.path, method)
                for route in own.page.routes()
                for method in (route.methods or set()) - {"HEAD"}
            }
            files = {("/", "GET")} | {(f"/{name}", "GET") for name in FILES}
            assert described == routes - files

    run(play)


def test_documents_are_as_described() -> None:
    async def play() -> None:
        token = "the-token"
        async with site(break_token=token) as own, leaselock.AsyncClient(own.client.url) as other:
            openapi = await description(own)
            components = openapi["components"]["schemas"]
            lease = await other.lock("a", label="charge").acquire()
            await other.semaphore("gpus", permits=2).acquire()
            waiter = asyncio.create_task(own.client.lock("a").try_acquire(timeout=10))
            while not await other.lock("a").waiters():
                pass
            checked = []
            for path, methods in openapi["paths"].items():
                content = next(iter(methods.values()))["responses"]["200"]["content"]
                if "get" in methods and "application/json" in content:
                    document = await own.get(path, name="a")
                    schema = content["application/json"]["schema"]
                    assert mismatches(document, schema, components) == [], path
                    checked.append(path)
            assert len(checked) == 5
            stream = streamed(own)
            for name in ("State", "StateChange"):
                _, document = await anext(stream)
                assert mismatches(document, components[name], components) == []
            assert document["deadlocks"] == []
            await stream.aclose()
            body = {"name": "a", "token": lease.token, "message": "why"}
            assert mismatches(body, components["Break"], components) == []
            head = {"Authorization": f"Bearer {token}"}
            reply = await own.http.post("/api/break", json=body, headers=head)
            assert mismatches(reply.json(), components["Broken"], components) == []
            reply = await own.http.post("/api/break", json=body, headers=head)
            assert mismatches(reply.json(), components["Error"], components) == []
            assert await waiter is not None

    run(play)


def test_mismatches_are_found() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    wrong: Any
    for wrong in ({}, {"a": "1"}, {"a": True}, {"a": 1, "b": 2}, []):
        assert mismatches(wrong, schema, {})
    assert not mismatches({"a": 1}, schema, {})


# --- reading ------------------------------------------------------------------------------------


def test_a_lock_is_shown_with_its_queue_and_events() -> None:
    async def play() -> None:
        async with site() as own, leaselock.AsyncClient(own.client.url) as other:
            assert (await own.http.get("/api/lock", params={"name": "a/b?c"})).status_code == 404
            assert (await own.http.get("/api/lock")).status_code == 400
            lease = await other.lock("a/b?c", label="charge").acquire()
            found = await own.get("/api/lock", name="a/b?c")
            assert found["lock"]["holder"]["token"] == lease.token
            assert [change["kind"] for change in found["changes"]] == ["granted"]
            await lease.release()
            found = await own.get("/api/lock", name="a/b?c")
            assert found["lock"] is None
            assert [change["kind"] for change in found["changes"]] == ["granted", "released"]

    run(play)


def test_a_store_that_does_not_answer_is_reported() -> None:
    async def play() -> None:
        async with site() as own:
            await own.client.lock("a").acquire()
            await own.get("/api/locks")
            await own.client.close()
            found = await own.get("/api/locks")
            assert "closed" in found["error"]
            # What was read last is still there.
            assert [lock["name"] for lock in found["locks"]] == ["a"]
            assert (await own.http.get("/healthz")).status_code == 503
            assert "leaselock_store_up 0.0" in (await own.http.get("/metrics")).text

    run(play)


HOSTILE = 'half \ud800 \u202e\n"</script>'


def test_text_that_cannot_be_encoded_is_sent() -> None:
    async def play() -> None:
        holder = hold(HOSTILE, 10)._replace(label=HOSTILE)
        locks = [lock(name, holder, waiters=(wait("web", 20),)) for name in ("a", HOSTILE)]
        async with site() as own:
            monitor = Script()
            monitor.view = view_of(*locks, after=view_of())
            own.page.feed = Feed(monitor)  # type: ignore[arg-type]
            for path in ("/api/locks", "/api/lock", "/api/graph", "/metrics"):
                reply = await own.http.get(path, params={"name": "a"})
                assert reply.status_code == 200, path
            assert "\\ud800" in reply.text
            assert own.page.feed.text(0).isascii()

    run(play)


def test_health() -> None:
    async def play() -> None:
        async with site() as own:
            reply = await own.http.get("/healthz")
            assert (reply.status_code, reply.text) == (200, "ok\n")

    run(play)


# --- the stream ---------------------------------------------------------------------------------


async def streamed(own: Site) -> AsyncGenerator[tuple[str, Any], None]:
    """The events of one viewer: their kinds and documents."""
    response: Any = await own.page.events(Request({"type": "http", "method": "GET", "headers": []}))
    assert response.media_type == "text/event-stream"
    try:
        async for text in response.body_iterator:
            kind, data, *rest = text.split("\n")
            assert rest == ["", ""]
            yield kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
    finally:
        await response.body_iterator.aclose()


def test_the_state_of_many_locks_is_sent_compressed() -> None:
    """Each event is complete when it is sent."""
    locks = 20_000

    async def events() -> AsyncGenerator[str, None]:
        rows = [{"name": f"order:{number}", "token": number * 7_919} for number in range(locks)]
        yield f"event: state\ndata: {json.dumps(rows)}\n\n"
        yield "event: change\ndata: 1\n\n"

    async def play() -> None:
        decompressor = zlib.decompressobj(31)
        stream = compressed(events())
        first = await anext(stream)
        text = decompressor.decompress(first)
        assert text.endswith(b"\n\n")
        assert len(first) < len(text) / 4
        assert decompressor.decompress(await anext(stream)) == b"event: change\ndata: 1\n\n"
        await stream.aclose()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [("gzip, deflate, br", True), ("br;q=1, gzip;q=0.5", True), ("identity", False), ("", False)],
)
def test_only_viewers_that_read_gzip_get_it(accepted: str, expected: bool) -> None:
    headers = [(b"accept-encoding", accepted.encode())]
    assert accepts_gzip(Request({"type": "http", "headers": headers})) is expected


def test_a_viewer_gets_the_state_and_then_changes() -> None:
    async def play() -> None:
        async with site() as own, leaselock.AsyncClient(own.client.url) as other:
            stream = streamed(own)
            kind, state = await anext(stream)
            assert (kind, state["locks"]) == ("state", [])
            lease = await other.lock("a").acquire()
            kind, change = await anext(stream)
            assert (kind, change["gone"]) == ("change", [])
            assert [(row["name"], row["holder"]["token"]) for row in change["locks"]] == [
                ("a", lease.token)
            ]
            _, change = await anext(stream)
            assert (change["gone"], change["changes"]) == ([], [])
            await lease.release()
            _, change = await anext(stream)
            assert (change["locks"], change["gone"]) == ([], ["a"])
            await stream.aclose()
            assert own.page.viewers == 0

    run(play)


def test_the_store_is_read_once_for_all_viewers() -> None:
    async def play() -> None:
        async with site() as own, AsyncExitStack() as stack:
            streams = [streamed(own) for _ in range(10)]
            for stream in streams:
                stack.push_async_callback(stream.aclose)
            for _ in range(5):
                seen = [number for _, number in await asyncio.gather(*map(number_of, streams))]
                assert len(set(seen)) == 1
            assert own.client.reads == seen[0] == 5

    run(play)


async def number_of(stream: AsyncGenerator[tuple[str, Any], None]) -> tuple[str, int]:
    """The kind of the next event of a stream, and the number of its view."""
    kind, document = await anext(stream)
    return kind, document["number"]


def test_streams_end_when_the_server_stops() -> None:
    async def play() -> None:
        async with site(interval=3600.0) as own:
            stream = streamed(own)
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream, None))
            await asyncio.sleep(0)
            own.page.stopping.set()
            assert await waiting is None
            assert own.page.viewers == 0

    run(play)


def test_viewers_are_limited() -> None:
    async def play() -> None:
        async with site() as own:
            own.page.viewers = MOST_VIEWERS
            reply = await own.http.get("/api/events")
            assert (reply.status_code, reply.json()["error"]) == (503, "busy")
            own.page.viewers = 0
            reply = await own.http.head("/api/events")
            assert reply.headers["content-type"].startswith("text/event-stream")

    run(play)


class Script:
    """Stands for a monitor: its views are given."""

    def __init__(self) -> None:
        self.view = View()

    async def next(self, seen: int = 0) -> View:
        """The newest view."""
        return self.view


def test_a_viewer_that_missed_a_view_gets_the_state() -> None:
    async def play() -> None:
        monitor = Script()
        own = Feed(monitor)  # type: ignore[arg-type]
        monitor.view = view_of(lock("a", hold("web", 10)))
        first = (await own.next()).number
        monitor.view = view_of(lock("a", hold("web", 10)), after=monitor.view, at=1001.0)
        second = (await own.next()).number
        assert own.text(first).startswith("event: change")
        monitor.view = view_of(lock("b", hold("web", 11)), after=monitor.view, at=1002.0)
        await own.next()
        assert own.text(first).startswith("event: state")
        assert own.text(second).startswith("event: change")
        assert own.text(0).startswith("event: state")
        # Views that no viewer asked for: their changes are in no text.
        monitor.view = view_of(after=view_of(after=monitor.view, at=1003.0), at=1004.0)
        third = own.view.number
        await own.next()
        assert own.text(third).startswith("event: state")

    run(play)


def test_the_end_of_a_lease_moves_by_renewals_only() -> None:
    first = feed.row(lock("a", hold("web", 10, remaining=30.0)), view_of(at=1000.0), {})
    # Read 10 s later, with a delay of 0.3 s.
    same = feed.row(lock("a", hold("web", 10, remaining=19.7)), view_of(at=1010.0), first)
    assert same == first
    renewed = feed.row(lock("a", hold("web", 10, remaining=29.9)), view_of(at=1010.0), first)
    assert renewed["holder"] == first["holder"] | {"ends": 1039.9}  # type: ignore[operator]
    endless = feed.row(lock("a", hold("web", 10, remaining=None)), view_of(), {})
    assert endless["holder"]["ends"] is None  # type: ignore[index]


def test_a_long_queue_is_cut() -> None:
    many = tuple(wait(f"web-{i}", i) for i in range(1, MOST_WAITERS + 51))
    view = view_of(lock("a", hold("web", 10), waiters=many))
    found: Any = detail(view, "a", MOST_WAITERS)
    assert len(found["lock"]["waiters"]) == MOST_WAITERS
    assert found["lock"]["waiter_count"] == MOST_WAITERS + 50
    row = feed.row(view.locks[0], view, {})
    assert (row["waiters"], row["waiting_since"]) == (MOST_WAITERS + 50, 1)


# --- the graph ----------------------------------------------------------------------------------

DEADLOCK = (
    lock("a", hold("one", 10), waiters=(wait("two", 21), wait("six", 22))),
    lock("b", hold("two", 11), waiters=(wait("one", 20),)),
)
CHAIN = (
    lock("c", hold("three", 12), waiters=(wait("four", 23),)),
    lock("d", hold("four", 13), waiters=(wait("five", 24),)),
)


def edges(document: Any) -> list[tuple[str, str, str]]:
    """Waiter, lock and holder of each wait."""
    hosts = {owner["id"]: owner["host"] for owner in document["owners"]}
    return [(hosts[w["waiter"]], w["name"], hosts[w["holder"]]) for w in document["waits"]]


def test_the_graph_begins_with_deadlocks() -> None:
    view = view_of(*DEADLOCK, *CHAIN, after=view_of(*DEADLOCK, *CHAIN))
    found: Any = graph(view)
    expected = [("one", "b", "two"), ("two", "a", "one"), ("four", "c", "three")]
    assert edges(found)[:2] == expected[:2]
    assert sorted(edges(found)[2:]) == [
        *(("five", "d", "four"), ("four", "c", "three"), ("six", "a", "one"))
    ]
    assert [wait["deadlocked"] for wait in found["waits"]] == [True, True, False, False, False]
    assert {one["host"] for one in found["owners"] if one["deadlocked"]} == {"one", "two"}


def test_the_graph_around_a_lock() -> None:
    view = view_of(*DEADLOCK, *CHAIN)
    assert sorted(edges(graph(view, "c"))) == [("five", "d", "four"), ("four", "c", "three")]
    assert sorted(edges(graph(view, "d"))) == [("five", "d", "four"), ("four", "c", "three")]
    assert len(edges(graph(view, "b"))) == 3
    assert edges(graph(view, "none")) == []


def test_the_graph_is_small() -> None:
    queue = tuple(wait(f"w{i}", i) for i in range(1, 1001))
    view = view_of(lock("a", hold("web", 10), waiters=queue))
    found: Any = graph(view)
    assert len(found["waits"]) == feed.MOST_WAITERS_OF_A_HOLD
    assert found["left_out"] == 1000 - feed.MOST_WAITERS_OF_A_HOLD
    many = [lock(f"l{i}", hold(f"h{i}", 10), waiters=queue[i : i + 1]) for i in range(200)]
    found = graph(view_of(*many))
    assert len(found["waits"]) == feed.MOST_EDGES
    assert found["left_out"] == 200 - feed.MOST_EDGES


# --- metrics ------------------------------------------------------------------------------------


def samples(view: View, own: StoreMetrics | None = None) -> dict[tuple[str, str], float]:
    """The values by metric and family."""
    text, content_type = (own or StoreMetrics(lambda: view)).text("text/plain")
    assert content_type.startswith("text/plain")
    return {
        (sample.name, sample.labels.get("lock", "")): sample.value
        for metric in text_string_to_metric_families(text.decode())
        for sample in metric.samples
    }


def test_metrics_of_the_store() -> None:
    locks = (
        lock("order:5", hold("a", 900), waiters=(wait("b", 950), wait("c", 960))),
        lock("order:6", hold("a", 800)),
        lock("order:7", hold("a", 100, cooling_down=True)),
        lock("gpus", hold("d", 990), hold("e", 991), permits=2),
        lock("foreign", hold("java", None)),
    )
    found = samples(view_of(*locks, after=view_of()))
    expected = {
        "held": (2.0, 1.0),
        "holders": (2.0, 2.0),
        "waiting": (2.0, 0.0),
        "oldest_hold_seconds": (200.0, 10.0),
        # Of order:5, which others wait for; order:6 is older, and has no waiters.
        "oldest_contended_hold_seconds": (100.0, 0.0),
        "oldest_wait_seconds": (50.0, 0.0),
        "deadlocked": (0.0, 0.0),
    }
    for name, values in expected.items():
        names = [(f"leaselock_store_{name}", family) for family in ("order", "gpus")]
        assert tuple(found[key] for key in names) == values, name
    assert found["leaselock_store_up", ""] == 1.0
    assert found["leaselock_store_expired_total", ""] == 0.0
    assert found["leaselock_store_oldest_hold_seconds", "foreign"] == 0.0  # unknown
    assert found["leaselock_store_held", "foreign"] == 1.0
    stuck = samples(view_of(*DEADLOCK, after=view_of(*DEADLOCK)))
    assert stuck["leaselock_store_deadlocked", "a"] == 1.0


def test_a_family_that_is_free_again_is_zero() -> None:
    views = [view_of(lock("order:5", hold("a", 900)))]
    own = StoreMetrics(lambda: views[-1])
    assert samples(views[0], own)["leaselock_store_held", "order"] == 1.0
    views.append(view_of(after=views[0]))
    assert samples(views[1], own)["leaselock_store_held", "order"] == 0.0


def test_the_number_of_series_is_bounded() -> None:
    view = view_of(*(lock(f"job-{i}", hold("a", 900)) for i in range(MOST_LABELS + 300)))
    found = samples(view)
    assert found["leaselock_store_held", OTHERS] == 300.0
    assert len(found) <= (MOST_LABELS + 1) * len(BY_FAMILY) + 10


def test_labels_can_be_printed_and_have_a_bounded_length() -> None:
    names = ["\x1b[2J:1", "a\rb", "\u202etxt", "\ud800", "\x00", "x" * 300_000]
    view = view_of(*(lock(name, hold("a", 900)) for name in names))
    text, _ = StoreMetrics(lambda: view).text("")
    assert text.decode().replace("\n", "").isprintable()
    assert len(text) < 10_000
    found = {label for _, label in samples(view)}
    assert {"\\x1b[2J", "a\\rb", "\\u202etxt", "\\ud800", "\\x00"} < found


@pytest.mark.parametrize("accept", ["", "text/plain", "application/openmetrics-text"])
def test_metrics_are_sent_as_the_server_wants_them(accept: str) -> None:
    async def play() -> None:
        async with site() as own, leaselock.AsyncClient(own.client.url) as other:
            await other.lock("order:5").acquire()
            await own.read()
            reply = await own.http.get("/metrics", headers={"Accept": accept} if accept else {})
            assert reply.headers["content-type"].startswith(accept or "text/plain")
            assert 'leaselock_store_held{lock="order"} 1.0' in reply.text

    run(play)
