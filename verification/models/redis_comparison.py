"""Comparison of a real Redis server with its model: the same commands, replies and keys.

Each command of the library is sent to both, and then the library gets the reply. Both use the
server's time: it is read before each step, and replaces the clock of TIME and PTTL in the scripts.
No step begins while a key is about to expire, so that no key expires between the two executions.
"""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from testkit.servers.process import eventually
from testkit.servers.resp import packed, read_reply
from verification.models.redis_data import Hash, Sorted
from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server

from leaselock._backends.redis.keys import PREFIX, release_channel
from leaselock._backends.redis.scripts import (
    ACQUIRE,
    BREAK_LOCK,
    COLLECT,
    CONVERT,
    FORGET_IDLE,
    IF_OWNER,
    INSPECT,
    RAISE_TOKEN,
    RELEASE,
    RENEW,
    RESIZE,
    SET_LIFETIME,
)
from leaselock._core.contract.backend import Mismatch
from leaselock.errors import LimitMismatch, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testkit.servers.redis import Redis

    from leaselock._backends.redis.messages import Address, Send
    from leaselock._core.contract.backend import Claim

SCRIPTS = (
    *(ACQUIRE, BREAK_LOCK, COLLECT, INSPECT, RAISE_TOKEN, RELEASE, RENEW, SET_LIFETIME),
    *(CONVERT, RESIZE, FORGET_IDLE, IF_OWNER),
)
# A script whose clock is given by its last two arguments: a script may write what is left of a key.
GIVEN = """local given, server = {ARGV[#ARGV - 1], ARGV[#ARGV]}, redis
local given_ms = given[1] * 1000 + math.floor(given[2] / 1000)
ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
local redis = {
  call = function(name, ...)
    if name == 'TIME' then return given end
    if name == 'PTTL' then
      local ends = server.call('PEXPIRETIME', ...)
      return ends < 0 and ends or ends - given_ms
    end
    return server.call(name, ...)
  end,
  pcall = function(...) return server.pcall(...) end,
  error_reply = server.error_reply,
}
"""
ALL_KEYS = """local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'string' then value = redis.call('GET', key) end
  if kind == 'hash' then value = redis.call('HGETALL', key) end
  if kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  found[#found + 1] = {key, kind, value, redis.call('PEXPIRETIME', key)}
end
return found
"""
# Milliseconds by which two servers' clock readings may differ on a busy machine.
APART = 12


class Unlucky(Exception):
    """The machine was too slow to decide whether a key had expired."""


class Subscriber:
    """One client's subscriptions, on both sides."""

    def __init__(self, comparison: Comparison) -> None:
        self.wire = comparison.redis.wire()
        self.number = self.wire.ask("CLIENT", "ID")
        self.modelled: list[list[str]] = []
        self.count = 0
        self.connection = Connection(comparison.model, self._push)

    def _push(self, channel: bytes, word: bytes) -> None:
        self.modelled.append(["message", channel.decode(), word.decode()])

    def subscribe(self, channels: Sequence[str]) -> None:
        """Subscribe on both sides."""
        self.compare()
        for channel in channels:
            self.wire.ask("SUBSCRIBE", channel)
            self.connection.subscribe(channel)

    def unsubscribe(self, channels: Sequence[str]) -> None:
        """Unsubscribe on both sides."""
        self.compare()
        for channel in channels:
            self.wire.ask("UNSUBSCRIBE", channel)
            self.connection.unsubscribe(channel)

    def compare(self) -> None:
        """Compare the messages of both sides."""
        self.wire.socket.sendall(packed("PING"))
        heard: list[Any] = []
        while (said := self.wire.await_wakeup()) not in (["pong", ""], "PONG"):
            heard.append(said)
        assert heard == self.modelled
        self.count += len(heard)
        self.modelled.clear()

    def close(self) -> None:
        """Close the subscriptions on both sides."""
        self.wire.close()
        self.connection.close()


