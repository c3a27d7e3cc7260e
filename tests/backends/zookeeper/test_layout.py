"""The layout marker on ZooKeeper: a node below the root, read when a session begins."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.security import make_acl, make_digest_acl  # type: ignore[import-untyped]
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually
from tests.backends.zookeeper.zoo import connection_of

import leaselock
from leaselock._backends.zookeeper.layout_marker import LAYOUT, LayoutMarker
from leaselock._backends.zookeeper.paths import decoded
from leaselock._cli import main
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testkit.servers.zookeeper import Ensemble

NEWER = LAYOUT.version + 1
COLOURS = pytest.mark.parametrize("colour", ["threads", "asyncio"])


class Root:
    """A root, which does not exist at first, and clients of all members that use its nodes
    directly.
    """

    def __init__(self, ensemble: Ensemble, zoos: Sequence[Any]) -> None:
        self.url = fresh(ensemble)
        self.path = f"/{self.url.rpartition('/')[2].rstrip('?')}"
        self.zoos = zoos
        self.zoo = zoos[0]

    @property
    def marker(self) -> str | None:
        path = f"{self.path}/%layout"
        self.zoo.sync(path)
        return self.zoo.get(path)[0].decode() if self.zoo.exists(path) else None

    def mark(self, text: object, **words: Any) -> None:
        """Write a marker, which every member has then."""
        path = f"{self.path}/%layout"
        self.zoo.ensure_path(self.path)
        self.zoo.sync(path)
        if self.zoo.exists(path):
            self.zoo.delete(path)
        self.zoo.create(path, str(text).encode(), **words)
        self._everywhere(path)

    def unmark(self) -> None:
        """Delete the marker, which no member has then."""
        path = f"{self.path}/%layout"
        self.zoo.delete(path)
        self._everywhere(path)

    def _everywhere(self, path: str) -> None:
        """Wait for the members that are behind the others: a client may use any."""
        for zoo in self.zoos:
            zoo.sync(path)

    def children(self) -> list[str]:
        self.zoo.sync(self.path)
        return sorted(self.zoo.get_children(self.path))


@pytest.fixture(scope="module")
def zoos(ensemble: Ensemble) -> Iterator[Sequence[Any]]:
    clients = [KazooClient(host) for host in ensemble.hosts.split(",")]
    for client in clients:
        client.start()
    yield clients
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def root(ensemble: Ensemble, zoos: Sequence[Any]) -> Root:
    return Root(ensemble, zoos)


def use(url: str) -> None:
    with leaselock.Client(url) as client, client.lock("a"):
        pass


async def use_in_a_task(url: str) -> None:
    async with leaselock.AsyncClient(url) as client, client.lock("a"):
        pass


def use_by(colour: str, url: str) -> None:
    if colour == "threads":
        use(url)
    else:
        asyncio.run(use_in_a_task(url))


def layouts(url: str) -> list[str]:
    with leaselock.Client(url) as client:
        return [finding.level for finding in client.doctor() if "layout" in finding.what]


@COLOURS
def test_the_client_that_creates_the_root_writes_it(root: Root, colour: str) -> None:
    use_by(colour, root.url)
    assert root.marker == str(LAYOUT)
    root.unmark()
    use_by(colour, root.url)
    assert root.marker == str(LAYOUT)


def test_who_only_looks_creates_no_root(root: Root) -> None:
    with leaselock.Client(root.url) as client:
        assert client.locks() == []
    assert not root.zoo.exists(root.path)


@COLOURS
def test_a_layout_that_does_not_admit_this_program_is_refused(root: Root, colour: str) -> None:
    root.mark(NEWER)
    words = rf"layout {NEWER} of a newer leaselock .*needs layout {LAYOUT}: use that release"
    with pytest.raises(NotApplied, match=words) as caught:
        use_by(colour, root.url)
    assert type(caught.value) is NotApplied
    assert caught.value.reason == "misconfigured"
    assert root.children() == ["%layout"]
    root.mark(0)
    with pytest.raises(NotApplied, match=rf"`delete {root.path}/%layout` in zkCli"):
        use_by(colour, root.url)
    root.mark("nonsense")
    with pytest.raises(NotApplied, match="'nonsense', which no leaselock writes"):
        use_by(colour, root.url)
    root.mark(f"{NEWER} {LAYOUT.version}")
    use_by(colour, root.url)


def test_the_commands_exit_with_78_and_doctor_fails(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    root.mark(NEWER)
    for words in (["run", "a", "--", "true"], ["ls"], ["show", "a"], ["gc"]):
        assert main([words[0], "--url", root.url, *words[1:]]) == 78, words
        assert f"layout {NEWER}" in capsys.readouterr().err
    assert main(["setup", root.url]) == 78
    assert main(["doctor", root.url]) == 1
    assert f"layout {NEWER} of a newer leaselock" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("protocol", ["queue", "single"])
def test_it_is_no_lock_and_no_garbage(root: Root, protocol: str) -> None:
    assert decoded("%layout") is None
    with leaselock.Client(f"{root.url}protocol={protocol}") as client:
        with client.lock("b"):
            assert [lock.name for lock in client.locks()] == ["b"]
        client.gc()
        assert client.locks() == []
    assert root.children() == ["%layout"]
    assert layouts(root.url) == ["ok"]


def test_a_client_that_was_refused_works_once_the_marker_is_gone(root: Root) -> None:
    root.mark(NEWER)
    with leaselock.Client(root.url) as client:
        for _ in range(2):
            with pytest.raises(NotApplied, match=f"layout {NEWER}"):
                client.lock("a").acquire(timeout=0)
        root.unmark()
        with client.lock("a"):
            assert root.marker == str(LAYOUT)


def test_it_is_read_once_in_a_session(root: Root) -> None:
    use(root.url)
    with leaselock.Client(root.url) as client:
        with client.lock("a"):
            session = connection_of(client).session
            assert connection_of(client).marker.checked == session
        # Not noticed before there is another session.
        root.mark(NEWER)
        with client.lock("a"):
            assert connection_of(client).session == session
        connection_of(client).client.restart()
        eventually(lambda: connection_of(client).session not in (0, session))
        with pytest.raises(NotApplied, match=f"layout {NEWER}"):
            client.lock("b").acquire(timeout=5)


def test_many_that_connect_at_once_check_it_together(root: Root) -> None:
    with leaselock.Client(root.url) as client, ThreadPoolExecutor(8) as pool:

        def take(number: int) -> None:
            with client.lock(f"lock {number}", timeout=30):
                pass

        list(pool.map(take, range(32)))
    assert root.marker == str(LAYOUT)


# --- permissions ----------------------------------------------------------------------------------


def test_who_may_not_read_or_create_it_is_warned_by_doctor(root: Root) -> None:
    owner = make_digest_acl("admin", "pw", all=True)
    root.mark(NEWER, acl=[owner])
    use(root.url)
    assert layouts(root.url) == ["warn"]


def test_a_user_who_may_only_read_is_checked(root: Root) -> None:
    root.zoo.ensure_path(root.path)
    read = [make_digest_acl("admin", "pw", all=True), *_world(read=True)]
    root.zoo.set_acls(root.path, read)
    with leaselock.Client(root.url) as client:
        assert client.locks() == []
        (warning,) = [f.what for f in client.doctor() if "layout" in f.what]
    assert warning == f"there is no layout marker below {root.path}, and it could not be created"


def _world(**rights: bool) -> list[Any]:
    return [make_acl("world", "anyone", **rights)]


# --- moments that a server cannot be made to have -------------------------------------------------


class Script:
    """A client of kazoo's whose replies are given by the test."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def get_async(self, path: str) -> Script:
        return self

    def create_async(self, path: str, data: bytes) -> Script:
        return self

    def rawlink(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def reply(self, error: str = "", text: str = "") -> None:
        """Answer the oldest request with an exception of that name, or with a text."""
        self.exception = type(error, (Exception,), {})() if error else None
        self.value = (text.encode(), None)
        self.callbacks.pop(0)(self)


def scripted() -> tuple[LayoutMarker, Script, list[int]]:
    notified: list[int] = []
    marker = LayoutMarker("shown", "/root", lambda: notified.append(1))
    script = Script()
    marker.begin(script, 7)
    return marker, script, notified


def test_another_client_may_create_it_first() -> None:
    marker, script, notified = scripted()
    script.reply("NoNodeError")
    script.reply("NodeExistsError")
    script.reply(text=str(NEWER))
    assert marker.problem is not None
    assert not marker.admits(7)
    assert notified == [1]


def test_a_lost_connection_decides_nothing() -> None:
    marker, script, notified = scripted()
    script.reply("ConnectionLoss")
    assert not notified
    assert not marker.admits(7)
    marker.begin(script, 7)
    marker.begin(script, 7)
    script.reply(text=str(LAYOUT))
    assert marker.checked == 7
    assert script.callbacks == []


def test_the_reply_of_an_earlier_session_is_ignored() -> None:
    marker, script, notified = scripted()
    script.reply("NoNodeError")
    marker.begin(script, 8)
    script.reply("NoAuthError")
    marker.begin(script, 9)
    script.reply(text=str(NEWER))
    assert not notified
    assert marker.problem is None
    script.reply(text=str(LAYOUT))
    assert (marker.admits(9), marker.admits(8)) == (True, False)
