"""A Redlock of three models of a server, step by step: masters that do not answer, votes that
differ, and what the others say of a lock. Time passes only where a test lets it.
"""

from __future__ import annotations

from typing import Any

import pytest
from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server
from verification.models.sides import claim_of

from leaselock._backends.redis.scripted_backend import RECHECK_FOREIGN
from leaselock._backends.redlock import protocol
from leaselock._backends.redlock.master import Master
from leaselock._backends.redlock.protocol import BLOCKED_FOR, Redlock
from leaselock._backends.redlock.quorum import SEVERAL, SKIPPED_FOR
from leaselock._backends.redlock.votes import Votes, has_enough
from leaselock._core.contract.backend import Busy, Claim, Grant, Inspect
from leaselock._core.contract.effects import Spawn, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

pytestmark = pytest.mark.covers

HOSTS = ("m0", "m1", "m2")
LEASE = 30.0
# When a claim was made, by the clock on the wall: about the time of the servers.
SINCE = 1_700_000_000.0


class Fixture:
    """The servers, their clock, and which of them do not answer."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.servers = {host: Server(lambda: int(self.time * 1e6)) for host in HOSTS}
        self.silent: set[str] = set()
        # Those that carry a request out, and whose reply is lost.
        self.deaf: set[str] = set()
        self.refusing: set[str] = set()


class LateRunner(Runner):
    """It can put off the requests to other masters than the first."""

    late: list[Any] | None = None
    waits = False
    # So many are never answered.
    spare = 0

    def _answer(self, effect: Any) -> Any:
        if isinstance(effect, Wait) and self.waits and len(self.late or ()) > self.spare:
            assert self.late
            self.run(self.late.pop(0), background=True)
            return True
        if isinstance(effect, Spawn) and effect.name == "vote" and self.late is not None:
            self.late.append(effect.operation)
            return None
        return super()._answer(effect)


class Client:
    """One client, and its claims."""

    def __init__(self, fixture: Fixture, number: int) -> None:
        self.fixture = fixture
        self.id = f"{number:032x}"
        self.lines = {
            host: Connection(server, lambda channel, word: None)
            for host, server in fixture.servers.items()
        }
        self.runners = [LateRunner(f"redis://{host}", self._send) for host in HOSTS]
        masters = [
            Master(host, runner.store.voting_locks())
            for host, runner in zip(HOSTS, self.runners, strict=True)
        ]
        capabilities: Any = masters[0].locks.capabilities
        self.locks = Redlock(masters, capabilities, lambda: fixture.time, lambda: 0.5)

    def _send(self, address: Any, message: Any) -> list[Any]:
        host = address.host
        if host in self.fixture.refusing:
            raise NotApplied("it refuses")
        if host in self.fixture.silent:
            raise OutcomeUnknown("no answer")
        for _, channel in message.subscriptions:
            self.lines[host].subscribe(channel)
        replies = [self.lines[host].do(command) for command in commands_of(message)]
        if host in self.fixture.deaf:
            raise OutcomeUnknown("the reply was lost")
        return replies

    def claim(self, serial: int = 1) -> Claim:
        return claim_of(self.id, "a", serial, LEASE)._replace(since=SINCE + serial)

    def run(self, operation: Any) -> Any:
        # Deadlines are far away: the runner's own clock moves where the text waits for a retry.
        for runner in self.runners:
            runner.time = 0.0
        return self.runners[0].run(operation)

    def until(self) -> float:
        return self.fixture.time + 5.0

    def acquire(self, serial: int = 1, *, wait: bool = True) -> Any:
        return self.run(self.locks.acquire(self.claim(serial), wait=wait, until=self.until()))

    def release(self, serial: int = 1, *, tombstone: bool = False) -> Any:
        operation = self.locks.release(self.claim(serial), tombstone=tombstone, until=self.until())
        return self.run(operation)

    def renew(self, serial: int = 1) -> Any:
        (kept,) = self.run(self.locks.renew((self.claim(serial),), self.until()))
        return kept

    def inspect(self, name: str | None = "a") -> Any:
        return self.run(self.locks.inspect(name, "*", self.until()))

    def walk(self) -> Any:
        return self.run(self.locks.walk("*", self.until()))

    def break_lock(self, token: int | None = None) -> Any:
        return self.run(self.locks.break_lock("a", token, self.until()))


@pytest.fixture
def fixture() -> Fixture:
    """Return a fixture whose servers know the scripts."""
    fixture = Fixture()
    first = Client(fixture, 9)
    first.acquire()
    first.release()
    return fixture


def test_a_lock_is_held_by_whom_a_majority_names(fixture: Fixture) -> None:
    holder, waiter = Client(fixture, 1), Client(fixture, 2)
    grant = holder.acquire()
    assert isinstance(grant, Grant)
    busy = waiter.acquire()
    assert isinstance(busy, Busy)
    assert busy.held is not None
    assert busy.held.id == holder.claim().id
    waiter.run(waiter.locks.await_wakeup(waiter.claim(), waiter.until()))
    (state,) = waiter.inspect()
    assert state.held.token == grant.token
    assert [claim.id for claim in state.waiting] == [waiter.claim().id]
    assert waiter.inspect(None) == waiter.walk() == (state,)
    assert holder.renew() is True
    assert holder.release()
    waiter.locks.close()
    assert isinstance(waiter.acquire(), Grant)


def test_the_first_in_the_queue_asks_again_at_once_unless_the_client_is_closed(
    fixture: Fixture,
) -> None:
    """The others may carry out the release a little later."""
    holder, waiter = Client(fixture, 1), Client(fixture, 2)
    fixture.silent = {HOSTS[0]}
    assert isinstance(holder.acquire(), Grant)
    fixture.silent = set()
    assert isinstance(waiter.acquire(), Busy)
    assert waiter.locks.claims[waiter.claim().id].failures == protocol.TRIES


def test_a_waiter_looks_often_at_a_lock_of_another_library(fixture: Fixture) -> None:
    """Which sends no message when it releases."""
    waiter = Client(fixture, 1)
    for line in waiter.lines.values():
        line.do(("SET", "lock:a", "a secret of redsync", "PX", "60000"))
    busy = waiter.acquire()
    assert isinstance(busy, Busy)
    assert busy.retry_after <= RECHECK_FOREIGN


@pytest.mark.parametrize(("moment", "left"), [(0.95, True), (0.5, False)])
def test_a_contended_release_leaves_other_libraries_a_turn(
    fixture: Fixture, moment: float, left: bool
) -> None:
    """In the last tenth of each second; otherwise the lock is handed to the first waiter."""
    holder, waiter = Client(fixture, 1), Client(fixture, 2)
    assert isinstance(holder.acquire(), Grant)
    assert isinstance(waiter.acquire(), Busy)
    fixture.time = float(int(fixture.time) + 1) + moment
    holder.release()
    held = [line.do(("EXISTS", "lock:a")) for line in waiter.lines.values()]
    assert held == [0, 0, 0] if left else held.count(1) == 1
    fixture.time += 0.1
    assert isinstance(waiter.acquire(), Grant)


def test_breaking_ends_the_hold_of_the_majority(fixture: Fixture) -> None:
    holder, other = Client(fixture, 1), Client(fixture, 2)
    grant = holder.acquire()
    assert not other.break_lock(grant.token + 1).done
    broken = other.break_lock(grant.token)
    assert broken.done
    assert broken.held.token == grant.token
    assert not other.break_lock().done
    assert holder.renew() is False
    assert not holder.release()
    assert other.inspect(None) == ()


def test_a_lock_that_most_masters_do_not_let_be_broken_is_not(fixture: Fixture) -> None:
    holder, other = Client(fixture, 1), Client(fixture, 2)
    holder.acquire()
    operation = other.locks.break_lock("a", None, other.until())
    inspected = 0

    def silent_later(address: Any, message: Any) -> list[Any]:
        nonlocal inspected
        inspected += 1
        # Each of them is sent the text of the script first.
        if address.host != "m1" and inspected > len(HOSTS) * 2:
            raise OutcomeUnknown("no answer")
        return Client._send(other, address, message)

    other.runners[0].answer = silent_later
    with pytest.raises(OutcomeUnknown, match="could not be broken on most masters"):
        other.run(operation)


def test_a_master_that_nobody_has_seen_may_have_the_hold(fixture: Fixture) -> None:
    """One is silent, one does not let it be broken: together they may be the majority."""
    holder, other = Client(fixture, 1), Client(fixture, 2)
    holder.acquire()
    fixture.silent = {"m2"}
    operation = other.locks.break_lock("a", None, other.until())
    asked = list[str]()

    def silent_later(address: Any, message: Any) -> list[Any]:
        asked.append(address.host)
        # It is sent the text of the script that inspects first.
        if address.host == "m1" and asked.count("m1") > 2:
            raise OutcomeUnknown("no answer")
        return Client._send(other, address, message)

    other.runners[0].answer = silent_later
    with pytest.raises(OutcomeUnknown, match="could not be broken on most masters"):
        other.run(operation)


def test_a_minority_that_does_not_answer_is_released_later(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    fixture.deaf = {"m2"}
    assert isinstance(client.acquire(), Grant)
    assert client.release()
    pending = client.locks.pending_releases
    assert list(pending.requests[2]) == [client.claim().id]
    assert not client.run(pending.send(2))
    fixture.deaf = set()
    assert client.run(pending.send(2))
    assert not pending.requests[2]
    # It is not asked for a while, and then again.
    fixture.time += SKIPPED_FOR
    other = Client(fixture, 2)
    assert isinstance(other.acquire(), Grant)


def test_releases_are_given_up_when_the_lease_is_over(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    fixture.silent = {"m2"}
    client.acquire()
    client.release()
    fixture.time += 1000.0
    assert client.run(client.locks.pending_releases.send(2))


def test_without_a_majority_nothing_is_known(fixture: Fixture) -> None:
    client, other = Client(fixture, 1), Client(fixture, 2)
    client.acquire()
    fixture.silent = {"m0", "m1"}
    for request in (other.acquire, client.renew, client.release, client.inspect):
        with pytest.raises(OutcomeUnknown, match="2 of 3 masters did not answer"):
            request()
    fixture.silent, fixture.refusing = set(), set(HOSTS)
    fixture.time += SKIPPED_FOR
    with pytest.raises(NotApplied, match=r"3 of 3 masters refused .*it refuses"):
        Client(fixture, 3).acquire()


@pytest.mark.parametrize("wait", [True, False])
def test_a_lock_that_two_masters_refuse_is_certainly_not_acquired(
    fixture: Fixture, wait: bool
) -> None:
    """The vote of the third one was given back, so the caller need not wait for an answer."""
    client, other = Client(fixture, 1), Client(fixture, 2)
    fixture.refusing = {"m1", "m2"}
    with pytest.raises(NotApplied, match=r"2 of 3 masters refused \(m1: .*; m2: "):
        client.acquire(wait=wait)
    known = client.locks.claims.get(client.claim().id)
    assert known is None or known.nothing_under_way()
    fixture.refusing = set()
    fixture.time += SKIPPED_FOR
    assert isinstance(other.acquire(), Grant)


def test_masters_that_refuse_are_all_heard(fixture: Fixture) -> None:
    """Two that refuse are enough to know that the claim gets no majority, but not to know that the
    third one did nothing: the caller would ask again until its time is over.
    """
    client = Client(fixture, 1)
    fixture.refusing = set(HOSTS)
    runner = client.runners[0]
    runner.late, runner.waits = [], True
    with pytest.raises(NotApplied):
        client.acquire()
    assert not runner.late
    fixture.time += SKIPPED_FOR
    # The last one is silent.
    fixture.refusing, fixture.silent = {"m0", "m1"}, {"m2"}
    message = "1 of 3 masters did not answer, 2 of 3 masters refused"
    with pytest.raises(OutcomeUnknown, match=message):
        client.acquire(2)
    # It does not answer in time. A later try does not wait for it: its outcome is not known anyway.
    fixture.time += SKIPPED_FOR
    runner.spare = 1
    for _ in range(2):
        runner.late = []
        with pytest.raises(OutcomeUnknown):
            client.acquire(3)
        (unanswered,) = runner.late
        unanswered.close()
        fixture.time += SKIPPED_FOR


def test_a_vote_that_is_not_given_back_for_certain_keeps_the_outcome_open(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    fixture.deaf, fixture.refusing = {"m0"}, {"m1", "m2"}
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            client.acquire()
        fixture.time += SKIPPED_FOR
    assert client.locks.claims[client.claim().id].uncertain
    # Refused by all: this try has done nothing, but an earlier one may have.
    fixture.deaf, fixture.refusing = set(), set(HOSTS)
    with pytest.raises(NotApplied):
        client.acquire()
    assert client.locks.claims[client.claim().id].uncertain


def test_a_place_in_the_queue_keeps_the_outcome_open(fixture: Fixture) -> None:
    """Otherwise the claim would stay in the queue of the master that answered."""
    client, other = Client(fixture, 1), Client(fixture, 2)
    client.acquire()
    fixture.refusing = {"m1", "m2"}
    with pytest.raises(OutcomeUnknown):
        other.acquire()
    with pytest.raises(NotApplied):
        Client(fixture, 3).acquire(wait=False)


def test_votes_of_a_lost_try_are_given_back(fixture: Fixture) -> None:
    """Two clients have one vote each: neither has a majority."""
    first, second, third = (Client(fixture, number) for number in (1, 2, 3))
    for client, voting in ((first, "m1"), (second, "m2")):
        fixture.deaf, fixture.silent = {voting}, set(HOSTS) - {voting}
        with pytest.raises(OutcomeUnknown):
            client.acquire()
    fixture.deaf, fixture.silent = set(), set()
    busy = third.acquire(wait=False)
    assert isinstance(busy, Busy)
    assert busy.retry_after <= 0.1
    (state,) = third.inspect()
    assert state.held is None


def test_a_token_that_differs_is_written_to_a_majority(fixture: Fixture) -> None:
    first, second = Client(fixture, 1), Client(fixture, 2)
    fixture.silent = {"m2"}
    for serial in (1, 2):
        before = first.acquire(serial)
        first.release(serial)
    fixture.silent = {"m0"}
    fixture.time += SKIPPED_FOR
    grant = second.acquire()
    assert isinstance(grant, Grant)
    assert grant.token == before.token + 1


def test_a_token_that_cannot_be_written_is_no_grant(fixture: Fixture) -> None:
    first, second = Client(fixture, 1), Client(fixture, 2)
    fixture.silent = {"m2"}
    first.acquire()
    first.release()
    fixture.silent = {"m0"}
    fixture.time += SKIPPED_FOR
    send = second._send

    def refuse_tokens(address: Any, message: Any) -> list[Any]:
        (command, *_) = commands_of(message)
        if len(command) == 9 and command[2] == b"3":
            raise OutcomeUnknown("no answer")
        return send(address, message)

    second.runners[0].answer = refuse_tokens
    assert isinstance(second.acquire(wait=False), Busy)


def test_a_hold_that_only_the_queue_master_has_blocks_for_a_while(fixture: Fixture) -> None:
    first, second = Client(fixture, 1), Client(fixture, 2)
    fixture.deaf, fixture.silent = {"m0"}, {"m1", "m2"}
    with pytest.raises(OutcomeUnknown):
        first.acquire()
    fixture.deaf, fixture.silent = set(), set()
    assert isinstance(second.acquire(), Busy)
    fixture.time += BLOCKED_FOR + 0.1
    assert isinstance(second.acquire(), Grant)


def test_the_queue_moves_when_its_master_does_not_answer(fixture: Fixture) -> None:
    holder, waiter = Client(fixture, 1), Client(fixture, 2)
    holder.acquire()
    assert isinstance(waiter.acquire(), Busy)
    assert waiter.locks.claims[waiter.claim().id].queued_at == 0
    fixture.silent = {"m0", "m1"}
    with pytest.raises(OutcomeUnknown):
        waiter.acquire()
    fixture.silent = {"m0"}
    waiter.locks.all.failed.pop(1)
    assert isinstance(waiter.acquire(), Busy)
    assert waiter.locks.claims[waiter.claim().id].queued_at == 1
    waiter.locks.forget(waiter.claim())
    waiter.run(waiter.locks.await_wakeup(waiter.claim(), 0.0))


def test_a_master_with_many_requests_outstanding_is_not_asked(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    masters = client.locks.all
    masters.outstanding = [1, SEVERAL, 0]
    masters.answered[1] = fixture.time - 1.0
    votes = client.run(masters.poll(masters.each(Inspect(None, "*")), 0.0, lambda votes: False))
    assert "not asked" in str(votes.errors[1])


def test_the_lifetime_is_changed_on_a_majority(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    client.acquire()
    operation = client.locks.set_lifetime(client.claim(), "lease", client.until())
    assert client.run(operation).held


def test_votes_that_come_one_after_the_other_are_waited_for(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    runner = client.runners[0]
    runner.late, runner.waits = [], True
    assert isinstance(client.acquire(), Grant)
    assert len(runner.late) == 1  # a majority is enough
    assert len(client.inspect()) == 1


def test_votes_that_come_after_a_lost_try_are_given_back(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    runner = client.runners[0]
    runner.late = []
    with pytest.raises(OutcomeUnknown):
        client.acquire(wait=False)
    late, runner.late = runner.late, None
    client.run(late[0])
    assert {master for master, _ in client.locks.claims[client.claim().id].given_back} == {0, 1}
    client.locks.forget(client.claim())  # nothing is known of the try any more
    client.run(late[1])
    assert isinstance(Client(fixture, 2).acquire(wait=False), Grant)


def test_what_a_late_answer_means_depends_on_the_try(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    client.acquire()
    known, fixture.silent = client.locks.claims[client.claim().id], {"m1"}
    votes = known.votes
    assert votes is not None
    pending = client.locks.pending_releases
    client.run(client.locks._late(votes, client.claim(), 1, None))
    assert not pending.requests
    votes.final = True
    client.run(client.locks._late(votes, client.claim(), 1, None))
    assert client.claim().id in pending.requests[1]
    # A newer try finds it by itself.
    known.votes = client.locks.all.new_votes()
    client.run(client.locks._late(votes, client.claim(), 0, None))
    assert 0 not in pending.requests


def test_a_release_that_is_asked_for_again_while_it_is_sent_is_repeated(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    pending = client.locks.pending_releases
    pending.add(2, client.claim())
    sent: list[Any] = []

    def again(address: Any, message: Any) -> list[Any]:
        sent.append(message)
        if len(sent) == 1:
            fixture.time += 1.0
            pending.add(2, client.claim())
        return client._send(address, message)

    client.runners[0].answer = again
    assert client.run(pending.send(2))
    assert len(sent) == 2
    assert not pending.requests[2]


def test_a_majority_counts_with_the_master_of_the_queue_or_without_it() -> None:
    votes = Votes(3)
    votes.answer(1, Grant(1, ()))
    assert not has_enough(0, votes)
    votes.answer(2, Grant(1, ()))
    assert not has_enough(0, votes)
    votes.fail(0, OutcomeUnknown("no answer"))
    assert has_enough(0, votes)


def test_a_master_that_is_asked_alone_is_not_skipped(fixture: Fixture) -> None:
    masters = Client(fixture, 1).locks.all
    masters.failed = {2: (fixture.time + 1.0, NotApplied("gone"))}
    assert list(masters._skipped({1: None, 2: None})) == [2]
    assert masters._skipped({2: None}) == {}


def test_masters_are_not_skipped_where_the_others_are_no_majority(fixture: Fixture) -> None:
    masters = Client(fixture, 1).locks.all
    masters.masters = [*masters.masters, *masters.masters[:2]]
    masters.outstanding = [0] * 5
    for away, skipped in ((2, 2), (3, 0)):
        masters.failed = {n: (fixture.time + 1.0, NotApplied("gone")) for n in range(away)}
        assert len(masters._skipped(dict.fromkeys(range(5)))) == skipped


def test_an_answer_counts_beside_requests_that_are_outstanding(fixture: Fixture) -> None:
    client = Client(fixture, 1)
    client.acquire()
    masters = client.locks.all
    masters.outstanding[1] = 1
    fixture.time += 1.0
    assert client.renew() is True
    assert masters.answered[1] == fixture.time
    assert masters.outstanding == [0, 1, 0]


def test_the_error_names_masters_that_did_not_answer_before(fixture: Fixture) -> None:
    masters = Client(fixture, 1).locks.all
    masters.failed = {0: (0.0, NotApplied("one")), 1: (0.0, NotApplied("two"))}
    votes = masters.new_votes()
    votes.answer(0, True)
    assert "(m1: two)" in str(masters.error(votes, "no majority"))
