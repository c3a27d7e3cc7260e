"""A real Redis and its model, side by side: the same commands, and then the same replies and keys.

Law: what the library would send is sent to both, and only then does the library see a reply. Both
live at the server's own time: it is asked for it before each step, the scripts are told it in place
of their TIME, and no step is taken while a key is about to end, so that none ends between the two.
"""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from tests.models.redis_data import Hash, Sorted
from tests.models.redis_runner import Runner, commands_of
from tests.models.redis_server import Connection, Server
from tests.servers.process import eventually
from tests.servers.resp import packed, read_reply

from leaselock.backends.redis.keys import release_channel
from leaselock.backends.redis.scripts import (
    ACQUIRE,
    BREAK_LOCK,
    INSPECT,
    RAISE_TOKEN,
    RELEASE,
    RENEW,
    SET_LIFETIME,
)
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.redis import Redis

    from leaselock.backends.redis.messages import Address, Send
    from leaselock.core.backend import Claim

SCRIPTS = (ACQUIRE, BREAK_LOCK, INSPECT, RAISE_TOKEN, RELEASE, RENEW, SET_LIFETIME)
# A script whose TIME is what its last two words say.
GIVEN = """local given, server = {ARGV[#ARGV - 1], ARGV[#ARGV]}, redis
ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
local redis = {
  call = function(name, ...)
    if name == 'TIME' then return given end
    return server.call(name, ...)
  end,
  pcall = function(...) return server.pcall(...) end,
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
# How much of a millisecond clock two servers may be apart, on a machine with much else to do.
APART = 12


class Unlucky(Exception):
    """The machine was too slow to say whether a key had ended: nothing is learned."""


class Ear:
    """One client's subscriptions, on both sides."""

    def __init__(self, twins: Twins) -> None:
        self.wire = twins.redis.wire()
        self.number = self.wire.ask("CLIENT", "ID")
        self.told: list[list[str]] = []
        self.count = 0
        self.connection = Connection(twins.model, self._push)

    def _push(self, channel: bytes, word: bytes) -> None:
        self.told.append(["message", channel.decode(), word.decode()])

    def subscribe(self, channels: Sequence[str]) -> None:
        """Listen on both."""
        self.compare()
        for channel in channels:
            self.wire.ask("SUBSCRIBE", channel)
            self.connection.subscribe(channel)

    def unsubscribe(self, channels: Sequence[str]) -> None:
        """Listen no more."""
        self.compare()
        for channel in channels:
            self.wire.ask("UNSUBSCRIBE", channel)
            self.connection.unsubscribe(channel)

    def compare(self) -> None:
        """Both have heard the same."""
        self.wire.socket.sendall(packed("PING"))
        heard: list[Any] = []
        while (said := self.wire.await_wakeup()) not in (["pong", ""], "PONG"):
            heard.append(said)
        assert heard == self.told
        self.count += len(heard)
        self.told.clear()

    def close(self) -> None:
        """Both hear that it is gone."""
        self.wire.close()
        self.connection.close()


