"""The text of the Redis backend at moments that servers seldom bring about: a subscription that the
server ends, a client that is closed while it connects, a lock that changes between two requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server
from verification.models.sides import claim_of

from leaselock._backends.redis import connection_sharing, queue_state, subscriptions
from leaselock._backends.redis.backend import CAPABILITIES, RedisBackend
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.codec import CHANGED, shifts_replies
from leaselock._backends.redis.connecting import new_connection, refusal
from leaselock._backends.redis.keys import (
    COUNTER,
    keys_of,
    lock_in,
    name_of,
    owner_of,
    redissons,
    slot_of,
)
from leaselock._backends.redis.layout_marker import LAYOUT, marker_keys
from leaselock._backends.redis.legacy_formats import FORMS, LegacyBackend
from leaselock._backends.redis.messages import (
    Address,
    Connect,
    SendInTime,
    Unreachable,
    protocol_error,
)
from leaselock._backends.redis.queue_state import QueueState
from leaselock._backends.redis.records import waiter_of
from leaselock._backends.redis.scan import keys_on
from leaselock._backends.redis.scripts import SCRIPTS
from leaselock._backends.redis.scripts import __main__ as scripts
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Grant,
    Inspect,
    Release,
    Renew,
    SetLifetime,
)
from leaselock._core.contract.effects import Call, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leaselock._backends.redis.messages import Send
    from leaselock._backends.redis.pool import Pool

HERE = Address("nowhere", 6379)
RIVAL = claim_of("9" * 32, "a", 1, 30.0)
REFUSED = Exception("NOPERM")
EXPIRE, GETSET, INCR = "setnx-expire", "getset", "incr"


def mine(serial: int) -> Claim:
    return claim_of("0" * 32, "a", serial, 30.0)


class Fixture:
    """One client and a server; *before* is called with the first command of each message."""

    def __init__(self, form: str = "hash", *, shared: bool = False) -> None:
        self.wall = 1_700_000_000.0
        self.server = Server(lambda: int(self.wall * 1e6))
        self.line = Connection(self.server, lambda channel, word: None)
        # A connection that is opened writes it; those of a Runner are open.
        self.line.do(("SET", *marker_keys("lock:", False), str(LAYOUT)))
        self.runner = Runner("redis://nowhere", self._send, shared=shared)
        self.store = self.runner.store
        self.backend = self.store.backend(form)
        if form in FORMS:
            # The formats of others use the wall clock.
            self.backend = LegacyBackend(self.store, form, lambda: self.wall, CAPABILITIES)
        self.listener = self.store.listener
        self.before: Callable[[tuple[Any, ...]], object] = lambda command: None
        self.sent: list[Send] = []

    def _send(self, address: Address, message: Send) -> list[Any]:
        self.sent.append(message)
        commands = commands_of(message)
        self.before(tuple(commands[0]))
        return [self.line.do(command) for command in commands]

    def ask(self, request: Any) -> Any:
        return self.runner.run(self.backend.request(request, 0.0))

    def wait(self, serial: int) -> Any:
        """Let a claim wait for the lock; returns its connection."""
        assert isinstance(self.ask(Acquire(mine(serial), True)), Busy)
        return self.listener.waiting[mine(serial).id].group.connection

    def busy(self, *serials: int) -> list[Any]:
        assert isinstance(self.ask(Acquire(RIVAL, False)), Grant)
        return [self.wait(serial) for serial in serials]

    def warnings(self) -> list[str]:
        """Return what `doctor` warns of its keys: the model has neither this clock nor logins."""
        found = self.runner.run(self.backend.doctor(0.0))
        texts = [f.what.partition(": ")[2] for f in found if f.level == "warn"]
        return [text for text in texts if "clock" not in text and "login" not in text]

    def channel(self, serial: int) -> str:
        return self.listener.waiting[mine(serial).id].group.channels[0]


def test_what_the_renewer_sends_does_not_wait_long_for_its_reply() -> None:
    """It reports losses, and must be free before a lease ends."""
    fixture = Fixture()
    assert isinstance(fixture.ask(Acquire(RIVAL, False)), Grant)
    assert fixture.ask(Renew((RIVAL,))) == (True,)
    assert isinstance(fixture.sent[-1], SendInTime)
    fixture.ask(Release(RIVAL, True))
    assert isinstance(fixture.sent[-1], SendInTime)


# --- subscriptions --------------------------------------------------------------------------------


def test_a_claim_whose_subscription_was_ended_asks_and_subscribes_anew() -> None:
    fixture = Fixture()
    (connection,) = fixture.busy(1)
    signal = fixture.listener.waiting[mine(1).id].signal
    connection.pushes += [("another", None), (fixture.channel(1), None)]
    fixture.listener.drain(connection)
    assert signal.is_set
    assert not fixture.listener.waiting
    fixture.wait(1)
    assert fixture.sent[-1].subscriptions


def test_a_kept_subscription_that_was_ended_is_not_used() -> None:
    fixture = Fixture()
    (connection,) = fixture.busy(1)
    connection.pushes.append((fixture.channel(1), None))
    fixture.backend.forget(mine(1))
    # Taken back by the pool, it has lost what it had read.
    connection.pushes.append((next(iter(fixture.listener.subscriptions.kept)).channels[0], None))
    fixture.listener.drain(connection)
    assert not fixture.listener.subscriptions.kept
    fixture.wait(2)
    assert fixture.sent[-1].subscriptions


def test_an_end_that_is_read_before_a_reply_counts() -> None:
    fixture = Fixture()
    (connection,) = fixture.busy(1)
    ended = fixture.channel(1)
    fixture.before = lambda command: connection.pushes.append((ended, None))
    fixture.ask(Acquire(mine(1), True))
    assert not fixture.listener.waiting


def test_a_claim_that_asks_twice_at_once_waits_on_one_connection() -> None:
    fixture = Fixture()
    fixture.busy()
    pool = fixture.store.pool
    idle = pool.take(HERE)
    assert idle is not None
    fixture.store.queue.note_contention("a")
    first = fixture.backend.request(Acquire(mine(1), True), 0.0).__await__()
    effect = next(first)
    while not (isinstance(effect, Call) and isinstance(effect.request, Connect)):
        effect = first.send(fixture.runner._answer(effect))
    fixture.wait(1)
    answer: Any = None
    while not isinstance(answer, Busy):
        try:
            effect = first.send(fixture.runner._answer(effect))
        except StopIteration as ended:
            answer = ended.value
    pool.put(idle)
    assert sum(connection.users for connection in pool.connections) == 1
    fixture.backend.forget(mine(1))
    assert sum(connection.users for connection in pool.connections) == 0


def test_addresses_of_claims_that_gave_up_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_sharing, "MOST_ADDRESSES", 2)
    fixture = Fixture()
    fixture.busy(1, 2, 3)
    sharing = fixture.listener.sharing
    assert isinstance(sharing, connection_sharing.ExclusiveToClaim)
    assert list(sharing.addresses) == [mine(2).id, mine(3).id]


def test_a_subscription_that_cannot_be_ended_costs_the_connection() -> None:
    fixture = Fixture()
    (connection,) = fixture.busy(1)
    connection.tell = lambda data, subscriptions: False
    fixture.backend.forget(mine(1))
    fixture.runner.time += 2 * subscriptions.KEEP
    fixture.runner.run(fixture.listener.subscriptions._expire(), background=True)
    assert not fixture.listener.subscriptions.kept
    assert not connection.open


def test_a_group_without_claims_wakes_none() -> None:
    fixture = Fixture()
    fixture.busy(1)
    group = fixture.listener.waiting[mine(1).id].group
    fixture.backend.forget(mine(1))
    group.wake_first()
    assert not group.waiters


@pytest.mark.parametrize("shared", [False, True])
def test_closing_ends_the_connections_of_waiters_and_watchers(shared: bool) -> None:
    fixture = Fixture(shared=shared)
    waiting = fixture.busy(1)
    fixture.runner.run(fixture.backend.watch_lock(mine(2), 0.0))
    watching = [watch.connection for watch in fixture.backend.tracking.watches.values()]
    assert watching
    fixture.store.close()
    assert not any(connection.open for connection in (*waiting, *watching))


# --- the pool -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_a_client_that_is_closed_while_it_connects_keeps_no_connection(shared: bool) -> None:
    pool = Fixture(shared=shared).store.pool
    first, second = pool.get(HERE, 1.0), pool.get(HERE, 1.0)
    connection = first.send(None).node
    second.send(None)
    pool.close()
    connection.open = True
    with pytest.raises(Unreachable, match="closed meanwhile"):
        first.send(None)
    assert not connection.open
    reason = "the client was closed" if shared else "closed meanwhile"
    with pytest.raises(Unreachable, match=reason):
        second.send(None)
    assert not pool.connections


def test_a_request_that_waits_for_a_connection_has_a_deadline() -> None:
    pool = Fixture(shared=True).store.pool
    connecting, waiting = pool.get(HERE, 1.0), pool.get(HERE, 1.0)
    connecting.send(None)
    waiting.send(None)
    with pytest.raises(Unreachable, match="no connection within its time"):
        waiting.send(False)
    connecting.close()


def begun(pool: Pool, requests: int) -> list[Any]:
    """Requests for a connection; the first one connects, and the others wait for it."""
    gets = [pool.get(HERE, 1.0).__await__() for _ in range(requests)]
    effects = [get.send(None) for get in gets]
    assert [type(effect) for effect in effects] == [Call, *[Wait] * (requests - 1)]
    return gets


def ended(get: Any, answer: object) -> Any:
    """The connection that a request gets with the answer to its effect."""
    with pytest.raises(StopIteration) as stopped:
        get.send(answer)
    return stopped.value.value[0]


def test_requests_that_wait_for_an_attempt_share_its_connection() -> None:
    pool = Fixture(shared=True).store.pool
    connecting, *waiting = begun(pool, 3)
    for connection in pool.connections:
        connection.open = True
    found = [ended(connecting, None), *(ended(get, True) for get in waiting)]
    assert len({*found}) == len(pool.connections) == 1
    assert found[0].users == 3


def test_requests_that_wait_for_an_attempt_fail_with_it() -> None:
    pool = Fixture(shared=True).store.pool
    connecting, *waiting = begun(pool, 3)
    with pytest.raises(NotApplied):
        connecting.throw(NotApplied("wrong password", "denied"))
    for get in waiting:
        with pytest.raises(NotApplied, match="wrong password") as caught:
            get.send(True)
        assert caught.value.reason == "denied"
    assert not pool.connections
    begun(pool, 2)


@pytest.mark.parametrize("lost", [False, True], ids=["cancelled", "lost at once"])
def test_after_an_attempt_without_a_connection_one_request_connects(lost: bool) -> None:
    pool = Fixture(shared=True).store.pool
    connecting, first, second = begun(pool, 3)
    if lost:
        ended(connecting, None)  # it is not open
    else:
        with pytest.raises(GeneratorExit):
            connecting.throw(GeneratorExit)
    again = first.send(True)
    assert isinstance(second.send(True), Wait)
    again.node.open = True
    assert ended(first, None) is ended(second, True) is again.node


# --- requests -------------------------------------------------------------------------------------


def test_parts_that_all_servers_refuse_are_an_error() -> None:
    async def refused() -> None:
        raise NotApplied("no")

    fixture = Fixture()
    with pytest.raises(NotApplied, match="no"):
        fixture.runner.run(fixture.store.executor.each([("a", refused)]))


def test_a_lock_that_changes_hands_while_it_is_broken_is_not_broken() -> None:
    fixture = Fixture()
    fixture.ask(Acquire(mine(1), False))
    fixture.ask(Inspect("a", "*"))
    sent = len(fixture.sent)

    def hand_over(command: tuple[Any, ...]) -> None:
        if len(fixture.sent) == sent + 2:
            fixture.before = lambda command: None
            fixture.line.do(("DEL", "lock:a"))
            fixture.ask(Acquire(RIVAL, False))

    fixture.before = hand_over
    broken = fixture.ask(BreakLock("a", None))
    assert not broken.done
    assert broken.held is not None
    assert broken.held.id == RIVAL.id


def test_a_lock_that_another_program_holds_is_asked_for_soon() -> None:
    fixture = Fixture("string")
    fixture.line.do(("SET", "lock:a", "another"))
    busy = fixture.ask(Acquire(mine(1), True))
    assert isinstance(busy, Busy)
    assert busy.retry_after <= 0.1
    assert busy.held is not None
    assert busy.held.metadata


def test_a_lock_whose_owner_is_an_empty_text_has_no_holder() -> None:
    fixture = Fixture("string")
    fixture.line.do(("SET", "lock:a", ""))
    (state,) = fixture.ask(Inspect("a", "*"))
    assert state.held is None


def test_a_master_that_refuses_ends_no_lease_on_another() -> None:
    claims = [mine(1), mine(2)._replace(name="b")]
    slots = [slot_of(f"lock:{claim.name}") for claim in claims]
    places = [[slot, slot, [b"nowhere", port]] for port, slot in enumerate(slots)]

    def answer(address: Address, message: Send) -> list[Any]:
        if commands_of(message)[0][0] == b"CLUSTER":
            return [places, [b"0", 0]]
        return [[1] if address.port else REFUSED]

    runner = Runner("redis+cluster://nowhere", answer)
    backend = runner.store.backend("hash")
    assert runner.run(backend.request(Renew(claims), 0.0)) == (None, True)


# --- formats of others ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [GETSET, INCR])
def test_a_repeated_request_is_granted_again(form: str) -> None:
    fixture = Fixture(form)
    for _ in range(2):
        assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)
    busy = fixture.ask(Acquire(RIVAL, False))
    assert isinstance(busy, Busy)
    assert busy.held is not None
    assert busy.held.id == mine(1).id
    fixture.backend.after_fork()


@pytest.mark.parametrize("form", [GETSET, INCR, "setnx", EXPIRE])
def test_a_hold_is_renewed_until_another_program_ends_it(form: str) -> None:
    fixture = Fixture(form)
    fixture.ask(Acquire(mine(1), False))
    assert fixture.ask(Renew((mine(1),))) == (True,)
    assert fixture.ask(SetLifetime(mine(1), "lease")).held
    fixture.line.do(("DEL", "lock:a"))
    assert fixture.ask(Renew((mine(1),))) == (False,)
    assert not fixture.ask(SetLifetime(mine(1), "lease")).held


def test_a_lock_that_another_client_took_is_neither_extended_nor_deleted() -> None:
    """The owner is compared in the same script."""
    fixture = Fixture(EXPIRE)
    fixture.ask(Acquire(mine(1), False))
    fixture.line.do(("SET", "lock:a", owner_of(RIVAL.id), "PX", 1000))
    assert fixture.ask(Renew((mine(1),))) == (False,)
    assert fixture.ask(Release(mine(1), False)).was == "absent"
    assert fixture.line.do(("PTTL", "lock:a")) == 1000


def test_a_request_that_is_repeated_does_the_same_once() -> None:
    fixture = Fixture(EXPIRE)
    fixture.ask(Acquire(mine(1), False))
    for _ in range(2):
        assert fixture.ask(Renew((mine(1)._replace(lease=90.5),))) == (True,)
        assert fixture.line.do(("TTL", "lock:a")) == 91
    lose_reply(fixture, b"EVALSHA", carried_out=True)
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Release(mine(1), False))
    assert fixture.ask(Release(mine(1), False)).was == "absent"
    assert fixture.line.do(("EXISTS", "lock:a", "leaselock:holder:{lock:a}")) == 0


def test_a_time_that_has_passed_is_no_hold() -> None:
    fixture = Fixture(GETSET)
    fixture.line.do(("SET", "lock:a", "1"))
    (state,) = fixture.ask(Inspect("a", "*"))
    assert state.held is None
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)


def test_of_two_programs_that_find_the_time_over_one_acquires() -> None:
    fixture = Fixture(GETSET)
    fixture.line.do(("SET", "lock:a", "1"))

    def be_first(command: tuple[Any, ...]) -> None:
        if command[0] == b"GETSET":
            fixture.before = lambda command: None
            fixture.line.do(("SET", "lock:a", str(int(fixture.wall * 1000) + 60_000)))

    fixture.before = be_first
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Busy)


def lose_reply(fixture: Fixture, name: bytes, carried_out: bool) -> None:
    """Lose the reply to the next command of this name, or the command itself."""

    def lose(command: tuple[Any, ...]) -> None:
        if command[0] == name:
            fixture.before = lambda command: None
            if carried_out:
                fixture.line.do(command)
            raise OutcomeUnknown("the connection was lost")

    fixture.before = lose


@pytest.mark.parametrize("form", [GETSET, INCR])
@pytest.mark.parametrize("recorded", [False, True], ids=["before its record", "recorded"])
def test_a_release_that_is_repeated_does_not_end_the_next_hold(form: str, recorded: bool) -> None:
    """The next hold may have the same value: its end is in the same millisecond, or its count 1."""
    fixture = Fixture(form)
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)
    lose_reply(fixture, b"DEL", carried_out=True)
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Release(mine(1), False))
    assert isinstance(fixture.ask(Acquire(RIVAL, False)), Grant)
    if not recorded:
        fixture.line.do(("DEL", "leaselock:holder:{lock:a}"))
    assert fixture.ask(Release(mine(1), True)).was == "absent"
    assert fixture.line.do(("EXISTS", "lock:a")) == 1


@pytest.mark.parametrize("form", [GETSET, INCR])
def test_a_release_that_was_not_carried_out_can_be_repeated(form: str) -> None:
    fixture = Fixture(form)
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)
    lose_reply(fixture, b"DEL", carried_out=False)
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Release(mine(1), False))
    assert fixture.ask(Release(mine(1), True)).was == "held"
    assert fixture.line.do(("EXISTS", "lock:a")) == 0


def test_a_try_that_is_repeated_does_not_take_a_hold_that_ends_in_the_same_millisecond() -> None:
    fixture = Fixture(GETSET)
    lose_reply(fixture, b"GET", carried_out=False)
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Acquire(mine(1), False))
    assert isinstance(fixture.ask(Acquire(RIVAL, False)), Grant)
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Busy)
    assert fixture.ask(Release(mine(1), True)).was == "absent"


def test_a_try_whose_reply_was_lost_finds_its_hold() -> None:
    fixture = Fixture(GETSET)
    lose_reply(fixture, b"INCR", carried_out=False)
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Acquire(mine(1), False))
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)
    assert fixture.ask(Release(mine(1), True)).was == "held"


def test_a_release_goes_on_without_a_record_that_cannot_be_read() -> None:
    fixture = Fixture(INCR)
    assert isinstance(fixture.ask(Acquire(mine(1), False)), Grant)
    fixture.line.do(("DEL", "leaselock:holder:{lock:a}"))
    fixture.line.do(("HSET", "leaselock:holder:{lock:a}", "f", "v"))
    assert fixture.ask(Release(mine(1), False)).was == "held"
    assert fixture.line.do(("EXISTS", "lock:a")) == 0


# --- texts ----------------------------------------------------------------------------------------


def test_an_escaped_lock_is_found() -> None:
    fixture = Fixture()
    runner = Runner("redis://nowhere?prefix=", fixture._send)
    backend = runner.store.backend("hash")
    held = mine(1)._replace(name="leaselock:a")
    assert isinstance(runner.run(backend.request(Acquire(held, False), 0.0)), Grant)
    (state,) = runner.run(backend.request(Inspect(None, "*"), 0.0))
    assert state.name == held.name


def test_a_socket_in_the_file_system_is_connected_to() -> None:
    settings = settings_of("unix:///run/redis")
    connection = new_connection(redis.connection, settings, settings.addresses[0], 1.0)
    assert connection.path == "/run/redis"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (redis.exceptions.AuthenticationError("HELLO: already authenticated"), "wants a password"),
        (redis.exceptions.AuthenticationError("WRONGPASS"), "permission denied: WRONGPASS"),
        (redis.exceptions.ResponseError("unknown command 'HELLO'"), "since version 6"),
        (redis.exceptions.ResponseError("NOPROTO unsupported protocol"), "RESP3"),
    ],
)
def test_a_server_that_lets_no_one_in_is_not_asked_again(error: Exception, reason: str) -> None:
    found = refusal(settings_of("redis://h"), HERE, error)
    assert isinstance(found, NotApplied)
    assert reason in str(found)


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        redis.exceptions.MasterDownError("Link with MASTER is down"),
        redis.exceptions.ConnectionError("max number of clients reached"),
        redis.exceptions.ResponseError("max number of clients reached"),
        redis.exceptions.TimeoutError("Timeout connecting to server"),
    ],
)
def test_a_server_that_cannot_serve_at_the_moment_is_waited_for(error: Exception) -> None:
    for url in ("redis://h", "rediss://h"):
        assert isinstance(refusal(settings_of(url), HERE, error), Unreachable)


def test_the_scripts_can_be_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scripts.main([str(tmp_path / "all")]) == 0
    assert len(list((tmp_path / "all").glob("*.lua"))) == len(SCRIPTS)
    assert scripts.main([]) == 2
    assert "DIRECTORY" in capsys.readouterr().err


def test_keys_of_others_are_no_locks() -> None:
    assert name_of("leaselock:queue:{lock:a}", "") is None
    assert name_of("app:a", "lock:") is None
    assert name_of("leaselock:lock:{leaselock%3Aa}", "leaselock:") == "a"
    assert lock_in("another", COUNTER) is None


@pytest.mark.parametrize("lock", ["a", "a{b}", "{x}a", "{x}{y}", "a}b", ":a"])
def test_the_lock_of_a_counter_is_found_in_its_key(lock: str) -> None:
    assert lock_in(redissons(COUNTER, lock), COUNTER) == lock


def test_a_member_of_another_program_is_no_waiter() -> None:
    odd = waiter_of("a", b"other\naddress\n1000\nlong ago\n")
    assert odd is not None
    assert odd.since == 0.0
    assert waiter_of("a", b"other") is None


def test_notes_of_contention_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_state, "MOST_CONTENDED", 1)
    queue = QueueState(lambda: 0.0)
    for name in ("a", "b", "c"):
        queue.note_contention(name)
    assert list(queue.contended) == ["c"]


def test_a_note_of_contention_is_used_once_and_within_a_second() -> None:
    time = 0.0
    queue = QueueState(lambda: time)
    for time, after, contended in ((0.0, 0.9, True), (5.0, 6.0, False)):
        queue.note_contention("a")
        time = after
        assert queue.is_contended("a") is contended
        assert not queue.is_contended("a")


def test_a_place_in_the_queue_is_left_once() -> None:
    queue = QueueState(lambda: 0.0)
    assert not queue.leave("one")
    queue.enqueue("one", b"1", 0.0)
    queue.enqueue("two", b"2", 0.0)
    assert [queue.leave("one"), queue.leave("one"), queue.leave("two")] == [True, False, True]


def test_a_message_tells_of_a_grant_while_little_of_its_time_has_passed() -> None:
    time = 10.0
    queue = QueueState(lambda: time)
    for passed, grant in ((0.25, Grant(7, (), 10.0, 2.0)), (0.75, None)):
        time = 10.0 + passed
        queue.notified("one", 6, 2.0)
        queue.enqueue("one", b"1", 10.0)
        assert queue.grant("one") is None
        queue.notified("one", 7, 2.0)
        assert queue.grant("one") == grant
        assert queue.leave("one") is (grant is None)


def test_keys_are_read_in_pages_up_to_a_number() -> None:
    pages = {b"0": [b"7", [b"one"]], b"7": [b"0", [b"two"]]}

    def answer(address: Address, message: Send) -> list[Any]:
        return [pages[commands_of(message)[0][1]]]  # type: ignore[index]

    runner = Runner("redis://nowhere", answer)
    executor = runner.store.executor
    assert runner.run(keys_on(executor, HERE, "*", 0.0)) == ["one", "two"]
    assert runner.run(keys_on(executor, HERE, "*", 0.0, pages=1)) == ["one"]


def test_a_reply_that_may_belong_to_another_request_is_an_error() -> None:
    assert not shifts_replies(1)
    with pytest.raises(ValueError, match="NOPERM"):
        shifts_replies(REFUSED)
    assert "malformed: ValueError: no" in str(protocol_error(ValueError("no")))


# --- other requests -------------------------------------------------------------------------------


def test_doctor_finds_what_is_no_lock() -> None:
    fixture = Fixture()
    fixture.ask(Acquire(mine(1), False))
    fixture.line.do(("SET", "lock:text", "of the application"))
    fixture.line.do(("ZADD", "lock:set", "NX", "1", "of the application"))
    fixture.line.do(("SET", "leaselock:holder:{another}", "x"))
    assert fixture.warnings() == [
        "2 keys under 'lock:' are not locks: 'lock:set'",
        "1 locks are held without 'lock:': 'another'",
    ]


def test_counters_that_do_not_expire_are_found_and_removed() -> None:
    fixture = Fixture()
    counter = f"{COUNTER}:{{lock:a}}"
    fixture.line.do(("SET", counter, "7"))
    assert fixture.warnings() == ["1 of 1 token counters never expire"]
    assert all_steps(fixture, fixture.backend) == 0
    keeping = Runner("redis://nowhere?token_ttl=0", fixture._send).store.backend("hash")
    assert all_steps(fixture, keeping) == 0


def all_steps(fixture: Fixture, backend: RedisBackend) -> int:
    """How many records a garbage collection removes. Each step ends at its deadline."""
    step = fixture.runner.run(backend.collect_garbage(None, 0.0))
    removed = step.removed
    while step.position is not None:
        step = fixture.runner.run(backend.collect_garbage(step.position, 0.0))
        removed += step.removed
    return int(removed)


def test_a_client_that_closes_waits_no_more() -> None:
    fixture = Fixture()
    fixture.busy(1)
    signal = fixture.listener.waiting[mine(1).id].signal
    fixture.store.wake()
    assert signal.is_set
    fixture.store.after_fork()
    assert not fixture.listener.waiting


@pytest.mark.parametrize("given_back", [True, False])
def test_a_user_who_may_not_subscribe_does_not_queue(given_back: bool) -> None:
    fixture = Fixture()
    fixture.busy()
    error = Exception("NOPERM this user has no permissions to access the channel")

    def refuse(command: tuple[Any, ...]) -> None:
        for connection in fixture.store.pool.connections:
            connection.refused |= {channel: error for _, channel in fixture.sent[-1].subscriptions}
        if not fixture.sent[-1].subscriptions and command[0].startswith(b"EVAL") and not given_back:
            raise NotApplied("no")

    fixture.store.queue.note_contention("a")
    fixture.before = refuse
    expected = NotApplied if given_back else OutcomeUnknown
    reason = "permission denied" if given_back else "could not be given back: no"
    with pytest.raises(expected, match=reason):
        fixture.ask(Acquire(mine(1), True))
    assert not fixture.listener.waiting


def test_a_waiter_does_not_queue_if_the_subscription_it_shares_is_refused() -> None:
    fixture = Fixture(shared=True)
    (connection,) = fixture.busy(1)
    channels = fixture.listener.waiting[mine(1).id].group.channels
    error = Exception("NOPERM this user has no permissions to access the channel")

    def refuse(command: tuple[Any, ...]) -> None:
        connection.refused |= dict.fromkeys(channels, error)

    fixture.before = refuse
    with pytest.raises(NotApplied, match="permission denied"):
        fixture.ask(Acquire(mine(2), True))
    queue: Any = fixture.line.do((b"ZRANGE", keys_of("a").queue.encode(), b"0", b"-1"))
    assert [member.decode().partition("\n")[0] for member in queue] == [owner_of(mine(1).id)]


def test_a_claim_that_gave_up_during_its_request_leaves_nothing() -> None:
    fixture = Fixture()
    (connection,) = fixture.busy(1)

    def give_up(command: tuple[Any, ...]) -> None:
        fixture.backend.forget(mine(1))
        raise OutcomeUnknown("no answer")

    fixture.before = give_up
    with pytest.raises(OutcomeUnknown):
        fixture.ask(Acquire(mine(1), True))
    assert not connection.open


def test_a_connection_that_another_thread_reads_on_is_not_given_away() -> None:
    """A hold is released by one thread while another one upgrades it with the same claim."""
    fixture = Fixture()
    (connection,) = fixture.busy(1)
    fixture.before = lambda command: fixture.backend.forget(mine(1))
    fixture.ask(Acquire(mine(1), True))
    assert connection not in fixture.store.pool.idle[HERE]
    assert not connection.open
    fixture.before = lambda command: None
    connection = fixture.wait(2)
    listening = fixture.backend.await_wakeup(mine(2), 0.0).__await__()
    next(listening)
    fixture.backend.forget(mine(2))
    listening.close()
    assert connection not in fixture.store.pool.idle[HERE]
    assert not connection.open


def test_a_watcher_is_woken_by_the_id_of_its_claim() -> None:
    """A hand-off within the client changes no key, so the server pushes nothing."""
    fixture = Fixture()
    fixture.runner.run(fixture.backend.watch_lock(mine(2), 0.0))
    (watch,) = fixture.backend.tracking.watches.values()
    watch.signal.clear()
    fixture.backend.wake([mine(1).id])
    assert not watch.signal.is_set
    fixture.backend.wake([mine(2).id])
    assert watch.signal.is_set


def test_messages_for_no_claim_wake_none() -> None:
    fixture = Fixture(shared=True)
    (connection,) = fixture.busy(1)
    fixture.runner.run(fixture.backend.watch_lock(mine(2), 0.0))
    (watch,) = fixture.backend.tracking.watches.values()
    channel = fixture.channel(1)
    fixture.backend.forget(mine(1))
    assert (connection, channel) in fixture.listener.subscriptions.by_channel
    watch.signal.clear()
    connection.pushes += [(channel, "another:1\n1\n3000"), ("a channel of before", "another:1")]
    connection.pushes.append((CHANGED, "another"))
    fixture.listener.drain(connection)
    assert not watch.signal.is_set
    # A claim that does not watch waits for its turn, even if others watch.
    fixture.runner.run(fixture.backend.await_wakeup(mine(1), 0.0))
    connection.pushes.append((CHANGED, watch.keys[0]))
    fixture.listener.drain(connection)
    assert watch.signal.is_set
