"""What the scripts do with the queue, step by step: waiters that are stopped, programs that poll,
and tokens across the expiry of their counter. Time passes only where a test lets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server
from verification.models.sides import claim_of

from leaselock._backends.redis.keys import RECORD, keys_of, message_of, owner_of
from leaselock._backends.redis.scripted_backend import CONFIRM_WITHIN_MS
from leaselock._backends.redlock.master import ReleaseGrant
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Grant,
    Inspect,
    Release,
    Released,
)

if TYPE_CHECKING:
    from leaselock._backends.redis.messages import Address, Send

LEASE = 30.0
# For how long the lock is left free to others, by the format; and until the next second.
LEFT_MS = {"hash": 20, "string": 100}
RECALL_MS = 100


class Client:
    """One client of a server that all share."""

    def __init__(self, fixture: Fixture, number: int) -> None:
        self.id = f"{number:032x}"
        self.messages: list[str] = []
        self.connection = Connection(
            fixture.server, lambda channel, word: self.messages.append(word.decode())
        )
        self.runner = Runner(f"redis://nowhere?token_ttl={fixture.token_ttl}", self._send)
        self.backend = self.runner.store.backend(fixture.form)

    def _send(self, address: Address, message: Send) -> list[Any]:
        for _, channel in message.subscriptions:
            self.connection.subscribe(channel)
        replies = [self.connection.do(command) for command in commands_of(message)]
        assert not [r for r in replies if isinstance(r, Exception) and "NOSCRIPT" not in str(r)]
        return replies

    def claim(self, serial: int) -> Claim:
        return claim_of(self.id, "a", serial, LEASE)

    def acquire(self, serial: int, *, wait: bool = True) -> object:
        return self.runner.run(self.backend.request(Acquire(self.claim(serial), wait), 0.0))

    def release(self, serial: int) -> Released:
        claim = self.claim(serial)
        released: Released = self.runner.run(self.backend.request(Release(claim, False), 0.0))
        self.backend.forget(claim)
        return released


class Fixture:
    """A server and its clock."""

    def __init__(self, form: str = "hash", token_ttl: float = 604800) -> None:
        self.form = form
        self.token_ttl = token_ttl
        self.micros = 1_700_000_000_000_000
        self.server = Server(lambda: self.micros)

    def client(self, number: int) -> Client:
        return Client(self, number)

    def wait(self, ms: float) -> None:
        self.micros += int(ms * 1000)

    def queue(self) -> int:
        members: Any = self.server.data.values.get(keys_of("a").queue.encode(), ())
        return len(members)


def token(answer: object) -> int:
    assert isinstance(answer, Grant), answer
    return answer.token


@pytest.mark.parametrize("form", ["hash", "string"])
def test_stopped_waiters_of_several_clients_cost_one_confirmation(form: str) -> None:
    fixture = Fixture(form)
    holder, last = fixture.client(1), fixture.client(9)
    stopped = [fixture.client(number) for number in (2, 3)]
    first = token(holder.acquire(1))
    for client in stopped:
        for serial in (1, 2):
            assert isinstance(client.acquire(serial), Busy)
    assert isinstance(last.acquire(1), Busy)
    holder.release(1)
    # In the same second, so it is not left to programs that poll.
    busy = last.acquire(1)
    assert isinstance(busy, Busy)
    assert busy.held is not None
    assert busy.held.client == stopped[0].id
    fixture.wait(CONFIRM_WITHIN_MS + 1)
    recalled = last.acquire(1)
    assert isinstance(recalled, Busy)
    assert recalled.retry_after <= RECALL_MS / 1000 + 0.01
    assert fixture.queue() == 1
    # When it goes on, each of its claims is notified to ask again.
    for client in stopped:
        assert len([word for word in client.messages if "\n" not in word]) >= 1
    fixture.wait(RECALL_MS + 1)
    assert token(last.acquire(1)) > first
    last.release(1)
    # The queue is empty: the stopped ones are granted nothing before they ask.
    assert token(holder.acquire(2, wait=False)) > first


def test_recalled_waiters_that_live_keep_their_order() -> None:
    fixture = Fixture()
    holder, stopped, second, third = (fixture.client(number) for number in range(1, 5))
    holder.acquire(1)
    for client in (stopped, second, third):
        assert isinstance(client.acquire(1), Busy)
    holder.release(1)
    fixture.wait(CONFIRM_WITHIN_MS + 1)
    assert isinstance(third.acquire(1), Busy)
    assert fixture.queue() == 1
    assert isinstance(second.acquire(1), Busy)
    fixture.wait(RECALL_MS + 1)
    busy = third.acquire(1)
    assert isinstance(busy, Busy)
    assert busy.held is not None
    assert busy.held.client == second.id


def test_new_claims_are_not_granted_before_recalled_waiters_are_back() -> None:
    """The one that recalls them does not wait, so nothing but the hand-off tells of them."""
    fixture = Fixture()
    holder, stopped, second, new, newer = (fixture.client(number) for number in range(1, 6))
    holder.acquire(1)
    for client in (stopped, second):
        assert isinstance(client.acquire(1), Busy)
    holder.release(1)
    fixture.wait(CONFIRM_WITHIN_MS + 1)
    assert isinstance(new.acquire(1, wait=False), Busy)
    assert fixture.queue() == 0
    assert isinstance(newer.acquire(1, wait=False), Busy)
    assert isinstance(second.acquire(1), Busy)
    fixture.wait(RECALL_MS + 1)
    token(second.acquire(1))


@pytest.mark.parametrize("form", ["hash", "string"])
def test_first_release_in_each_interval_is_left_to_others(form: str) -> None:
    fixture = Fixture(form)
    holder, waiter, stranger = fixture.client(1), fixture.client(2), fixture.client(3)
    stranger.connection.subscribe("redisson_lock__channel:{lock:a}")
    holder.acquire(1)
    assert isinstance(waiter.acquire(1), Busy)
    fixture.wait(1000)
    holder.release(1)
    left = waiter.acquire(1)
    assert isinstance(left, Busy)
    assert left.held is None
    assert left.retry_after <= (LEFT_MS[form] + 1) / 1000
    assert isinstance(holder.acquire(2), Busy)
    fixture.wait(LEFT_MS[form] + 1)
    token(waiter.acquire(1))
    # The next release is in the same interval.
    waiter.release(1)
    busy = waiter.acquire(2)
    assert isinstance(busy, Busy)
    assert busy.held is not None
    assert busy.held.client == holder.id


def test_lock_that_is_left_free_wakes_the_next_waiter_when_the_first_gives_up() -> None:
    fixture = Fixture("string")
    holder, first, second, third = (fixture.client(number) for number in range(1, 5))
    holder.acquire(1)
    for client in (first, second, third):
        client.acquire(1)
    fixture.wait(1000)
    holder.release(1)
    for client in (first, second):
        assert client.messages
        client.release(1)
    assert third.messages


@pytest.mark.parametrize("form", ["hash", "string"])
def test_tokens_rise_when_their_counter_has_expired(form: str) -> None:
    fixture = Fixture(form, token_ttl=2)
    client = fixture.client(1)
    before = token(client.acquire(1, wait=False))
    client.release(1)
    fixture.wait(2001)
    assert fixture.server.data.find(keys_of("a").token.encode()) is None
    # The clock is set back by less than the time for which the counter was kept.
    fixture.wait(-1900)
    assert token(client.acquire(2, wait=False)) > before


def test_tokens_rise_while_the_clock_is_behind() -> None:
    fixture = Fixture()
    client = fixture.client(1)
    before = token(client.acquire(1, wait=False))
    client.release(1)
    fixture.wait(-10_000)
    assert token(client.acquire(2, wait=False)) == before + 1


def test_hold_of_the_default_format_is_one_key() -> None:
    fixture = Fixture()
    fixture.client(1).acquire(1)
    found = {key.decode() for key in fixture.server.data.values}
    assert found == {"lock:a", "redisson_lock_token:{lock:a}", "leaselock:active::lock:"}
    assert not any(key.startswith(RECORD) for key in found)


# --- a vote of a Redlock that is given back: its claim waits on -----------------------------------


def give_back(client: Client, serial: int, grant: object) -> None:
    request = ReleaseGrant(client.claim(serial), token(grant))
    assert client.runner.run(client.backend.request(request, 0.0)).was == "held"


def test_a_claim_whose_vote_was_given_back_keeps_its_connection() -> None:
    fixture = Fixture("vote")
    rival, client = fixture.client(1), fixture.client(2)
    rival.acquire(1)
    for serial in (1, 2):
        assert isinstance(client.acquire(serial), Busy)
    client.release(2)  # its subscription is kept for the next claim
    rival.release(1)
    give_back(client, 1, client.acquire(1))
    rival.acquire(2)
    assert isinstance(client.acquire(1), Busy)
    client.release(1)
    assert not any(line.users for line in client.runner.store.pool.connections)


def test_a_claim_whose_vote_was_given_back_is_notified() -> None:
    fixture = Fixture("vote")
    rival, client = fixture.client(1), fixture.client(2)
    rival.acquire(1)
    client.acquire(1)
    client.release(1)
    client.acquire(2)  # it takes the subscription of the claim before over
    rival.release(1)
    give_back(client, 2, client.acquire(2))
    rival.acquire(2)
    assert isinstance(client.acquire(2), Busy)
    client.messages.clear()
    rival.release(2)
    assert [message_of(message)[0] for message in client.messages] == [client.claim(2).id]


# --- what earlier versions wrote ------------------------------------------------------------------


@pytest.mark.parametrize("fields", [b"30000 17", b"30000 1024 cached"])
@pytest.mark.parametrize("form", ["hash", "string"])
def test_records_of_an_earlier_version_are_read(form: str, fields: bytes) -> None:
    """They say how many tokens a grant has reserved, and whether its client keeps the lease."""
    fixture = Fixture(form)
    holder, waiter = fixture.client(1), fixture.client(2)
    first = token(holder.acquire(1))
    assert isinstance(waiter.acquire(1), Busy)
    do: Any = holder.connection.do
    keys = keys_of("a")
    (member,) = do(("ZRANGE", keys.queue, 0, -1))
    do(("ZREM", keys.queue, member))
    do(("ZADD", keys.queue, 1, member.replace(b"\n30000\n", b"\n" + fields + b"\n")))
    about = "about:" + owner_of(holder.claim(1).id)
    record = do(("HGET", keys.lock, about) if form == "hash" else ("GET", keys.record))
    record = record.replace(b"\n30000\n", b"\n" + fields + b"\n")
    do(("HSET", keys.lock, about, record) if form == "hash" else ("SET", keys.record, record))
    (state,) = holder.runner.run(holder.backend.request(Inspect("a", "*"), 0.0))
    assert not state.unreadable
    assert state.held.token == first
    assert [(claim.id, claim.lease) for claim in state.waiting] == [(waiter.claim(1).id, LEASE)]
    assert holder.runner.run(holder.backend.request(BreakLock("a", first), 0.0)).done
    (state,) = holder.runner.run(holder.backend.request(Inspect("a", "*"), 0.0))
    assert state.held.id == waiter.claim(1).id
    assert state.held.token > first
