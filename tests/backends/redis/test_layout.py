"""The layout marker on Redis: read by each new connection, and written where it is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.cluster import Cluster
from testkit.servers.process import HOST
from testkit.servers.redis import Redis
from testkit.servers.rights import user
from testkit.servers.sentinel import NAME, Sentinel

import leaselock
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.keys import our, slot_of
from leaselock._backends.redis.layout_marker import (
    LAYOUT,
    MARKERS,
    NOT_YET,
    OF_MANY,
    marker_keys,
    reading,
)
from leaselock._backends.redis.messages import Unreachable
from leaselock._cli import main
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MARKER = "leaselock:layout:{lock:}"
NEWER = str(LAYOUT.version + 1)
READS = "+get +scan +type +pttl +exists +eval +evalsha +hello +info +time +hgetall +zrange"
USERS = (
    "user default on nopass ~* &* +@all",
    user("orders", "pw", "~lock:orders:*", "~leaselock:*lock:orders:*", "~redisson_*"),
    f"user reader on >pw %R~* &* -@all {READS}",
    user("blind", "pw", "~lock:*", "~leaselock:[^l]*", "~leaselock:li*", "~redisson_*"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").ask("FLUSHALL")


def url_of(server: Redis, name: str = "default", more: str = "") -> str:
    return f"redis://{name}:pw@{HOST}:{server.port}/0{more}"


def use(url: str, **words: Any) -> None:
    with leaselock.Client(url, **words) as client, client.lock("a"):
        pass


async def use_in_a_task(url: str, **words: Any) -> None:
    async with leaselock.AsyncClient(url, **words) as client, client.lock("a"):
        pass


def use_by(colour: str, url: str, **words: Any) -> None:
    if colour == "threads":
        use(url, **words)
    else:
        asyncio.run(use_in_a_task(url, **words))


def levels(url: str, about: str = "layout") -> list[str]:
    with leaselock.Client(url) as client:
        return [finding.level for finding in client.doctor() if about in finding.what]


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
class TestOneServer:
    def test_the_first_client_writes_it(self, server: Redis, colour: str) -> None:
        use_by(colour, server.url)
        assert server.ask("GET", MARKER) == str(LAYOUT)
        assert server.ask("PTTL", MARKER) == -1

    def test_a_layout_that_does_not_admit_this_program_is_refused(
        self, server: Redis, colour: str
    ) -> None:
        server.ask("SET", MARKER, NEWER)
        words = rf"layout {NEWER} of a newer leaselock .*needs layout {LAYOUT}: use that release"
        with pytest.raises(NotApplied, match=words) as caught:
            use_by(colour, server.url)
        assert caught.value.reason == "misconfigured"
        assert type(caught.value) is NotApplied
        assert server.ask("KEYS", "*") == [MARKER]

    def test_a_newer_layout_that_admits_this_program_is_used(
        self, server: Redis, colour: str
    ) -> None:
        server.ask("SET", MARKER, f"{NEWER} {LAYOUT.version}")
        use_by(colour, server.url)
        assert server.ask("GET", MARKER) == f"{NEWER} {LAYOUT.version}"

    def test_it_is_written_again_after_flushall(self, server: Redis, colour: str) -> None:
        for _ in range(2):
            use_by(colour, server.url)
            assert server.ask("EXISTS", MARKER) == 1
            server.ask("FLUSHALL")

    def test_a_value_that_is_no_marker_is_refused(self, server: Redis, colour: str) -> None:
        server.ask("SET", MARKER, "nonsense")
        with pytest.raises(NotApplied, match=r"'nonsense', which no leaselock writes: .*redis-cli"):
            use_by(colour, server.url)
        server.ask("DEL", MARKER)
        server.ask("RPUSH", MARKER, NEWER)
        with pytest.raises(NotApplied, match="'a value of another type'"):
            use_by(colour, server.url)


def test_the_command_that_deletes_it_is_in_the_message(server: Redis) -> None:
    server.ask("SET", MARKER, "0")
    with pytest.raises(NotApplied, match="layout 0 of an older leaselock") as caught:
        use(server.url)
    assert f"`redis-cli DEL '{MARKER}'`" in str(caught.value)
    server.ask("DEL", MARKER)
    use(server.url)


def test_each_prefix_and_database_has_its_own(server: Redis) -> None:
    server.ask("SET", MARKER, NEWER)
    use(f"{server.url}?prefix=jobs:")
    use(server.url.removesuffix("0") + "1")
    assert server.ask("GET", "leaselock:layout:{jobs:}") == str(LAYOUT)
    with server.wire() as wire:
        wire.ask("SELECT", 1)
        assert wire.ask("GET", MARKER) == str(LAYOUT)


def test_the_commands_exit_with_78_and_doctor_fails(
    server: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    server.ask("SET", MARKER, NEWER)
    for words in (["run", "a", "--", "true"], ["ls"], ["show", "a"], ["gc"]):
        assert main([words[0], "--url", server.url, *words[1:]]) == 78, words
        assert f"layout {NEWER}" in capsys.readouterr().err
    assert main(["doctor", server.url]) == 1
    assert f"layout {NEWER} of a newer leaselock" in capsys.readouterr().out


def test_it_is_no_lock_and_no_garbage(server: Redis) -> None:
    for more in ("", "?prefix=", "?prefix=leaselock", "?protocol=string"):
        with leaselock.Client(server.url + more) as client:
            assert client.locks() == []
            client.gc()
            found = [finding for finding in client.doctor() if "not locks" in finding.what]
            assert found == []
            assert levels(server.url + more) == ["ok"]
    # One for each of the three prefixes.
    assert len(server.ask("KEYS", "leaselock:layout:*")) == 3


def test_a_connection_costs_one_command_more_and_a_lock_none(server: Redis) -> None:
    use(server.url)
    with leaselock.Client(server.url) as client:
        lock = client.lock("a")
        server.ask("CONFIG", "RESETSTAT")
        lock.acquire().release()
        assert server.info("commandstats")["cmdstat_get"].startswith("calls=1,")
        assert "cmdstat_set" not in server.info("commandstats") or _tokens_only(server)
        server.ask("CONFIG", "RESETSTAT")
        lock.acquire().release()
        assert "cmdstat_get" not in server.info("commandstats")


def _tokens_only(server: Redis) -> bool:
    """The script of an acquire sets the token counter once."""
    return server.info("commandstats")["cmdstat_set"].startswith("calls=1,")


# --- permissions ----------------------------------------------------------------------------------


def test_patterns_of_the_own_prefix_suffice(server: Redis) -> None:
    use(url_of(server, "orders", "?prefix=lock:orders:"))
    assert server.ask("GET", "leaselock:layout:{lock:orders:}") == str(LAYOUT)


def test_who_may_only_read_is_checked_and_writes_nothing(server: Redis) -> None:
    url = url_of(server, "reader")
    with leaselock.Client(url) as client:
        assert client.locks() == []
    assert server.ask("KEYS", "*") == []
    assert levels(url) == ["warn"]
    server.ask("SET", MARKER, NEWER)
    with leaselock.Client(url) as client, pytest.raises(NotApplied, match=f"layout {NEWER}"):
        client.locks()


def test_who_may_not_read_it_is_warned_by_doctor(server: Redis) -> None:
    url = url_of(server, "blind")
    server.ask("SET", MARKER, NEWER)
    use(url)
    with leaselock.Client(url) as client:
        (finding,) = [f for f in client.doctor() if "layout marker may not be read" in f.what]
    assert (finding.level, finding.advice) == ("warn", "grant +get +set on ~leaselock:*")


# --- several servers ------------------------------------------------------------------------------


def test_every_part_of_the_slots_has_a_marker() -> None:
    for prefix in ("lock:", "", "é:", "a}b{c"):
        keys = marker_keys(prefix, divided=True)
        assert [*sorted(slot_of(key) * MARKERS // 16384 for key in keys)] == [*range(MARKERS)]
    # All locks of this prefix are in one slot.
    (key,) = marker_keys("{app}:", divided=True)
    assert slot_of(key) == slot_of("{app}:order") == slot_of(our("queue", "{app}:order"))


def markers_of(cluster: Cluster) -> dict[int, list[str]]:
    """The keys of the markers on each master."""
    found = {s.port: s.ask("KEYS", "leaselock:layout:*") for s in cluster.masters()}
    return {port: sorted(keys) for port, keys in found.items()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
def test_a_cluster_has_markers_on_each_master_that_is_used(cluster: Cluster, colour: str) -> None:
    for master in cluster.masters():
        master.ask("FLUSHALL")
    owner = cluster.owner(cluster.slot("lock:a"))
    seed = cluster.servers[0]
    url = f"redis+cluster://{HOST}:{seed.port}"
    use_by(colour, url)
    found = markers_of(cluster)
    # No server is asked for its markers alone.
    assert {port for port, keys in found.items() if keys} == {owner.port, seed.port}
    assert levels(url) == ["ok"] * 3
    written = {key for keys in markers_of(cluster).values() for key in keys}
    assert written == set(marker_keys("lock:", True))
    for key in markers_of(cluster)[owner.port]:
        owner.ask("SET", key, NEWER)
    with pytest.raises(NotApplied, match=f"layout {NEWER}") as caught:
        use_by(colour, url)
    assert caught.value.reason == "misconfigured"
    assert main(["run", "--url", url, "a", "--", "true"]) == 78
    assert "fail" in levels(url)
    for key in markers_of(cluster)[owner.port]:
        owner.ask("SET", key, "0")
    with pytest.raises(NotApplied, match=r"'leaselock:layout:\{lock:\[0-9\]\*' on each master"):
        use_by(colour, url)
    owner.ask("FLUSHALL")


def test_a_marker_moves_with_its_slot(cluster: Cluster) -> None:
    use(cluster.url)
    key = marker_keys("lock:", divided=True)[3]
    slot = cluster.slot(key)
    with leaselock.Client(cluster.url) as client:
        client.doctor()
    before, move = cluster.owner(slot), cluster.begin_move(slot)
    move.keys()
    use(cluster.url)
    move.finish()
    assert cluster.owner(slot) is not before
    use(cluster.url)
    assert cluster.owner(slot).ask("GET", key) == str(LAYOUT)


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
def test_the_master_that_sentinels_name_is_checked(tmp_path: Path, colour: str) -> None:
    with Redis() as master:
        sentinel = Sentinel(tmp_path / "sentinel", master, ())
        try:
            assert sentinel.process.ready(sentinel.hastened)
            url = f"redis+sentinel://{HOST}:{sentinel.port}/{NAME}"
            use_by(colour, url)
            assert master.ask("GET", MARKER) == str(LAYOUT)
            master.ask("SET", MARKER, NEWER)
            with pytest.raises(NotApplied, match=f"layout {NEWER}") as caught:
                use_by(colour, url)
            assert caught.value.reason == "misconfigured"
            assert "fail" in levels(url)
        finally:
            sentinel.process.kill()


@pytest.fixture(scope="module")
def masters() -> Iterator[Sequence[Redis]]:
    with Redis() as a, Redis() as b, Redis() as c:
        yield a, b, c


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
def test_each_master_of_a_redlock_has_its_own(
    masters: Sequence[Redis], colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One master refuses, so the majority needs both others, however busy this machine is.
    for module in ("quorum", "inspection"):
        monkeypatch.setattr(f"leaselock._backends.redlock.{module}.TIMEOUT", 60.0)
    for master in masters:
        master.ask("FLUSHALL")
    url = ",".join(master.url for master in masters)
    use_by(colour, url)
    assert [master.ask("GET", MARKER) for master in masters] == [str(LAYOUT)] * 3
    masters[0].ask("SET", MARKER, NEWER)
    use_by(colour, url)
    assert sorted(levels(url)) == ["fail", "ok", "ok"]
    masters[1].ask("SET", MARKER, NEWER)
    with pytest.raises(StoreError, match="no majority"):
        use_by(colour, url, op_timeout=1.0)
    masters[2].ask("SET", MARKER, NEWER)
    assert main(["run", "--url", url, "a", "--", "true"]) == 78


@pytest.mark.parametrize("code", NOT_YET)
def test_a_server_that_cannot_answer_yet_is_asked_again(code: str) -> None:
    settings = settings_of("redis+cluster://nowhere")
    steps = reading(settings, settings.addresses[0])
    next(steps)
    with pytest.raises(Unreachable, match=f"nowhere:6379: {code} "):
        steps.send([Exception(f"{code} not now")] * MARKERS)


@pytest.mark.parametrize("code", NOT_YET)
def test_one_server_is_waited_for_unless_another_could_serve_for_it(code: str) -> None:
    settings = settings_of("redis://nowhere")
    steps = reading(settings, settings.addresses[0])
    next(steps)
    with pytest.raises(StopIteration if code in OF_MANY else Unreachable):
        steps.send([Exception(f"{code} not now")])


def test_a_slot_that_no_server_has_does_not_stop_the_locks_in_the_others() -> None:
    settings = settings_of("redis+cluster://nowhere")
    unserved = Exception("CLUSTERDOWN Hash slot not served")
    moved = Exception("MOVED 1 127.0.0.1:1")

    def read(*replies: Any) -> None:
        steps = reading(settings, settings.addresses[0])
        next(steps)
        with pytest.raises(StopIteration):
            steps.send(list(replies))

    read(unserved, *[str(LAYOUT).encode()] * (MARKERS - 1))
    read(unserved, *[moved] * (MARKERS - 1))
    with pytest.raises(NotApplied, match=f"layout {NEWER}"):
        read(unserved, NEWER.encode(), *[moved] * (MARKERS - 2))
    with pytest.raises(Unreachable, match="CLUSTERDOWN"):
        read(*[unserved] * MARKERS)


@pytest.mark.parametrize("colour", ["threads", "asyncio"])
def test_nothing_is_in_doubt_when_the_marker_is_not_answered(server: Redis, colour: str) -> None:
    server.ask("CLIENT", "PAUSE", 60_000, "WRITE")
    try:
        with pytest.raises(NotApplied) as caught:
            use_by(colour, server.url, op_timeout=0.5)
        assert caught.value.reason == "unreachable"
    finally:
        server.ask("CLIENT", "UNPAUSE")
    use_by(colour, server.url)
