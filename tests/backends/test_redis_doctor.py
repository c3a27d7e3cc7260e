"""What `doctor` finds on Redis servers and on a Redlock, by their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from verification.models.redis_runner import Runner, commands_of

from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.doctor import SETTINGS
from leaselock._backends.redis.messages import Unreachable
from leaselock._backends.redlock.master import Master
from leaselock._backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    from leaselock._backends.redis.messages import Address, Send
    from leaselock._core.backend import Finding

REFUSED = Exception("NOPERM this user has no permissions")
SOUND = {"redis_version": "8.0.1", "role": "master", "run_id": "one", "maxmemory": "0"}
SOUND |= {"aof_enabled": "1", "connected_slaves": "0"}


class Answers:
    """A server with these facts and settings, and without keys."""

    def __init__(self, config: Any = None, info: Exception | None = None, **facts: Any) -> None:
        lines = "".join(f"{name}:{value}\r\n" for name, value in (SOUND | facts).items())
        self.info = info or f"# Server\r\n{lines}".encode()
        self.config = {b"appendfsync": b"always"} if config is None else config
        self.time: Any = [b"1700000000", b"0"]

    def __call__(self, address: Address, message: Send) -> list[Any]:
        says: dict[Any, Any] = {b"INFO": self.info, b"CONFIG": self.config, b"TIME": self.time}
        says[b"SCAN"] = [b"0", []]
        return [says[command[0]] for command in commands_of(message)]

    def backend(self, url: str = "redis://nowhere") -> tuple[Runner, Any]:
        runner = Runner(url, self)
        return runner, runner.store.backend("hash")

    def findings(self) -> list[Finding]:
        runner, backend = self.backend()
        return list(runner.run(backend.doctor(0.0)))

    def problems(self) -> list[str]:
        """What is not in order, the clock apart, which is not this machine's."""
        found = [f for f in self.findings() if "clock" not in f.what]
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
    server.time = REFUSED
    assert [f.level for f in server.findings()] == ["ok", "skip", "skip", "ok"]
    # Managed services do not allow CONFIG.
    (problem,) = Answers(config=REFUSED).problems()
    assert "appendfsync unknown" in problem


def test_settings_are_asked_for_by_name() -> None:
    """ "*" would also send the passwords of the server (requirepass, masterauth)."""
    assert not [name for _, _, name in SETTINGS if "*" in name or "auth" in name or "pass" in name]


def test_keys_that_cannot_be_listed_are_skipped() -> None:
    server = Answers()

    def answer(address: Address, message: Send) -> list[Any]:
        scan = commands_of(message)[0][0] == b"SCAN"
        return [REFUSED] if scan else server(address, message)

    runner = Runner("redis://nowhere", answer)
    *_, last = runner.run(runner.store.backend("hash").doctor(0.0))
    assert last.level == "skip"
    assert "its keys were not examined" in last.what


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
    assert run(locks.collect_garbage(0.0)) == 0
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
