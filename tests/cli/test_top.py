"""top: the live table of locks, driven by textual's pilot on locks in memory."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from leaselock import AsyncClient, Holder, LeaseLost, LockInfo, NotApplied
from leaselock._cli.top_screen import BreakScreen, Top
from leaselock._cli.top_text import MOST_ROWS
from leaselock.live import Monitor, View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.cli.processes import Shell
    from textual.pilot import Pilot

SMALL = (80, 24)


class SometimesAway(AsyncClient):
    """A client whose store does not answer while it is `away`, or has `many` locks."""

    away = False
    many: Sequence[LockInfo] = ()

    async def locks(self, pattern: str = "*", *, walk: bool = False) -> list[LockInfo]:
        if self.away:
            raise NotApplied("connection refused")
        if self.many:
            return [*self.many]
        return await super().locks(pattern, walk=walk)


class SteppedMonitor(Monitor):
    """Reads the store when the test asks for it."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client, interval=0.0)
        self.step = asyncio.Event()

    async def next(self, seen: int = 0) -> View:
        await self.step.wait()
        self.step.clear()
        return await super().next(seen)


class Session:
    """A running `top`, and the locks that it shows."""

    def __init__(
        self, client: SometimesAway, monitor: SteppedMonitor, app: Top, pilot: Pilot[int]
    ) -> None:
        self.client = client
        self.monitor = monitor
        self.app = app
        self.pilot = pilot
        self.tasks: list[asyncio.Task[None]] = []

    async def until(self, condition: Callable[[], object]) -> None:
        """Read the store until the screen shows something."""
        await self.read()
        while not condition():
            await self.read()

    async def read(self) -> None:
        """Read the store once, and wait for the next view or the end of the program."""
        number = self.monitor.view.number
        self.monitor.step.set()
        while self.monitor.view.number == number:
            assert self.app.is_running
            await asyncio.sleep(0.001)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def text(self, selector: str) -> str:
        return str(self.app.screen_stack[-1].query_one(selector).render())

    def column(self, number: int) -> list[str]:
        table = self.app.table
        return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]

    @property
    def locks(self) -> list[str]:
        return self.column(0)

    def play(self, *names: str, label: str | None = None) -> asyncio.Event:
        """Start a task that acquires locks, one after another, and keeps them; set the event to
        end it.
        """
        stop = asyncio.Event()

        async def hold() -> None:
            leases = [await self.client.lock(name, label=label).acquire() for name in names]
            await stop.wait()
            for lease in reversed(leases):
                await lease.release()

        self.tasks.append(asyncio.create_task(hold()))
        return stop


@asynccontextmanager
async def session(size: tuple[int, int] = SMALL, **options: str) -> AsyncIterator[Session]:
    async with SometimesAway("memory://top") as client:
        monitor = SteppedMonitor(client)
        app = Top(monitor, **options)
        async with app.run_test(size=size) as pilot:
            running = Session(client, monitor, app, pilot)
            yield running
            for task in running.tasks:
                task.cancel()
            await asyncio.gather(*running.tasks, return_exceptions=True)
        await monitor.close()


async def a_lock_comes_and_goes() -> None:
    async with session() as top:
        await top.until(lambda: top.text("#text") == "no locks")
        stop = top.play("order:5", label="nightly")
        await top.until(lambda: top.locks == ["  order:5"])
        assert f":{os.getpid()}/Task" in top.column(1)[0]
        assert "1 held  0 waiting" in top.text("#figures")
        await top.until(lambda: "label: nightly" in top.text("#text"))
        top.play("order:5")
        await top.until(lambda: top.column(4) == ["1"])
        await top.until(lambda: "1. " in top.text("#text"))
        stop.set()
        await top.until(lambda: top.column(4) == ["0"])
        await top.press("e")
        events = top.text("#text")
        assert all(kind in events for kind in ("granted", "released", "waiting"))


async def sort_and_filter() -> None:
    async with session(sort="waiters") as top:
        for name in ("a", "b", "c1", "c2"):
            top.play(name)
        await top.until(lambda: len(top.locks) == 4)
        top.play("b")
        await top.until(lambda: top.locks == ["  b", "  a", "  c1", "  c2"])
        await top.press("down", "slash", "c")
        assert top.locks == ["  c1", "  c2"]
        await top.press("1", "enter")
        assert top.locks == ["  c1"]
        assert "only 'c1'" in top.text("#figures")
        await top.press("escape")
        assert len(top.locks) == 4
        while top.app.sort != "name":
            await top.press("s")
        assert top.locks == ["  a", "  b", "  c1", "  c2"]


async def the_table_has_the_first_of_many_locks() -> None:
    async with session() as top:
        hold = Holder("host", 5, "MainThread", 1e9, "label", 7, None)
        top.client.many = [
            LockInfo(f"order:{number:05}", hold, (), (hold,)) for number in range(20_000)
        ]
        await top.until(lambda: len(top.locks) == MOST_ROWS)
        assert top.locks[-1] == f"  order:{MOST_ROWS - 1:05}"
        assert f"first {MOST_ROWS} of 20000 shown" in top.text("#figures")
        await top.press("slash", *"1999", "9")
        assert top.locks == ["  order:19999"]
        assert "first" not in top.text("#figures")