class Comparison:
    """Both servers, and their clients."""

    leases: tuple[float, ...] = (0.03, 0.06, 30.0)
    pause = 0.05

    def __init__(self, redis: Redis, form: str, *, queues: bool) -> None:
        self.queues = self.votes = queues
        self.redis = redis
        self.wire = redis.wire()
        self.wire.ask("FLUSHALL")
        self.micros = 0
        self.apart = APART
        self.model = Server(lambda: self.micros)
        self.plain = Connection(self.model, lambda channel, word: None)
        self.texts = {script.sha: script.text for script in SCRIPTS}
        self.form = form
        # How often a lock was left to a waiting Redisson client.
        self.left = 0
        self.runner = Runner("redis://nowhere", self._send)
        self.backend = self.runner.store.backend(form)
        self.asker: Claim | None = None
        self.subscribers: dict[str, Subscriber] = {}
        self.channels: dict[str, tuple[str, ...]] = {}

    # --- requests -------------------------------------------------------------------------------

    def ask(self, request: Any) -> object:
        """Return the library's answer to a request, or its error."""
        self.asker = getattr(request, "claim", None)
        try:
            return self.runner.run(self.backend.request(request, 0.0))
        except LimitMismatch as error:
            return Mismatch(error.found)
        except StoreError as error:
            return error

    def _send(self, address: Address, message: Send) -> list[Any]:
        if message.subscriptions:
            assert self.asker is not None
            channels = tuple(channel for _, channel in message.subscriptions)
            self.subscriber(self.asker.client).subscribe(channels)
            self.channels[self.asker.id] = channels
        return self.handle(commands_of(message))

    def subscriber(self, client: str) -> Subscriber:
        """Return the subscriber of a client."""
        if client not in self.subscribers:
            self.subscribers[client] = Subscriber(self)
        return self.subscribers[client]

    def forget(self, claim: Claim) -> None:
        """Forget a claim that was released."""
        self.backend.forget(claim)
        # All clients share one listener here, so none may take over the subscription of another.
        subscriptions = self.runner.store.listener.subscriptions
        for group in list(subscriptions.kept):
            subscriptions.end(group)
        channels = self.channels.pop(claim.id, ())
        if channels and claim.client in self.subscribers:
            kept = {c for its in self.channels.values() for c in its}
            self.subscribers[claim.client].unsubscribe([c for c in channels if c not in kept])

    def die(self, client: str) -> None:
        """End a client, and wait until both servers have noticed."""
        subscriber = self.subscribers.pop(client, None)
        if subscriber is not None:
            subscriber.close()
            eventually(lambda: not self.wire.ask("CLIENT", "LIST", "ID", subscriber.number))
        for holder in [h for h in self.channels if h.startswith(f"{client}:")]:
            del self.channels[holder]

    # --- execution on both sides ----------------------------------------------------------------

    def handle(self, commands: Sequence[Any]) -> list[Any]:
        """Execute commands on both sides, compare the replies, and return them."""
        now = self._moment()
        ends = [*self.model.data.ends.values()]
        real = [self._really(command, now) for command in commands]
        self.micros = now
        model = [self.plain.do(command) for command in commands]
        keys = self._keys()
        self._check_moment(now, [*ends, *self.model.data.ends.values()])
        for command, one, other in zip(commands, real, model, strict=True):
            if command[0] == b"SCAN":
                one[1].sort()  # their order is undefined
            assert same(one, other, self.apart), (command, one, other)
        self._compare(keys)
        return model

    def _time(self) -> int:
        seconds, micros = self.wire.ask("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def _moment(self) -> int:
        """Return a time at which no key is about to expire."""
        while True:
            now = self._time()
            ms, ends = now // 1000, self.model.data.ends.values()
            if not any(ms - 2 <= end <= ms + APART for end in ends):
                return now
            # Only the server's clock can end this, and it sends no notification.
            time.sleep(0.002)

    def _check_moment(self, began: int, ends: Sequence[float]) -> None:
        """Set the permitted difference of times; raise `Unlucky` if a key has expired meanwhile."""
        since, until = began // 1000 - 2, self._time() // 1000 + 2
        if any(since <= end <= until for end in ends):
            raise Unlucky
        self.apart = max(APART, until - since)

    def _really(self, command: Any, now: int) -> Any:
        if command[0] in ("EVALSHA", b"EVALSHA"):
            sha = command[1] if isinstance(command[1], str) else command[1].decode()
            text = GIVEN + self.texts[sha]
            given = (now // 1_000_000, now % 1_000_000)
            loaded = sha1(text.encode(), usedforsecurity=False).hexdigest()
            reply = self._asked("EVALSHA", loaded, *command[2:], *given)
            if "NOSCRIPT" in str(reply):
                reply = self._asked("EVAL", text, *command[2:], *given)
            if (sha.encode()) not in self.model.scripts:
                self.model.scripts[sha.encode()] = self.texts[sha]
            return reply
        return self._asked(*command)

    def _asked(self, *words: Any) -> Any:
        self.wire.socket.sendall(packed(*words))
        return read_reply(self.wire.stream)

    def _keys(self) -> dict[str, tuple[str, Any, int]]:
        return {
            key: (kind, _unordered(kind, value), end)
            for key, kind, value, end in self._asked("EVAL", ALL_KEYS, 0)
        }

    def _compare(self, keys: dict[str, tuple[str, Any, int]]) -> None:
        data = self.model.data
        here = {key.decode() for key in [*data.values] if data.find(key) is not None}
        assert set(keys) == here
        for key, (kind, value, end) in keys.items():
            raw = key.encode()
            assert (kind, value) == shown(data.values[raw]), key
            self.left += value == "left"
            assert (end < 0) == (raw not in data.ends)
            if end >= 0:
                assert abs(end - data.ends[raw]) <= self.apart, key
                data.ends[raw] = end

    def stranger(self, name: str) -> None:
        """Subscribe as a waiting Redisson client does, which does not enter the queue."""
        self.subscriber("stranger").subscribe([release_channel(f"{PREFIX}{name}")])

    def heard(self) -> int:
        """Compare the messages of all clients, and return their number."""
        for subscriber in self.subscribers.values():
            subscriber.compare()
        return sum(subscriber.count for subscriber in self.subscribers.values())

    def close(self) -> None:
        """Close all connections."""
        for subscriber in self.subscribers.values():
            subscriber.close()
        with suppress(OSError):
            self.wire.close()


def _unordered(kind: str, value: Any) -> Any:
    """A hash without the order of its fields."""
    return dict(zip(value[::2], value[1::2], strict=True)) if kind == "hash" else value


def shown(value: object) -> tuple[str, Any]:
    """Return a value of the model in the form of `ALL_KEYS`."""
    if isinstance(value, Hash):
        return "hash", {name.decode(): text.decode() for name, text in value.items()}
    if isinstance(value, Sorted):
        pairs = [(member, b"%.17g" % value[member]) for member in value.in_order()]
        return "zset", [word.decode() for pair in pairs for word in pair]
    assert isinstance(value, bytes)
    return "string", value.decode()


def same(real: Any, model: Any, apart: int) -> bool:
    """Compare two replies: errors by their first word, remaining times approximately."""
    if isinstance(real, Exception) or isinstance(model, Exception):
        return type(real) is not type(model) and str(real).split()[0] == str(model).split()[0]
    if isinstance(real, list) and isinstance(model, list):
        pairs = zip(real, model, strict=True)
        return len(real) == len(model) and all(same(one, other, apart) for one, other in pairs)
    if isinstance(model, bytes):
        return bool(real == model.decode())
    if isinstance(real, int) and isinstance(model, int) and max(real, model) > APART:
        return abs(real - model) <= apart
    return bool(real == model)
