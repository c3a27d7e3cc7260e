"""What `doctor` finds on Redis servers and on a Redlock, by their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from tests.backends.sql.sessions import finished
from verification.models.redis_runner import Runner, commands_of

from leaselock._backends.redis.capabilities import NEEDS, server_of
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.doctor import SETTINGS, _encryption
from leaselock._backends.redis.layout_marker import LAYOUT
from leaselock._backends.redis.messages import OtherLayout, Unreachable
from leaselock._backends.redlock.maintenance import collect
from leaselock._backends.redlock.master import Master
from leaselock._backends.redlock.protocol import Redlock
from leaselock._core.contract.backend import Collected, CollectGarbage, Finding
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.redis.capabilities import Need
    from leaselock._backends.redis.messages import Address, Send

pytestmark = pytest.mark.covers

REFUSED = Exception("NOPERM this user has no permissions")
STRANGER = Exception("NOAUTH Authentication required.")
GUARDED = "redis://:secret@nowhere"
SOUND = {"redis_version": "8.0.1", "role": "master", "run_id": "one", "maxmemory": "0"}
SOUND |= {"aof_enabled": "1", "connected_slaves": "0"}


class Answers:
    """A server with these facts and settings, and without keys."""

    def __init__(self, config: Any = None, info: Exception | None = None, **facts: Any) -> None:
        lines = "".join(f"{name}:{value}\r\n" for name, value in (SOUND | facts).items())
        self.info = info or f"# Server\r\n{lines}".encode()
        self.config = {b"appendfsync": b"always"} if config is None else config
        self.time: Any = [b"1700000000", b"0"]
        self.marker: Any = str(LAYOUT).encode()
        self.missing = [b""] * len(NEEDS)
        self.ping: Any = STRANGER
        self.hello: Any = {b"role": b"master"}
        self.tracking: Any = b"OK"

    def __call__(self, address: Address, message: Send) -> list[Any]:
        says: dict[Any, Any] = {b"INFO": self.info, b"CONFIG": self.config, b"TIME": self.time}
        says |= {b"GET": self.marker, b"SCAN": [b"0", []], b"EVALSHA": self.missing, b"EXISTS": 0}
        says |= {b"PING": self.ping, b"HELLO": self.hello, b"CLIENT": self.tracking}
        says |= {b"WAIT": 0, b"TYPE": b"none"}
        return [says[command[0]] for command in commands_of(message)]

    def backend(self, url: str = GUARDED) -> tuple[Runner, Any]:
        runner = Runner(url, self)
        return runner, runner.store.backend("hash")

    def findings(self, url: str = GUARDED) -> list[Finding]:
        runner, backend = self.backend(url)
        return list(runner.run(backend.doctor(0.0)))

    def problems(self, url: str = GUARDED) -> list[str]:
        """What is not in order, the clock apart, which is not this machine's."""
        found = [f for f in self.findings(url) if "clock" not in f.what]
        return [f"{f.level}: {f.what}" for f in found if f.level != "ok"]


def test_a_sound_server_has_no_problems() -> None:
    assert Answers().problems() == []
    # As protocol 2 has it.
    assert Answers(config=[b"appendfsync", b"always"]).problems() == []
    assert Answers(connected_slaves="1", min_replicas="1").problems() != []
    with_least = {b"appendfsync": b"always", b"min-replicas-to-write": b"1"}
    assert Answers(config=with_least, connected_slaves="1").problems() == []


def test_an_option_that_only_threads_have_is_found() -> None:
    runner, backend = Answers().backend()
    assert "redis-py" in runner.run(backend.doctor(0.0))[0].what
    backend.settings = settings_of(redis.Redis("nowhere", ssl=True, ssl_validate_ocsp=True))
    finding = runner.run(backend.doctor(0.0))[0]
    assert finding.level == "warn"
    assert "ssl_validate_ocsp" in finding.what
    assert "asyncio" in finding.what


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"redis_version": "6.0.16"}, "fail: nowhere:6379: Redis 6.0.16 is too old"),
        ({"role": "slave"}, "fail: nowhere:6379: a slave, which takes no locks"),
        (
            {"maxmemory": "1000", "maxmemory_policy": "allkeys-lru"},
            "fail: nowhere:6379: under memory pressure keys are evicted (allkeys-lru), locks among "
            "them",
        ),
        (
            {"aof_enabled": "0"},
            "warn: nowhere:6379: a restart forgets all locks (appendonly no)",
        ),
    ],
)
def test_each_hazard_is_found(facts: dict[str, Any], problem: str) -> None:
    assert Answers(**facts).problems() == [problem]


