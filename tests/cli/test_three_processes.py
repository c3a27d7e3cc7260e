"""A deadlock of three processes on a real server: found, marked, and broken."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.circle import circle

from leaselock import AsyncClient
from leaselock._cli.top_screen import Top
from leaselock.live import Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.postgres import Postgres
    from tests.cli.processes import Shell

pytestmark = pytest.mark.heavy
NAMES = ("a", "b", "c")


@pytest.fixture(params=["redis", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store."""
    if request.param == "redis":
        with Redis() as server:
            yield server.url
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        yield postgres.url


async def top_marks_them(url: str) -> None:
    async with AsyncClient(url) as client:
        monitor = Monitor(client, interval=0.1)
        app = Top(monitor)
        async with app.run_test() as pilot:
            while app.view.deadlocked != set(NAMES):
                await pilot.pause(0.1)
            table = app.table
            shown = [str(table.get_row_at(row)[0]) for row in range(table.row_count)]
            assert shown == ["! a", "! b", "! c"]
        await monitor.close()


def test_it_is_found_and_marked(shell: Shell, store: str) -> None:
    shell.env["LEASELOCK_URL"] = store
    processes = circle(shell, *NAMES)
    while (found := shell.run("deadlocks", "--json")).returncode == 0:
        """Not all of them wait yet."""
    (deadlock,) = json.loads(found.stdout)["deadlocks"]
    assert {wait["name"] for wait in deadlock} == set(NAMES)
    assert {wait["waiter"]["pid"] for wait in deadlock} == {each.pid for each in processes}
    listed = shell.run("ls").stdout.splitlines()[1:]
    assert ["(deadlock)" in line for line in listed] == [True] * 3
    assert "deadlock of 3 owners" in shell.run("show", "b").stdout
    asyncio.run(top_marks_them(store))
    # The command that it names ends it.
    advice = shell.run("deadlocks").stdout.splitlines()[-1].partition("leaselock ")[2]
    assert shell.run(*advice.split()).returncode == 0
    assert shell.run("deadlocks").returncode == 0
    printed = [process.communicate()[0] for process in processes]
    assert printed.count("both\n") >= 2, "the third has lost its lock"


def test_a_timeout_breaks_it_in_one_process(shell: Shell, store: str) -> None:
    shell.env["LEASELOCK_URL"] = store
    processes = circle(shell, *NAMES, timeout=0.5)
    printed = sorted(process.communicate()[0] for process in processes)
    assert printed[:2] == ["both\n", "both\n"]
    assert printed[2].startswith("deadlock ")
    assert [process.returncode for process in processes] == [0, 0, 0]