class Twins:
    """Both servers, and what is asked of them."""

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
        # How often a lock was seen that was left to Redisson.
        self.left = 0
        self.runner = Runner("redis://nowhere", self._send)
        self.backend = self.runner.store.backend(form)
        self.asker: Claim | None = None
        self.ears: dict[str, Ear] = {}
        self.channels: dict[str, tuple[str, ...]] = {}

    # --- asking ---------------------------------------------------------------------------------

    def ask(self, request: object) -> object:
        """The library's answer to a request, or its error."""
        self.asker = getattr(request, "claim", None)
        try:
            return self.runner.run(self.backend.carry_out(request, 0.0))
        except StoreError as error:
            return error

    def _send(self, address: Address, message: Send) -> list[Any]:
        if message.subscriptions:
            assert self.asker is not None
            channels = tuple(channel for _, channel in message.subscriptions)
            self.ear(self.asker.client).subscribe(channels)
            self.channels[self.asker.id] = channels
        return self.handle(commands_of(message))

    def ear(self, client: str) -> Ear:
        """The one of a client."""
        if client not in self.ears:
            self.ears[client] = Ear(self)
        return self.ears[client]

    def forget(self, claim: Claim) -> None:
        """It waits no more."""
        self.backend.forget(claim)
        channels = self.channels.pop(claim.id, ())
        if channels and claim.client in self.ears:
            kept = {c for its in self.channels.values() for c in its}
            self.ears[claim.client].unsubscribe([c for c in channels if c not in kept])

    def die(self, client: str) -> None:
        """A client is gone, and both servers have seen it."""
        ear = self.ears.pop(client, None)
        if ear is not None:
            ear.close()
            eventually(lambda: not self.wire.ask("CLIENT", "LIST", "ID", ear.number))
        for holder in [h for h in self.channels if h.startswith(f"{client}:")]:
            del self.channels[holder]

    # --- both at once ---------------------------------------------------------------------------

    def handle(self, commands: Sequence[Any]) -> list[Any]:
        """The same on both; the replies, which are the same."""
        now = self._moment()
        real = [self._really(command, now) for command in commands]
        self.micros = now
        model = [self.plain.do(command) for command in commands]
        keys = self._keys()
        self._check_moment(now)
        for command, one, other in zip(commands, real, model, strict=True):
            if command[0] == b"SCAN":
                one[1].sort()  # their order is anybody's guess
            assert same(one, other, self.apart), (command, one, other)
        self._compare(keys)
        return model

    def _time(self) -> int:
        seconds, micros = self.wire.ask("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def _moment(self) -> int:
        """A time at which nothing is about to end."""
        while True:
            now = self._time()
            ms, ends = now // 1000, self.model.data.ends.values()
            if not any(ms - 2 <= end <= ms + APART for end in ends):
                return now
            time.sleep(0.002)

    def _check_moment(self, began: int) -> None:
        """How far apart the two may be; nothing can be said of what has ended meanwhile."""
        since, until = began // 1000 - 2, self._time() // 1000 + 2
        if any(since <= end <= until for end in self.model.data.ends.values()):
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
            key: (kind, value, end) for key, kind, value, end in self._asked("EVAL", ALL_KEYS, 0)
        }

    def _compare(self, keys: dict[str, tuple[str, Any, int]]) -> None:
        data = self.model.data
        here = {key.decode() for key in [*data.values] if data.find(key) is not None}
        assert set(keys) == here
        for key, (kind, value, end) in keys.items():
            raw = key.encode()
            assert (kind, value) == shown(data.values[raw])
            self.left += value == "left"
            assert (end < 0) == (raw not in data.ends)
            if end >= 0:
                assert abs(end - data.ends[raw]) <= self.apart, key
                data.ends[raw] = end

    def stranger(self, name: str) -> None:
        """Such as a waiter of Redisson's: it listens, and does not stand in the queue."""
        self.ear("stranger").subscribe([release_channel(name)])

    def heard(self) -> int:
        """Every client has heard the same on both sides; how much that was, all in all."""
        for ear in self.ears.values():
            ear.compare()
        return sum(ear.count for ear in self.ears.values())

    def close(self) -> None:
        """Hang up."""
        for ear in self.ears.values():
            ear.close()
        with suppress(OSError):
            self.wire.close()


def shown(value: object) -> tuple[str, Any]:
    """A value of the model as `ALL_KEYS` shows it."""
    if isinstance(value, Hash):
        return "hash", [word.decode() for pair in value.items() for word in pair]
    if isinstance(value, Sorted):
        pairs = [(member, b"%.17g" % value[member]) for member in value.in_order()]
        return "zset", [word.decode() for pair in pairs for word in pair]
    assert isinstance(value, bytes)
    return "string", value.decode()


def same(real: Any, model: Any, apart: int) -> bool:
    """Whether two replies are: of errors, the first word; of times that are left, nearly."""
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
