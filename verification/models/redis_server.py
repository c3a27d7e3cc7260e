"""One Redis server: its connections, its channels, its scripts, and what is left of it after a
restart.

For simulations and for comparison with the real server; nothing else imports it. It carries out
commands; how they travel is the business of who simulates that. The scripts are the production
ones, run by Lua itself (`redis_lua`), so that a bug of theirs is found here, too.
"""

from __future__ import annotations

import copy
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from verification.models.redis_data import Data, ErrorReply
from verification.models.redis_lua import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.models.redis_data import Reply, Value

    from leaselock._backends.redis.codec import Command, Word


# Commands that are not about keys, in the spelling that the library uses.
ITS_OWN = frozenset((b"EVALSHA", b"EVAL", b"PUBLISH", b"SPUBLISH", b"PUBSUB", b"WAIT", b"ROLE"))


class Change(NamedTuple):
    """A change of a key, as it is written to a replica or a file, with its time."""

    at: int
    key: bytes
    value: Value | None
    end: int | None


class Connection:
    """A client's connection; *push* is called with the channel and the text of each message."""

    def __init__(self, server: Server, push: Callable[[bytes, bytes], None]) -> None:
        self.server = server
        self.push = push
        # Whether the keys of the next command are tracked.
        self.caching = False

    def do(self, command: Command) -> Reply | ErrorReply:
        """Execute a command; an error is returned as a reply."""
        words = tuple(map(_bytes, command))
        verb = words[0].upper()
        if verb == b"CLIENT":
            self.caching = words[1].upper() == b"CACHING"
            return b"OK"
        try:
            if self.caching:
                self.server.track(self, words[1:])
            return self.server.do(words)
        except ErrorReply as error:
            return error
        finally:
            self.caching = False
            self.server.record_changes()

    def subscribe(self, channel: str) -> None:
        """Subscribe."""
        self.server.channels.setdefault(channel.encode(), {})[self] = None

    def unsubscribe(self, channel: str) -> None:
        """Unsubscribe."""
        self.server.channels.get(channel.encode(), {}).pop(self, None)

    def close(self) -> None:
        """Close the connection on the server's side."""
        for listeners in (*self.server.channels.values(), *self.server.tracked.values()):
            listeners.pop(self, None)


class Server:
    """The server; *replicas* is the number that confirm a WAIT."""

    def __init__(
        self, micros: Callable[[], int], replicas: Callable[[int], int] = lambda wanted: 0
    ) -> None:
        self.micros = micros
        self.replicas = replicas
        self.data = Data(micros)
        self.changes: list[Change] = []
        self.begin()

    def begin(self) -> None:
        """Start the process: without scripts and connections."""
        self.scripts: dict[bytes, str] = {}
        self.channels: dict[bytes, dict[Connection, None]] = {}
        self.tracked: dict[bytes, dict[Connection, None]] = {}

    def restart(self, known: int) -> None:
        """Restart with the first *known* changes: those in the file, or those of a replica."""
        del self.changes[known:]
        self.data = Data(self.micros)
        for _, key, value, end in self.changes:
            self.data.values.pop(key, None)
            self.data.ends.pop(key, None)
            if value is not None:
                self.data.values[key] = copy.copy(value)
            if end is not None:
                self.data.ends[key] = end
        self.begin()

    def track(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Notify a connection once of the next change of each key."""
        for key in keys:
            self.tracked.setdefault(key, {})[connection] = None

    def record_changes(self) -> None:
        """Record the changes of a command, and notify those who track its keys."""
        data = self.data
        for key in sorted(data.touched):
            value = data.values.get(key)
            self.changes.append(Change(self.micros(), key, value, data.ends.get(key)))
            for connection in self.tracked.pop(key, ()):
                connection.push(b"invalidate", key)
        data.touched.clear()

    def do(self, words: tuple[bytes, ...]) -> Reply:
        """Execute a command of a client or a script."""
        if words[0] not in ITS_OWN:
            return self.data.do(words)
        verb = words[0]
        if verb in (b"EVALSHA", b"EVAL"):
            return self._run(verb, words)
        if verb in (b"PUBLISH", b"SPUBLISH"):
            return self._publish(words[1], words[2])
        if verb == b"PUBSUB":
            return [x for name in words[2:] for x in (name, len(self.channels.get(name, ())))]
        if verb == b"WAIT":
            return self.replicas(int(words[1]))
        return [b"master", 0, []]

    def _run(self, verb: bytes, words: tuple[bytes, ...]) -> Reply:
        text = self.scripts.get(words[1])
        if verb == b"EVAL":
            text = words[1].decode()
            self.scripts[sha1(words[1], usedforsecurity=False).hexdigest().encode()] = text
        if text is None:
            raise ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
        count = 3 + int(words[2])
        return interpreter().run(text, words[3:count], words[count:], self.do)

    def _publish(self, channel: bytes, word: bytes) -> int:
        listeners = [*self.channels.get(channel, ())]
        for connection in listeners:
            connection.push(channel, word)
        return len(listeners)


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
