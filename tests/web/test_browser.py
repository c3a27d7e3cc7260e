"""The page in a real browser, on a real store: what it shows, by mouse, keyboard and on a phone."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from testkit.servers.chromium import Chromium
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from tests.cli import circle
from tests.web import example_store
from tests.web.serving import served

import leaselock
from leaselock import Holder, LockInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.processes import Shell

pytestmark = pytest.mark.heavy

TOKEN = "the-token-of-this-test"
HOSTILE = "<img src=x onerror=alert(1)>\u202e:5"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def page(browser: Chromium, store: str) -> Iterator[str]:
    """The page is open, in a window of an ordinary size."""
    browser.problems.clear()
    browser.size(1280, 900)
    with served(lambda: leaselock.AsyncClient(store), break_token=TOKEN) as url:
        browser.open(url)
        browser.wait("document.getElementById('status').textContent === 'live'")
        yield url
        assert browser.problems == []
        browser.open("about:blank")  # its stream ends before the server does


def names(browser: Chromium) -> list[str]:
    """The names in the table."""
    found: list[str] = browser.value(
        "[...document.querySelectorAll('#rows td:first-child a')].map((a) => a.textContent)"
    )
    return found


def shown(browser: Chromium, *expected: str) -> None:
    """Wait until the table shows these locks, in this order."""
    eventually(lambda: names(browser) == list(expected))


def focus(browser: Chromium) -> str:
    """The text, or else the id, of the element that has the focus."""
    active = "document.activeElement"
    found: str = browser.value(f"{active}.id || {active}.textContent")
    return found


def test_locks_come_and_go(browser: Chromium, page: str, store: str) -> None:
    assert "No lock is held" in browser.text("#none")
    with leaselock.Client(store, label="charge") as client:
        lease = client.lock("order:5").acquire()
        gpus = client.semaphore("gpus", permits=4).acquire(3)
        shown(browser, "gpus", "order:5")
        assert "3 of 4 permits" in browser.text("#rows tr:first-child")
        assert "charge" in browser.text("#rows tr:last-child")
        eventually(lambda: browser.text("#held") == "2")
        gpus.release()
        shown(browser, "order:5")
        lease.release()
        shown(browser)
    eventually(lambda: "released" in browser.text("#events"))
    assert "granted" in browser.text("#events")


def test_text_of_the_store_is_text(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store, label="</td><script>alert(1)</script>") as client:
        client.lock(HOSTILE).acquire()
        visible = HOSTILE.replace("\u202e", "\\u{202e}")
        shown(browser, visible)
        assert "<script>" in browser.text("#rows tr")
        browser.value("document.querySelector('#rows a').click()")
        browser.wait("document.querySelector('#holds .hold')")
        assert browser.text("#detail-title") == visible
        assert not browser.value("document.querySelectorAll('main img, main script').length")


def test_a_row_opens_on_a_click(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store) as client:
        client.lock("..").acquire()
        client.lock("order:5").acquire()
        shown(browser, "..", "order:5")
        browser.value("document.querySelector('#rows td:nth-child(3)').click()")
        browser.wait("document.querySelector('#holds .hold')")
        assert browser.text("#detail-title") == ".."
        browser.value("document.querySelector('#rows tr:last-child td:last-child').click()")
        browser.wait("document.getElementById('detail-title').textContent === 'order:5'")


def crowded() -> LockInfo:
    """What another program may write."""
    marks = "a" + "\u0301" * 500
    holder = Holder("h" * 300_000, 1, "t" * 300_000, None, marks * 50, 1, None)
    return LockInfo("n" * 50_000, holder, (), (holder,))


class Foreign:
    """Stands for a client of a store with such a lock."""

    url = "redis://other"

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """The locks now."""
        others = [LockInfo(f"order:{i}", None, ()) for i in range(10)]
        return [crowded(), *others]

    async def aclose(self) -> None:
        """There is nothing to close."""


def test_long_texts_and_many_marks_are_cut(browser: Chromium) -> None:
    browser.problems.clear()
    browser.size(1280, 900)
    with served(Foreign) as url:
        browser.open(url)
        browser.wait("document.querySelectorAll('#rows tr').length > 5")
        root = "document.documentElement"
        assert browser.value(f"{root}.scrollWidth") == 1280
        assert browser.value(f"{root}.scrollHeight") < 4_000
        row = "[...document.querySelectorAll('#rows tr')].find((row) => row.textContent[0] === 'n')"
        assert browser.value(f"{row}.offsetHeight") < 600
        marks = browser.value(f"{row}.textContent.match(/\\p{{M}}+/gu).map((run) => run.length)")
        assert max(marks) == 4
        browser.value(f"{row}.cells[2].click()")
        browser.wait("document.querySelector('#holds .hold')")
        assert browser.value(f"{root}.scrollWidth") == 1280
        assert browser.value(f"{root}.scrollHeight") < 4_000
        assert browser.problems == []
        browser.open("about:blank")


def test_a_long_name_is_broken_between_its_words(browser: Chromium, page: str, store: str) -> None:
    name = "tenant:1/com.example.ReservationServiceOfTheWarehouse#reserve_stock_for_the_order"
    with leaselock.Client(store) as client, client.lock(name):
        shown(browser, name)
        parts = browser.value(
            "[...document.querySelectorAll('#rows td:first-child a')[0].childNodes]"
            ".map((node) => node.textContent)"
        )
    assert "".join(parts) == name
    assert [part for part in parts if part] == [
        *("tenant:", "1/", "com.", "example."),
        *("Reservation", "Service", "Of", "The", "Warehouse#"),
        *("reserve_", "stock_", "for_", "the_", "order"),
    ]


class Pairs(Foreign):
    """Stands for a client of a store where one owner waits for each lock."""

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        """The locks now."""
        own = example_store.ExampleStore()
        holders = [own.hold(f"web-{i}:1", 5.0) for i in range(10)]
        waiters = [own.wait(f"job-{i}:1", 5.0) for i in range(10)]
        pairs = enumerate(zip(holders, waiters, strict=True))
        return [LockInfo(f"order:{i}", one, (other,), (one,)) for i, (one, other) in pairs]


def test_the_graph_uses_the_width(browser: Chromium) -> None:
    browser.problems.clear()
    with served(Pairs) as url:
        heights = []
        for width in (1000, 1920):
            browser.size(width, 1000)
            browser.open(f"{url}?{width}")
            browser.wait("document.getElementById('status').textContent === 'live'")
            browser.value("document.getElementById('graph-box').open = true")
            browser.wait("document.querySelectorAll('#graph svg').length")
            heights.append(browser.value("document.querySelector('#graph svg').clientHeight"))
            room = browser.value("document.getElementById('graph').clientWidth")
            assert browser.value("document.querySelector('#graph svg').clientWidth") <= room
        assert heights[1] < heights[0]
        # Up to the right edge, and the page as well.
        assert browser.value("document.querySelector('#graph svg').clientWidth") > 0.9 * room
        assert browser.value("document.querySelector('main').clientWidth") > 1850
        assert browser.problems == []
        browser.open("about:blank")


class Deadlock(Pairs):
    """Two owners that wait for each other, and five that wait for one of them."""

    names = ("a-name-that-is-longer-than-the-picture-is-wide", "account:10")

    def __init__(self) -> None:
        self.store = example_store.ExampleStore()

    async def locks(self, pattern: str = "*") -> list[LockInfo]:
        own = self.store
        holders = [own.hold(f"pay-{i}:1", 5.0) for i in (0, 1)]
        waiters = [own.wait(f"pay-{i}:1", 5.0) for i in (1, 0)]
        more = tuple(own.wait(f"web-{i}:1", 5.0) for i in range(5))
        queues = ((waiters[0],), (waiters[1], *more))
        told = zip(self.names, holders, queues, strict=True)
        return [LockInfo(name, one, queue, (one,)) for name, one, queue in told]


OUTSIDE = """(() => {
  const box = document.querySelector('%s svg').getBoundingClientRect();
  return [...document.querySelectorAll('%s svg text')].map((text) => text.getBoundingClientRect())
    .filter((each) => each.left < box.left || each.right > box.right).length;
})()"""
# Boxes that a line crosses which begins and ends elsewhere.
CROSSED = """(() => {
  const boxes = [...document.querySelectorAll('#graph .node rect')].map((rect) => rect.getBBox());
  const inside = (box, at) => at.x > box.x && at.x < box.x + box.width
    && at.y > box.y && at.y < box.y + box.height;
  return [...document.querySelectorAll('#graph path.edge')].filter((line) =>
    Array.from({length: 99}, (_, i) => line.getPointAtLength(line.getTotalLength() * (i + 1) / 100))
      .some((at) => boxes.some((box) => inside(box, at)))).length;
})()"""


def test_the_graph_cuts_no_name_and_crosses_no_box(browser: Chromium) -> None:
    with served(Deadlock) as url:
        for width in (390, 1280):
            browser.size(width, 1000)
            browser.open(f"{url}?{width}#lock=account%3A10")
            browser.wait("document.querySelectorAll('#detail-graph .node.deadlocked').length === 2")
            browser.value("document.getElementById('graph-box').open = true")
            browser.wait("document.querySelectorAll('#graph .node.deadlocked').length === 2")
            assert [
                browser.value(OUTSIDE % (f"#{each}", f"#{each}"))
                for each in ("graph", "detail-graph")
            ] == [0, 0]
            assert browser.value(CROSSED) == 0
        browser.open("about:blank")


def test_a_deadlock_of_three_is_seen_without_scrolling(browser: Chromium) -> None:
    own = example_store.ExampleStore()
    with served(lambda: own) as url:
        for width in (390, 1280, 1920):
            browser.size(width, 1000)
            browser.open(f"{url}?{width}#lock=account%3A118")
            browser.wait("document.querySelectorAll('#detail-graph .node.deadlocked').length === 3")
            graph = "document.getElementById('detail-graph')"
            assert browser.value(f"{graph}.scrollWidth <= {graph}.clientWidth")
            assert browser.value(f"{graph}.scrollHeight <= {graph}.clientHeight")
        browser.open("about:blank")


def test_by_keyboard(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store) as client:
        for name in ("apple", "banana", "cherry"):
            client.lock(name).acquire()
        shown(browser, "apple", "banana", "cherry")
        browser.press("ArrowDown")
        assert focus(browser) == "apple"
        browser.press("ArrowDown")
        browser.press("Enter")
        browser.wait("!document.getElementById('detail').hidden")
        assert browser.text("#detail-title") == "banana"
        assert focus(browser) == "detail"
        browser.wait("document.querySelector('#holds .hold')")
        browser.press("Escape")
        browser.wait("document.getElementById('detail').hidden")
        assert focus(browser) == "banana"
        browser.press("ArrowUp")
        assert focus(browser) == "apple"
        browser.press("/")
        assert focus(browser) == "filter"
        browser.type("CHERRY")
        shown(browser, "cherry")
        assert browser.text("#count") == "1 of 3"
        browser.press("Escape")
        shown(browser, "apple", "banana", "cherry")
        # The order is turned by its button, which says so to a screen reader.
        browser.value("document.querySelector('th button').focus()")
        browser.press("Enter")
        shown(browser, "cherry", "banana", "apple")
        assert browser.value("document.querySelector('th').ariaSort") == "descending"


def test_the_focus_stays_when_locks_come_and_go(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store) as client:
        client.lock("m").acquire()
        shown(browser, "m")
        browser.press("ArrowDown")
        assert focus(browser) == "m"
        lease = client.lock("a").acquire()
        shown(browser, "a", "m")
        assert focus(browser) == "m"
        lease.release()
        shown(browser, "m")
        assert focus(browser) == "m"


def test_a_deadlock_is_drawn(browser: Chromium, page: str, store: str) -> None:
    ready = threading.Barrier(2)

    def work(first: str, second: str) -> None:
        with locks[first]:
            ready.wait()
            try:
                with locks[second]:
                    pass
            except leaselock.AcquireCancelled:
                return

    with leaselock.Client(store) as client:
        locks = {name: client.lock(name) for name in ("left", "right")}
        pairs = (("left", "right"), ("right", "left"))
        threads = [threading.Thread(target=work, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        eventually(lambda: browser.text("#stuck") == "1")
        assert browser.value("document.querySelectorAll('#deadlock-list li').length") == 2
        assert "leaselock break" in browser.text("#deadlock-list code")
        browser.wait("document.querySelectorAll('#graph path.edge.deadlocked').length === 2")
        assert browser.value("document.querySelectorAll('#graph .node.deadlocked').length") == 2
        assert browser.value("document.title").startswith("(1 deadlocks)")
        # The label of an edge opens its lock.
        browser.value(CLICK % "#graph a text")
        browser.wait("!document.getElementById('detail').hidden")
        assert locks["left"].cancel() == 1
        for thread in threads:
            thread.join()
        browser.wait("document.getElementById('deadlocks').hidden")
    assert browser.text("#stuck") == "0"


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store that other processes can use."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres").url
    else:
        with Redis() as redis:
            yield redis.url


def test_a_deadlock_of_three_processes(browser: Chromium, server: str, shell: Shell) -> None:
    browser.problems.clear()
    browser.size(1280, 900)
    shell.env["LEASELOCK_URL"] = server
    locks = [f"{uuid.uuid4()}-{i}" for i in range(3)]
    processes = circle.holders(shell, *locks)
    with served(lambda: leaselock.AsyncClient(server)) as url:
        browser.open(url)
        circle.close(processes)
        eventually(lambda: browser.text("#stuck") == "1")
        assert browser.value("document.querySelectorAll('#deadlock-list li').length") == 3
        browser.wait("document.querySelectorAll('#graph .node.deadlocked').length === 3")
        assert all(f":{process.pid}" in browser.text("#graph") for process in processes)
        # Follow the advice: one process loses its lock, the others get both of theirs.
        command = browser.value("document.querySelector('#deadlock-list code').textContent")
        assert shell.run(*command.split()[1:]).returncode == 0
        browser.wait("document.getElementById('deadlocks').hidden")
        printed = [process.communicate()[0] for process in processes]
        assert [text for text in printed if "lost" not in text] == ["both\n", "both\n"]
        browser.open("about:blank")
    assert browser.problems == []


def test_a_lock_is_broken(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store) as client:
        lease = client.lock("order:5").acquire()
        browser.open("about:blank")
        browser.open(f"{page}#token={TOKEN}")
        shown(browser, "order:5")
        assert browser.value("location.hash") == ""  # it is not left in the history
        browser.value("document.querySelector('#rows a').click()")
        browser.wait("document.querySelector('.hold button')")
        browser.value("document.querySelector('.hold button').click()")
        assert focus(browser) == "break-name"
        assert not browser.value("document.getElementById('break-token').offsetParent")
        browser.type("order:6")
        browser.value("document.getElementById('break-message').focus()")
        browser.type("its host is gone")
        browser.press("Enter")
        assert "not the name" in browser.text("#break-error")
        browser.value("document.getElementById('break-name').value = 'order:5'")
        browser.press("Enter")
        browser.wait("!document.getElementById('breaking').open")
        eventually(lambda: "broken" in browser.text("#detail-events"))
        assert client.lock("order:5").holder() is None
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_a_wrong_token_is_asked_for_again(browser: Chromium, page: str, store: str) -> None:
    with leaselock.Client(store) as client, client.lock("order:5"):
        browser.open("about:blank")
        browser.open(f"{page}#token=other")
        shown(browser, "order:5")
        browser.value("document.querySelector('#rows a').click()")
        browser.wait("document.querySelector('.hold button')")
        browser.value("document.querySelector('.hold button').click()")
        browser.type("order:5")
        browser.value("document.getElementById('break-message').focus()")
        browser.type("why")
        browser.press("Enter")
        eventually(lambda: "token" in browser.text("#break-error"))
        assert browser.value("document.getElementById('break-token').offsetParent !== null")
        browser.press("Escape")
        browser.wait("!document.getElementById('breaking').open")
    # The reply 401 is what the test wants; browsers log it as an error.
    assert all("401" in problem for problem in browser.problems)
    browser.problems.clear()


def test_on_a_phone(browser: Chromium, page: str, store: str) -> None:
    browser.size(360, 640, touch=True)
    long = "a-name-without-a-single-blank-" * 8
    with leaselock.Client(store, label="x" * 200) as client, ExitStack() as stack:
        for name in (long, "order:5"):
            stack.enter_context(client.lock(name))
        shown(browser, long, "order:5")
        assert not overflows(browser)
        browser.value("document.querySelector('#rows a').click()")
        browser.wait("document.querySelector('#holds .hold')")
        assert not overflows(browser)
        # The detail covers the list, and its button is large enough for a finger.
        box = browser.value("document.getElementById('detail').getBoundingClientRect().toJSON()")
        assert (box["left"], box["top"], box["width"], box["height"]) == (0, 0, 360, 640)
        size = browser.value("document.getElementById('close').getBoundingClientRect().toJSON()")
        assert min(size["width"], size["height"]) >= 24
        browser.value("document.getElementById('close').click()")
        browser.wait("document.getElementById('detail').hidden")


def overflows(browser: Chromium) -> bool:
    """Whether the page is wider than the window."""
    wide: bool = browser.value("document.documentElement.scrollWidth > innerWidth")
    return wide


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_contrast(browser: Chromium, page: str, store: str, dark: bool) -> None:
    browser.size(1280, 900, dark=dark)
    with leaselock.Client(store, label="charge") as client, client.lock("order:5"):
        shown(browser, "order:5")
        for selector in ("#rows a", "#rows .label", "#status", "#store", "th button", "dt"):
            ratio = browser.value(CONTRAST % selector)
            assert ratio >= 4.5, f"{selector}: {ratio}"  # WCAG 2.2, level AA


CLICK = """document.querySelector('%s').dispatchEvent(
  new MouseEvent('click', {bubbles: true, cancelable: true}))"""
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((value) => value / 255)
      .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector('%s');
  let behind = element;
  while (parts(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
    .map(light).sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})()"""


def test_a_lost_server_is_shown_and_found_again(browser: Chromium, store: str) -> None:
    browser.size(1280, 900)
    with served(lambda: leaselock.AsyncClient(store)) as url:
        browser.open(url)
        browser.wait("document.getElementById('status').textContent === 'live'")
    browser.wait("document.getElementById('status').textContent === 'disconnected'")
    port = int(url.rpartition(":")[2].strip("/"))
    with served(lambda: leaselock.AsyncClient(store), port=port):
        browser.wait("document.getElementById('status').textContent === 'live'")
        browser.open("about:blank")
    browser.problems.clear()  # of the time without a server


def test_a_store_that_does_not_answer_is_shown(browser: Chromium) -> None:
    browser.size(1280, 900)
    browser.problems.clear()
    # Nothing listens on port 1.
    make = lambda: leaselock.AsyncClient("redis://127.0.0.1:1", op_timeout=0.2)  # noqa: E731
    with served(make) as url:
        browser.open(url)
        browser.wait("!document.getElementById('error').hidden")
        assert "The store does not answer" in browser.text("#error")
        assert browser.text("#status") == "store does not answer"
        browser.open("about:blank")
    assert browser.problems == []
