"""Values of another type beside a lock, counters that no token can be drawn from, and missing
rights: a refused request changes nothing, and one that fails halfway is not reported as refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.rights import commands
from tests.backends.redis.test_modes import Process
from verification.models.sides import claim_of

import leaselock
from leaselock._backends.redis.executor import is_partial
from leaselock._core.contract.backend import Busy, Grant
from leaselock._drivers.system_env import now
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._core.contract.backend import Mode

COUNTER, QUEUE = "redisson_lock_token:{lock:a}", "leaselock:queue:{lock:a}"
RIGHTS = f"~* &* -@all {' '.join(commands())}"
WITHOUT = ("zrem", "hset", "pexpire", "zadd")
USERS = [
    "user default on nopass ~* &* +@all",
    *(f"user no-{word} on >pw {RIGHTS} -{word}" for word in WITHOUT),
]
EXACT = 2**53


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: Redis) -> None:
    server.ask("FLUSHALL")


def url_of(server: Redis, form: str) -> str:
    return f"{server.url}?protocol={form}"


@pytest.fixture
def clients(server: Redis) -> Iterator[list[Process]]:
    found = [Process(server, number) for number in (1, 2)]
    yield found
    for process in found:
        process.driver.end(_nothing())


async def _nothing() -> None:
    pass


def fields_of(server: Redis) -> dict[str, str]:
    found = server.ask("HGETALL", "lock:a")
    return dict(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("form", ["hash", "string"])
@pytest.mark.parametrize("counter", [EXACT - 1, EXACT, 2**60])
def test_no_token_is_drawn_that_lua_cannot_tell_from_the_next(
    server: Redis, form: str, counter: int
) -> None:
    server.ask("SET", COUNTER, str(counter))
    with leaselock.Client(url_of(server, form)) as client:
        for _ in range(2):
            with pytest.raises(NotApplied, match=rf"{COUNTER}.*it is {counter}.*2\^53"):
                client.lock("a").acquire(timeout=0)
        assert not client.lock("a").locked()
    assert server.stored_keys() == [COUNTER]
    assert server.ask("GET", COUNTER) == str(counter)
    assert server.ask("PTTL", COUNTER) == -1


def test_a_counter_that_is_refused_does_not_expire(server: Redis) -> None:
    """The clock would begin far below it. A number that was set by hand with an expiry loses it."""
    server.ask("SET", COUNTER, str(EXACT), "PX", "60000")
    with leaselock.Client(server.url) as client, pytest.raises(NotApplied, match=COUNTER):
        client.lock("a").acquire(timeout=0)
    assert server.ask("GET", COUNTER) == str(EXACT)
    assert server.ask("PTTL", COUNTER) == -1


@pytest.mark.parametrize("form", ["hash", "string"])
def test_the_last_exact_token_is_drawn(server: Redis, form: str) -> None:
    server.ask("SET", COUNTER, str(EXACT - 2))
    with leaselock.Client(url_of(server, form)) as client, client.lock("a") as lease:
        assert lease.token == EXACT - 1
    # It must not expire: the clock would begin far below it.
    assert server.ask("PTTL", COUNTER) == -1


@pytest.mark.parametrize("mode", ["shared", "update", "permits"])
def test_the_same_for_other_modes(server: Redis, clients: list[Process], mode: Any) -> None:
    server.ask("SET", COUNTER, str(EXACT))
    claim = clients[0].claim(mode, limit=1 if mode == "permits" else 0)
    with pytest.raises(NotApplied, match=COUNTER):
        clients[0].acquire(claim)
    assert server.ask("EXISTS", "lock:a") == 0


def test_an_upgrade_without_a_token_changes_nothing(server: Redis, clients: list[Process]) -> None:
    claim = clients[0].claim("update")
    assert isinstance(clients[0].acquire(claim), Grant)
    before = fields_of(server)
    server.ask("SET", COUNTER, str(EXACT))
    locks: Any = clients[0].backend
    with pytest.raises(NotApplied, match=COUNTER):
        clients[0].run(locks.convert(claim, 1, "exclusive", now() + 5.0))
    assert fields_of(server) == before


def test_a_vote_is_refused_as_well(server: Redis, clients: list[Process]) -> None:
    votes = Process(server, 3, "vote")
    server.ask("SET", COUNTER, str(EXACT))
    with pytest.raises(NotApplied, match=COUNTER):
        votes.acquire(votes.claim("exclusive"))
    votes.driver.end(_nothing())
    assert server.stored_keys() == [COUNTER]


@pytest.mark.parametrize("spoilt", [("SET", COUNTER, str(EXACT)), ("RPUSH", COUNTER, "x")])
def test_a_release_that_cannot_hand_over_releases(
    server: Redis, clients: list[Process], spoilt: tuple[str, ...]
) -> None:
    """The counter was spoilt while a waiter waited: the release succeeds, the waiter is told."""
    holder, waiter = clients
    held, waiting = holder.claim("exclusive"), waiter.claim("exclusive")
    assert isinstance(holder.acquire(held), Grant)
    assert isinstance(waiter.acquire(waiting, wait=True), Busy)
    server.ask("DEL", COUNTER)
    server.ask(*spoilt)
    holder.release(held)
    assert server.ask("EXISTS", "lock:a") == 0
    with pytest.raises(NotApplied, match=COUNTER):
        waiter.acquire(waiting, wait=True)
    assert server.ask("EXISTS", "lock:a") == 0


def test_a_queue_of_another_type_is_named(server: Redis, clients: list[Process]) -> None:
    holder, late = clients
    held = holder.claim("exclusive")
    assert isinstance(holder.acquire(held), Grant)
    server.ask("SET", QUEUE, "x")
    for process, wait in ((late, True), (late, False)):
        claim = process.claim("exclusive")
        if wait:
            with pytest.raises(NotApplied, match=f"{QUEUE}.*holds a string instead of a zset"):
                process.acquire(claim, wait=True)
    with pytest.raises(NotApplied, match=QUEUE):
        holder.release(held)
    assert server.ask("EXISTS", "lock:a") == 1
    server.ask("DEL", QUEUE)
    holder.release(held)
    assert server.ask("EXISTS", "lock:a") == 0


def test_a_handoff_of_another_type_is_replaced(server: Redis, clients: list[Process]) -> None:
    server.ask("RPUSH", "leaselock:handoff:{lock:a}", "x")
    modes: tuple[Mode, ...] = ("exclusive", "shared")
    for mode in modes:
        claim = clients[0].claim(mode)
        assert isinstance(clients[0].acquire(claim), Grant)
        clients[0].release(claim)


@pytest.mark.parametrize("word", ["hset", "pexpire", "zadd"])
def test_a_claim_that_failed_halfway_leaves_nothing(
    server: Redis, clients: list[Process], word: str
) -> None:
    """A wait is refused at once, and its place in the queue is given back."""
    limited = Process(server, 3, user=f"no-{word}:pw@")
    holder = clients[0]
    held, claim = holder.claim("exclusive"), limited.claim("exclusive")
    if word != "hset":
        assert isinstance(holder.acquire(held), Grant)
    with pytest.raises(NotApplied, match="permission denied"):
        limited.acquire(claim, wait=True)
    assert server.ask("EXISTS", QUEUE) == 0
    assert server.ask("EXISTS", "lock:a") == int(word != "hset")
    limited.driver.end(_nothing())


def test_a_release_that_failed_halfway_is_not_reported_as_refused(
    server: Redis, clients: list[Process]
) -> None:
    limited, waiter = Process(server, 3, user="no-zrem:pw@"), clients[0]
    held = limited.claim("exclusive")
    assert isinstance(limited.acquire(held), Grant)
    assert isinstance(waiter.acquire(waiter.claim("exclusive"), wait=True), Busy)
    with pytest.raises(OutcomeUnknown, match="perhaps after it had changed"):
        limited.release(held)
    # Repeated, it finds nothing to release.
    limited.release(held)
    assert server.ask("EXISTS", "lock:a") == 0
    limited.driver.end(_nothing())


def test_a_user_is_told_of_a_release_that_succeeded(server: Redis) -> None:
    url = server.url.replace("://", "://no-zrem:pw@")
    with leaselock.Client(url) as client, leaselock.Client(server.url) as other:
        lease = client.lock("a").acquire()
        assert lease is not None
        process = Process(server, 3)
        process.acquire(claim_of("3" * 32, "a", 1, 30.0), wait=True)
        lease.release()
        eventually(lambda: not other.lock("a").locked())
        process.driver.end(_nothing())


@pytest.mark.parametrize("form", ["setnx", "setnx-expire", "getset", "incr"])
def test_a_lock_that_was_taken_without_a_token_is_not_reported_as_refused(
    server: Redis, form: str
) -> None:
    server.ask("RPUSH", COUNTER, "x")
    process = Process(server, 3, form)
    claim = process.claim("exclusive")
    with pytest.raises(OutcomeUnknown, match=f"{COUNTER}.*holds a list"):
        process.acquire(claim)
    assert server.ask("EXISTS", "lock:a") == 1
    process.release(claim)
    assert server.ask("EXISTS", "lock:a") == 0
    process.driver.end(_nothing())


# What 6.2, 7.0, and 7.2 and later (Valkey, too) say of an error that a script raises; in 6.2 one
# that it returns has another form as well.
LINE = "ERR Error running script (call to f_2cc): @user_script:7: @user_script: 7: "
PLACE = " script: 2cc, on @user_script:7."
RAISED_AFTER_A_CHANGE = [
    f"{LINE}The user executing the script can't run this command or subcommand",
    f"ERR The user executing the script can't run this command or subcommand{PLACE}",
    f"ERR ACL failure in script: User u has no permissions to run the 'set' command{PLACE}",
    "ERR Error running script (call to f_2cc): @user_script:7: WRONGTYPE Operation against a key",
    f"WRONGTYPE Operation against a key{PLACE}",
]
BEFORE_ANY_CHANGE = [
    f"{LINE}-READONLY You can't write against a read only replica.",
    f"{LINE}-OOM command not allowed when used memory > 'maxmemory'.",
    f"READONLY You can't write against a read only replica.{PLACE}",
    "@user_script: 7: -READONLY You can't write against a read only replica.",
    "@user_script: 7: The user executing the script can't run this command or subcommand",
    "ERR ACL failure in script: User u has no permissions to run the 'set' command",
]


@pytest.mark.parametrize("text", RAISED_AFTER_A_CHANGE + BEFORE_ANY_CHANGE)
def test_the_errors_of_scripts_are_understood_in_every_version(text: str) -> None:
    assert is_partial(Exception(text)) == (text in RAISED_AFTER_A_CHANGE)
