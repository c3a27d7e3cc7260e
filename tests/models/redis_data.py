"""Redis's keys in memory: strings, hashes, sorted sets, when each ends, and the commands on them.

For the model alone. Each method `do_…` is the command of that name, and replies what a script of
ours or a client is replied: bytes, int, None, or a list. Only what the protocols use is here.
"""

from __future__ import annotations

import fnmatch
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Reply = bytes | int | list["Reply"] | None
WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_NUMBER = "ERR value is not an integer or out of range"


class ErrorReply(Exception):
    """What a server replies in place of an answer."""


class Hash(dict[bytes, bytes]):
    """Fields and their values."""


class Sorted(dict[bytes, float]):
    """Members and their scores."""

    def in_order(self) -> list[bytes]:
        """By score, then by the bytes."""
        return [member for _, member in sorted((score, m) for m, score in self.items())]


Value = bytes | Hash | Sorted
V = TypeVar("V", bytes, Hash, Sorted)


class Data:
    """The keys of one server, by its clock in microseconds."""

    def __init__(self, micros: Callable[[], int]) -> None:
        self.micros = micros
        self.values: dict[bytes, Value] = {}
        self.ends: dict[bytes, int] = {}
        # What has been written since somebody emptied it.
        self.touched: set[bytes] = set()

    def do(self, words: tuple[bytes, ...]) -> Reply:
        """One command."""
        command = getattr(self, method_of(words[0]), None)
        if command is None:
            raise ErrorReply(f"ERR unknown command '{words[0].decode()}'")
        reply: Reply = command(*words[1:])
        return reply

    # --- keys -----------------------------------------------------------------------------------

    def find(self, key: bytes) -> Value | None:
        """What stands under a key that has not ended."""
        end = self.ends.get(key)
        if end is not None and self.micros() // 1000 > end:
            self.drop(key)
        return self.values.get(key)

    def get(self, key: bytes, kind: type[V]) -> V | None:
        """The same, if it is of that kind."""
        value = self.find(key)
        if value is not None and not isinstance(value, kind):
            raise ErrorReply(WRONGTYPE)
        return value

    def put(self, key: bytes, value: Value) -> None:
        """Write; whether it ends is another matter."""
        self.touched.add(key)
        self.values[key] = value

    def drop(self, key: bytes) -> None:
        """Remove a key."""
        self.touched.add(key)
        del self.values[key]
        self.ends.pop(key, None)

    def _end(self, key: bytes, ms: int) -> int:
        """Let a key end after so long."""
        if self.find(key) is None:
            return 0
        if ms <= 0:
            self.drop(key)
            return 1
        self.touched.add(key)
        self.ends[key] = self.micros() // 1000 + ms
        return 1

    def do_exists(self, *keys: bytes) -> int:
        """How many there are."""
        return sum(self.find(key) is not None for key in keys)

    def do_del(self, *keys: bytes) -> int:
        """How many there were."""
        there = [key for key in dict.fromkeys(keys) if self.find(key) is not None]
        for key in there:
            self.drop(key)
        return len(there)

    def do_pexpire(self, key: bytes, ms: bytes) -> int:
        """In milliseconds."""
        return self._end(key, _number(ms))

    def do_expire(self, key: bytes, seconds: bytes) -> int:
        """In seconds."""
        return self._end(key, _number(seconds) * 1000)

    def do_pttl(self, key: bytes) -> int:
        """What is left: -1 without an end, -2 without a key."""
        if self.find(key) is None:
            return -2
        return max(0, self.ends[key] - self.micros() // 1000) if key in self.ends else -1

    def do_ttl(self, key: bytes) -> int:
        """The same in seconds, rounded."""
        left = self.do_pttl(key)
        return (left + 500) // 1000 if left >= 0 else left

    def do_time(self) -> list[Reply]:
        """The clock."""
        seconds, micros = divmod(self.micros(), 1_000_000)
        return [b"%d" % seconds, b"%d" % micros]

    def do_scan(self, cursor: bytes, _match: bytes, pattern: bytes, *count: bytes) -> list[Reply]:
        """All at once."""
        here = [key for key in sorted(self.values) if self.find(key) is not None]
        return [b"0", [key for key in here if fnmatch.fnmatchcase(key, pattern)]]

    # --- strings --------------------------------------------------------------------------------

    def do_get(self, key: bytes) -> bytes | None:
        """The value."""
        return self.get(key, bytes)

    def do_set(self, key: bytes, value: bytes, *options: bytes) -> bytes:
        """With PX or EX it ends, with KEEPTTL as it did, else never."""
        end = self.ends.get(key) if options[:1] == (b"KEEPTTL",) and self.find(key) else None
        if options[:1] in ((b"PX",), (b"EX",)):
            ms = _number(options[1]) * (1 if options[0] == b"PX" else 1000)
            if ms <= 0:
                raise ErrorReply("ERR invalid expire time in 'set' command")
            end = self.micros() // 1000 + ms
        self.put(key, value)
        self.ends.pop(key, None)
        if end is not None:
            self.ends[key] = end
        return b"OK"

    def do_setnx(self, key: bytes, value: bytes) -> int:
        """If there is none."""
        if self.find(key) is not None:
            return 0
        self.put(key, value)
        return 1

    def do_getset(self, key: bytes, value: bytes) -> bytes | None:
        """The value before."""
        before = self.get(key, bytes)
        self.do_set(key, value)
        return before

    def _add(self, key: bytes, amount: int) -> int:
        count = _number(self.get(key, bytes) or b"0") + amount
        self.put(key, b"%d" % count)
        return count

    def do_incr(self, key: bytes) -> int:
        """One more."""
        return self._add(key, 1)

    def do_decr(self, key: bytes) -> int:
        """One less."""
        return self._add(key, -1)

    # --- hashes ---------------------------------------------------------------------------------

    def do_hset(self, key: bytes, field: bytes, value: bytes) -> int:
        """How many fields are new."""
        fields = self.get(key, Hash) or Hash()
        new = field not in fields
        self.put(key, Hash({**fields, field: value}))
        return int(new)

    def do_hkeys(self, key: bytes) -> list[Reply]:
        """The fields."""
        return [*(self.get(key, Hash) or ())]

    def do_hexists(self, key: bytes, field: bytes) -> int:
        """Whether it is there."""
        return int(field in (self.get(key, Hash) or ()))

    # --- sorted sets ----------------------------------------------------------------------------

    def do_zadd(self, key: bytes, score: bytes, member: bytes) -> int:
        """How many are new."""
        members = self.get(key, Sorted) or Sorted()
        new = member not in members
        self.put(key, Sorted({**members, member: float(score)}))
        return int(new)

    def do_zrem(self, key: bytes, member: bytes) -> int:
        """How many were there."""
        members = self.get(key, Sorted)
        if not members or member not in members:
            return 0
        left = Sorted({other: score for other, score in members.items() if other != member})
        if left:
            self.put(key, left)
        else:
            self.drop(key)
        return 1

    def do_zscore(self, key: bytes, member: bytes) -> bytes | None:
        """As scripts and RESP2 have it."""
        score = (self.get(key, Sorted) or Sorted()).get(member)
        return None if score is None else b"%.17g" % score

    def do_zrank(self, key: bytes, member: bytes) -> int | None:
        """The place, from 0 on."""
        members = self.get(key, Sorted) or Sorted()
        return members.in_order().index(member) if member in members else None

    def do_zrange(self, key: bytes, first: bytes, last: bytes) -> list[Reply]:
        """By place."""
        return [*_part((self.get(key, Sorted) or Sorted()).in_order(), first, last)]

    def do_zrevrange(self, key: bytes, first: bytes, last: bytes, *scores: bytes) -> list[Reply]:
        """From the end; with the scores, if they are asked for."""
        members = self.get(key, Sorted) or Sorted()
        wanted = _part(members.in_order()[::-1], first, last)
        if not scores:
            return [*wanted]
        return [word for member in wanted for word in (member, b"%.17g" % members[member])]


@cache
def method_of(verb: bytes) -> str:
    """Which of the methods is a command; there are few, and they are asked for all the time."""
    return f"do_{verb.decode().lower()}"


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ErrorReply(NO_NUMBER) from None


def _part(members: list[bytes], first: bytes, last: bytes) -> list[bytes]:
    start, end = _number(first), _number(last)
    return members[start : end + 1 if end != -1 else None]