def test_what_is_not_allowed_is_skipped() -> None:
    server = Answers(info=REFUSED)
    server.time = server.marker = REFUSED
    assert [f.level for f in server.findings()] == ["ok", "skip", "skip", "warn", *["ok"] * 4]
    # Managed services do not allow CONFIG.
    (problem,) = Answers(config=REFUSED).problems()
    assert "appendfsync unknown" in problem


def test_a_layout_marker_that_is_missing_or_may_not_be_read_is_a_warning() -> None:
    server = Answers()
    for marker, words in ((REFUSED, "may not be read (NOPERM "), (None, "could not be written")):
        server.marker = marker
        (problem,) = server.problems()
        assert problem.startswith("warn: nowhere:6379: ")
        assert words in problem


def test_a_store_of_another_layout_fails() -> None:
    """The connection is refused, so nothing else can be examined."""

    def refuse(address: Address, message: Send) -> list[Any]:
        raise OtherLayout(f"{address} has the layout 9")

    for url in ("redis://nowhere", "redis+cluster://nowhere", "redis+sentinel://nowhere/main"):
        runner = Runner(url, refuse)
        *_, last = runner.run(runner.store.backend("hash").doctor(0.0))
        assert (last.level, last.what.partition(" has ")[2]) == ("fail", "the layout 9")


def test_settings_are_asked_for_by_name() -> None:
    """ "*" would also send the passwords of the server (requirepass, masterauth)."""
    assert not [name for _, _, name in SETTINGS if "*" in name or "auth" in name or "pass" in name]


def test_keys_that_cannot_be_listed_are_skipped() -> None:
    server = Answers()

    def answer(address: Address, message: Send) -> list[Any]:
        scan = commands_of(message)[0][0] == b"SCAN"
        return [REFUSED] if scan else server(address, message)

    runner = Runner("redis://nowhere", answer)
    found = runner.run(runner.store.backend("hash").doctor(0.0))
    (skipped,) = (finding for finding in found if finding.level == "skip")
    assert "its keys were not examined" in skipped.what


# --- logins and TLS -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("redis://nowhere", "warn"),
        ("redis://10.0.0.1", "warn"),
        ("redis://localhost", "ok"),
        ("redis://127.0.0.2", "ok"),
        ("redis://[::1]", "ok"),
        ("unix:///run/redis", "ok"),
        # The server does not need the login that the client has.
        ("redis://:secret@nowhere", "warn"),
    ],
)
def test_a_server_that_needs_no_login_is_found(url: str, level: str) -> None:
    server = Answers()
    server.ping = b"PONG"
    (finding,) = (finding for finding in server.findings(url) if "login" in finding.what)
    assert finding.level == level
    assert "no login is needed" in finding.what


def test_verified_tls_is_in_order() -> None:
    (found,) = _encryption(settings_of("rediss://nowhere?ssl_check_hostname=true"))
    assert found.level == "ok"
    assert _encryption(settings_of("redis://nowhere")) == []
    client = redis.Redis("nowhere", ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False)
    assert [each.level for each in _encryption(settings_of(client))] == ["warn"]


# --- other servers with the same protocol ---------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"redis_version": "8.2.3", "os": "Linux"}, ("Redis", "8.2.3")),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, ("Valkey", "8.1.0")),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.30.0"}, ("Dragonfly", "1.30.0")),
        ({"redis_version": "6.3.4", "mvcc_depth": "0"}, ("KeyDB", "6.3.4")),
        ({"redis_version": "7.1.0", "os": "Amazon ElastiCache"}, ("Amazon ElastiCache", "7.1.0")),
        ({"redis_version": "6.2.6", "upstash_version": "1.10.5"}, ("Upstash", "1.10.5")),
        ({}, ("Redis", "")),
    ],
)
def test_a_server_is_known_by_its_facts(facts: dict[str, str], name: tuple[str, str]) -> None:
    assert server_of(facts) == name


def test_what_info_does_not_say_is_not_taken_for_good() -> None:
    """Upstash documents sections for the server, clients, memory, stats, cluster and keyspace."""
    server = Answers()
    server.info = b"# Server\r\nupstash_version:1.10.5\r\n# Clients\r\nconnected_clients:1\r\n"
    server.config = []
    skipped = [problem.partition("INFO does not say ")[2] for problem in server.problems()]
    assert [words.split(" ")[1:4] for words in skipped] == [
        ["keys", "are", "evicted"],
        ["a", "restart", "forgets"],
        ["it", "has", "replicas,"],
    ]
    assert [f.what for f in server.findings() if "a master" in f.what] == ["nowhere:6379: a master"]
    server.hello = [b"role", b"replica"]
    assert "fail: nowhere:6379: a replica, which takes no locks" in server.problems()
    server.hello = REFUSED
    assert any("neither INFO nor HELLO says" in problem for problem in server.problems())