async def the_cursor_stays_on_its_lock() -> None:
    async with session() as top:
        top.play("b")
        top.play("c")
        await top.until(lambda: len(top.locks) == 2)
        await top.press("down")
        assert top.app.selected_name == "c"
        stop = top.play("a")
        await top.until(lambda: len(top.locks) == 3)
        assert top.app.selected_name == "c"
        stop.set()
        await top.until(lambda: len(top.locks) == 2)
        assert top.app.selected_name == "c"


async def a_lock_is_broken_when_its_name_is_typed() -> None:
    async with session() as top:
        await top.press("b")
        assert not isinstance(top.app.screen, BreakScreen), "there is none to break"
        stop = top.play("a:5")
        await top.until(lambda: top.locks)
        await top.press("b")
        await top.until(lambda: isinstance(top.app.screen, BreakScreen))
        await top.press("a", "enter")
        assert "not its name" in top.text("#answer")
        await top.press("escape")
        await top.until(lambda: not isinstance(top.app.screen, BreakScreen))
        assert await top.client.lock("a:5").holder() is not None
        await top.press("b")
        await top.until(lambda: isinstance(top.app.screen, BreakScreen))
        await top.press("a", "colon", "5", "enter")
        await top.until(lambda: not top.locks)
        await top.press("e")
        assert "broken    a:5" in top.text("#text")
        stop.set()
        with pytest.raises(LeaseLost):
            await top.tasks.pop()


async def a_deadlock_is_marked_without_colours() -> None:
    async with session() as top:
        one, two = top.play("a"), top.play("b")
        top.play("free")
        await top.until(lambda: len(top.locks) == 3)
        one.set()
        two.set()
        both = asyncio.Barrier(2)

        async def cross(first: str, second: str) -> None:
            async with top.client.lock(first):
                await both.wait()
                async with top.client.lock(second):
                    raise AssertionError("unreachable")

        for names in (("a", "b"), ("b", "a")):
            top.tasks.append(asyncio.create_task(cross(*names)))
        await top.until(lambda: top.locks == ["! a", "! b", "  free"])
        assert "1 DEADLOCK " in top.text("#figures")
        await top.until(lambda: "deadlock of 2 owners" in top.text("#text"))


async def the_store_goes_away_and_comes_back() -> None:
    async with session() as top:
        top.play("a")
        await top.until(lambda: top.locks)
        top.client.away = True
        await top.until(lambda: "NO ANSWER as of" in top.text("#figures"))
        assert "connection refused" in top.text("#figures")
        assert top.locks == ["  a"], "the last that is known"
        top.client.away = False
        await top.until(lambda: "1 held" in top.text("#figures"))


async def pause_and_help() -> None:
    async with session() as top:
        await top.press("p")
        top.play("a")
        await top.until(lambda: top.monitor.view.locks)
        assert (top.locks, "PAUSED" in top.text("#figures")) == ([], True)
        await top.press("p")
        await top.until(lambda: top.locks)
        await top.press("question_mark")
        assert "force" in top.text("#text")
        await top.press("question_mark")
        assert not top.app.query_one("#lower").display
        await top.press("d")
        assert top.app.query_one("#lower").display


async def a_wider_terminal_shows_more() -> None:
    async with session() as top:
        top.play("a", label="[red]markup[/red]")
        await top.until(lambda: top.locks)
        assert len(top.app.table.columns) == 6
        assert "[red]markup" in top.text("#text")
        await top.pilot.resize_terminal(160, 40)
        await top.until(lambda: len(top.app.table.columns) == 8)
        assert top.column(7) == ["[red]markup[/red]"]
        await top.pilot.resize_terminal(40, 10)
        await top.until(lambda: len(top.app.table.columns) == 3)
        assert top.locks == ["  a"]


async def a_narrow_terminal_cuts_nothing_that_matters() -> None:
    for width in (40, 50, 60, 70):
        async with session((width, 24), sort="since") as top:
            assert "leaselock top  memory://top" in shown(top.app)[0]
            top.play(*(f"account:{n}" for n in range(20)))
            await top.until(lambda top=top: len(top.locks) == 20)  # type: ignore[misc]
            assert not top.app.table.show_horizontal_scrollbar
            lines = shown(top.app)
            assert "HOLDER" in lines[2]
            assert all(key in lines[-1] for key in ("? help", "q quit"))
            await top.press("b")
            await top.pilot.pause()
            lines = shown(top.app)
            words = " ".join(" ".join(lines).split())
            assert all(each in words for each in ("renewal", "make sure", "Escape: do not"))


def shown(app: Top) -> list[str]:
    """Return the lines of the terminal."""
    return [
        "".join(part.text for part in strip) for strip in app.screen._compositor.render_strips()
    ]


# More than the first tier needs: textual draws each screen in full.
MORE = (sort_and_filter, the_cursor_stays_on_its_lock, pause_and_help, a_wider_terminal_shows_more)
NARROW = a_narrow_terminal_cuts_nothing_that_matters
SCENARIOS = [
    the_table_has_the_first_of_many_locks,
    a_lock_comes_and_goes,
    a_lock_is_broken_when_its_name_is_typed,
    a_deadlock_is_marked_without_colours,
    the_store_goes_away_and_comes_back,
    *(pytest.param(scenario, marks=pytest.mark.heavy) for scenario in (*MORE, NARROW)),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_top(scenario: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_it_needs_a_terminal(shell: Shell) -> None:
    done = shell.run("top")
    assert done.returncode == 64
    assert "top needs a terminal: leaselock ls --watch does not" in done.stderr
