"""What the page refuses: other hosts, other sites, other files, and to break locks."""

from __future__ import annotations

import logging
import re
from importlib import resources
from typing import TYPE_CHECKING

import pytest
from tests.web.users import BASE, run, site

import leaselock
from leaselock._web import application
from leaselock._web.security import HEADERS, POLICY

if TYPE_CHECKING:
    from tests.web.users import Site

TOKEN = "the-token"
HEAD = {"Authorization": f"Bearer {TOKEN}"}
PATHS = ("/", "/page.js", "/api/info", "/api/locks", "/metrics", "/healthz", "/none")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8470", 200),
        ("localhost", 200),
        ("LOCALHOST:9000", 200),
        ("[::1]:8470", 200),
        ("10.1.2.3", 200),  # an address: no name server can point it at another machine
        ("locks.example", 200),
        ("locks.example:443", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost.attacker.example:8470", 421),
        ("[::1].attacker.example", 421),
        ("user@127.0.0.1", 421),
        ("", 421),
    ],
)
def test_the_host_header_names_this_server(host: str, status: int) -> None:
    async def play() -> None:
        async with site(hosts=["Locks.example"]) as own:
            for path in ("/", "/api/info", "/metrics"):
                reply = await own.http.get(path, headers={"Host": host})
                assert reply.status_code == status, path
            body = {"name": "a", "token": 1, "message": "why"}
            reply = await own.http.post("/api/break", json=body, headers={"Host": host})
            assert reply.status_code == (403 if status == 200 else status)

    run(play)


def test_two_host_headers_are_refused() -> None:
    async def play() -> None:
        async with site() as own:
            headers = [("Host", "127.0.0.1:8470"), ("Host", "attacker.example")]
            assert (await own.http.get("/api/locks", headers=headers)).status_code == 421

    run(play)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": BASE}, 200),
        ({"Origin": "https://127.0.0.1:8470"}, 200),  # behind a proxy that ends TLS
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        # A link on another site may lead here; the page cannot be framed.
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
def test_requests_for_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    async def play() -> None:
        async with site() as own:
            assert (await own.http.get("/api/locks", headers=headers)).status_code == status

    run(play)


def test_every_response_has_the_headers() -> None:
    async def play() -> None:
        async with site() as own:
            for path in PATHS:
                for host in ("localhost", "attacker.example"):
                    reply = await own.http.get(path, headers={"Host": host})
                    assert {name: reply.headers[name] for name in HEADERS} == HEADERS
                    assert "access-control-allow-origin" not in reply.headers

    run(play)


def test_the_policy_allows_nothing_inline() -> None:
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    folder = resources.files("leaselock._web") / "static"
    page = (folder / "index.html").read_text("utf-8")
    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    # Every file that the page names is one of ours.
    assert set(re.findall(r'(?:src|href)="([\w.]+\.\w+)"', page)) <= application.FILES.keys()
    for name in ("page.js", "graph.js"):
        script = (folder / name).read_text("utf-8")
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
        assert not re.findall(r"https?://(?!www\.w3\.org/)", script)


@pytest.mark.parametrize(
    "path",
    [
        *("/static/", "/static/page.js", "/openapi.json", "/__init__.py", "/application.py"),
        *("/../security.py", "/%2e%2e/security.py", "/page.js/x", "/./page.js%00", "//etc/passwd"),
    ],
)
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    async def play() -> None:
        async with site() as own:
            assert (await own.http.get(BASE + path)).status_code == 404

    run(play)


def test_nothing_but_break_accepts_a_post() -> None:
    async def play() -> None:
        async with site(break_token=TOKEN) as own:
            for route in own.page.routes():
                if route.path != "/api/break":
                    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                        reply = await own.http.request(method, route.path, headers=HEAD)
                        assert reply.status_code == 405, route.path
            assert (await own.http.get("/api/break", headers=HEAD)).status_code == 405

    run(play)


# --- breaking -----------------------------------------------------------------------------------


async def held(own: Site, name: str = "order:5") -> leaselock.AsyncLease:
    """A lease of another client."""
    other = leaselock.AsyncClient(own.client.url)
    lease = await other.lock(name).acquire()
    lease.test_client = other  # type: ignore[attr-defined]
    return lease


async def lost(lease: leaselock.AsyncLease) -> bool:
    """Whether the lease was lost; it and its client end here."""
    try:
        await lease.release()
    except leaselock.LeaseLost:
        return True
    else:
        return False
    finally:
        await lease.test_client.close()  # type: ignore[attr-defined]