def test_an_active_replica_of_keydb_is_refused() -> None:
    (problem,) = Answers(role="active-replica", mvcc_depth="0").problems()
    assert problem.startswith("fail: nowhere:6379: an active replica: it and its master each grant")


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.what)
def test_each_thing_that_scripts_need_is_tried(need: Need) -> None:
    server = Answers()
    server.missing[NEEDS.index(need)] = b"ERR not from script"
    (problem,) = server.problems()
    assert problem == f"{need.level}: {need.what}, so {need.consequence} (ERR not from script)"


# --- room -----------------------------------------------------------------------------------------


def test_a_large_database_is_found() -> None:
    """The one of the URL: others are not looked at."""
    large: dict[str, Any] = {
        "db0": "keys=3,expires=0,avg_ttl=0",
        "db1": "keys=1000000,expires=0,avg_ttl=0",
    }
    assert Answers(**large).problems() == []
    (problem,) = Answers(**large).problems(f"{GUARDED}/1")
    assert problem.startswith("warn: nowhere:6379: 1000000 keys in its database: ls --all")


def test_the_number_of_replicas_that_protects_is_named() -> None:
    """A failover chooses one replica: the grant must be on each of them."""
    with_least = {b"appendfsync": b"always", b"min-replicas-to-write": b"1"}
    server = Answers(config=with_least, connected_slaves="2")
    what = (
        "nowhere:6379: ?replicas=1 of 2: a failover to one that has not confirmed a grant loses it"
    )
    assert Finding("warn", what, "?replicas=2") in server.findings(f"{GUARDED}?replicas=1")
    assert server.problems(f"{GUARDED}?replicas=2") == []


# --- Redlock --------------------------------------------------------------------------------------


def examined(*names: str) -> list[str]:
    """The findings that concern the masters as a whole; one without a name does not answer."""
    hosts = {f"m{i}": name for i, name in enumerate(names)}

    def answer(address: Address, message: Send) -> list[Any]:
        if not hosts[address.host]:
            raise Unreachable("connection refused")
        return Answers(run_id=hosts[address.host])(address, message)

    runners = [Runner(f"redis://{host}", answer) for host in hosts]
    masters = [
        Master(host, runner.store.voting_locks())
        for host, runner in zip(hosts, runners, strict=True)
    ]
    run = runners[0].run
    locks = Redlock(masters, masters[0].locks.capabilities, lambda: 0.0, lambda: 0.5)
    assert run(locks.setup(False, 0.0)) == ()
    assert run(locks.collect_garbage(None, 0.0)).removed == 0
    found = run(locks.doctor(0.0))
    return [f"{f.level}: {f.what}" for f in found if "masters" in f.what or f.level == "fail"]


def test_independent_masters_are_sound() -> None:
    assert examined("one", "two", "three") == ["ok: 3 masters: a lock survives the loss of 1"]


def test_an_even_number_of_masters_is_worse_than_an_odd_one() -> None:
    found = examined("one", "two", "three", "four")
    assert found == ["warn: 4 masters: a lock survives the loss of 1"]


def test_a_master_that_is_named_twice_and_one_that_does_not_answer_are_found() -> None:
    first, second, third = examined("one", "one", "")
    assert first.startswith("ok: 3 masters")
    assert second == "fail: m0 and m1 are one server, whose vote counts twice"
    assert third.startswith("fail: m2: ")
    assert "connection refused" in third


class Steps:
    """A master whose garbage collection has these steps; the error ends it."""

    def __init__(self, *steps: int | NotApplied) -> None:
        self.steps = steps
        self.locks = self

    async def request(self, request: CollectGarbage, until: float) -> Collected:
        """One step."""
        number = request.position
        number = number if isinstance(number, int) else 0
        step = self.steps[number]
        if isinstance(step, NotApplied):
            raise step
        return Collected(step, number + 1 if number + 1 < len(self.steps) else None)


def collected(*masters: Steps) -> Iterator[int]:
    """What each step of a Redlock removes."""
    made: Any = masters
    position: object = None
    while True:
        done = finished(collect(made, position, 0.0))
        yield done.removed
        position = done.position
        if position is None:
            return


def test_gc_of_a_redlock_collects_on_one_master_after_the_other() -> None:
    assert list(collected(Steps(1, 2), Steps(3), Steps(4, 5))) == [1, 2, 3, 4, 5, 0]


def test_the_error_of_a_master_is_raised_when_the_others_are_done() -> None:
    steps = collected(Steps(1, NotApplied("silent")), Steps(3))
    assert [next(steps) for _ in range(3)] == [1, 0, 3]
    with pytest.raises(NotApplied, match=r"^silent$"):
        next(steps)
