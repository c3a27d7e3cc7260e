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

    from leaselock._backends.redis.messages import Command, Word


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
        self.watched: dict[bytes, int] = {}
        self.queued: list[tuple[bytes, ...]] | None = None
        # Whether the keys of the next command are tracked.
        self.caching = False

    def do(self, command: Command) -> Reply | ErrorReply:
        """Execute a command; an error is returned as a reply."""
        words = tuple(map(_bytes, command))
        verb = words[0].upper()
        if self.queued is not None and verb != b"EXEC":
            self.queued.append(words)
            return b"QUEUED"
        if verb in (b"WATCH", b"UNWATCH", b"MULTI", b"EXEC"):
            return self._transaction(verb, words[1:])
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

    def _transaction(self, verb: bytes, keys: Sequence[bytes]) -> Reply | ErrorReply:
        versions, queued = self.server.versions, self.queued
        if verb == b"WATCH":
            self.watched = {key: versions.get(key, 0) for key in keys} | self.watched
        elif verb == b"MULTI":
            self.queued = []
        else:
            watched, self.watched, self.queued = self.watched, {}, None
            if verb == b"EXEC":
                return self._execute(watched, queued or [])
        return b"OK"

    def _execute(
        self, watched: dict[bytes, int], queued: list[tuple[bytes, ...]]
    ) -> Reply | ErrorReply:
        for key in watched:
            self.server.data.find(key)  # an expired key counts as written
        self.server.record_changes()
        if any(self.server.versions.get(key, 0) != seen for key, seen in watched.items()):
            return None
        return [self.do(words) for words in queued]  # type: ignore[misc]

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
        self.versions: dict[bytes, int] = {}
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
        """Record the changes of a command, invalidate the WATCHes on its keys, and notify those
        who track them.
        """
        data = self.data
        for key in sorted(data.touched):
            self.versions[key] = self.versions.get(key, 0) + 1
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