def test_the_page_is_read_only_by_default() -> None:
    async def play() -> None:
        async with site() as own:
            lease = await held(own)
            assert not (await own.get("/api/info"))["can_break"]
            body = {"name": "order:5", "token": lease.token, "message": "why"}
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
                reply = await own.http.post("/api/break", json=body, headers=headers)
                assert (reply.status_code, reply.json()["error"]) == (403, "permission")
            assert not await lost(lease)

    run(play)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer other"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": "Bearer \xff"}, 401),
        ({"Cookie": f"token={TOKEN}"}, 401),
        # What a form of another site can send without asking before.
        (HEAD | {"Content-Type": "text/plain"}, 415),
        (HEAD | {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (HEAD | {"Origin": "https://attacker.example"}, 403),
        (HEAD | {"Sec-Fetch-Site": "cross-site"}, 403),
        (HEAD | {"Sec-Fetch-Mode": "navigate", "Origin": "null"}, 403),
        (HEAD | {"Host": "attacker.example"}, 421),
    ],
)
def test_breaking_needs_the_token_and_this_site(headers: dict[str, str], status: int) -> None:
    async def play() -> None:
        async with site(break_token=TOKEN) as own:
            lease = await held(own)
            body = {"name": "order:5", "token": lease.token, "message": "why"}
            encoded = {n.encode(): value.encode("latin-1") for n, value in headers.items()}
            reply = await own.http.post("/api/break", json=body, headers=encoded)
            assert reply.status_code == status
            assert not await lost(lease)

    run(play)


BODIES = [
    *(b"", b"{", b"[]", b"null", b'"text"', b"{}", b"\xff", b"[" * 10_000),
    b'{"name": "order:5", "token": 1}',
    b'{"name": "order:5", "token": "1", "message": "why"}',
    b'{"name": "order:5", "token": true, "message": "why"}',
    b'{"name": "order:5", "token": null, "message": "why"}',
    b'{"name": 5, "token": 1, "message": "why"}',
    b'{"name": "order:5", "token": 1, "message": " "}',
    b'{"name": "order:5", "token": 1, "message": "%s"}' % (b"x" * 1001),
    b'{"name": "%s", "token": 1, "message": "why"}' % (b"x" * 20_000),
]


def test_wrong_bodies_are_refused() -> None:
    async def play() -> None:
        async with site(break_token=TOKEN) as own:
            headers = HEAD | {"Content-Type": "application/json"}
            for body in BODIES:
                reply = await own.http.post("/api/break", content=body, headers=headers)
                assert (reply.status_code, reply.json()["error"]) == (400, "usage"), body

    run(play)


def test_one_grant_is_broken_and_no_later_one(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with site(break_token=TOKEN) as own:
            await own.read()
            lease = await held(own)  # younger than what was read
            body = {"name": "order:5", "token": lease.token - 1, "message": "why"}
            reply = await own.http.post("/api/break", json=body, headers=HEAD)
            assert (reply.status_code, reply.json()["error"]) == (409, "not held")
            body = {"name": "order:5", "token": lease.token, "message": "gone\nforged line"}
            reply = await own.http.post("/api/break", json=body, headers=HEAD)
            assert reply.status_code == 200
            assert reply.json()["broken"]["token"] == lease.token
            for _ in range(2):  # with the view of before, and with a new one
                reply = await own.http.post("/api/break", json=body, headers=HEAD)
                assert reply.status_code == 409
                await own.read()
            changes = (await own.get("/api/lock", name="order:5"))["changes"]
            assert "broken" in [change["kind"] for change in changes]
            assert await lost(lease)

    with caplog.at_level(logging.WARNING, "leaselock.web"):
        run(play)
    texts = [one.getMessage() for one in caplog.records if one.name == "leaselock.web"]
    before, broke, *after = texts
    assert "did not break 'order:5'" in before
    assert "broke 'order:5'" in broke
    assert all("did not break 'order:5'" in text for text in after)
    assert all("'gone\\nforged line'" in text for text in (broke, *after))
    assert len(after) == 2


def test_a_store_that_fails_is_reported_to_who_breaks() -> None:
    async def play() -> None:
        async with site(break_token=TOKEN) as own:
            lease = await held(own)
            await own.get("/api/locks")
            await own.client.close()  # every request fails from now on
            body = {"name": "order:5", "token": lease.token, "message": "why"}
            reply = await own.http.post("/api/break", json=body, headers=HEAD)
            assert (reply.status_code, reply.json()["error"]) == (503, "unreachable")
            assert not await lost(lease)

    run(play)
