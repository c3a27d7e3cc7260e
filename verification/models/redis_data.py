"""A model of Redis's keys: strings, hashes, sorted sets, their expiry, and commands on them.

Each method `do_…` is the command of that name, and returns the reply to a script or a client:
bytes, int, None, or a list. Only the commands that the protocols use are implemented.
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
    """An error reply."""


class Hash(dict[bytes, bytes]):
    """Fields and their values."""


class Sorted(dict[bytes, float]):
    """HandoffJudge and their scores."""

    def in_order(self) -> list[bytes]:
        """The members, sorted by score, then by their bytes."""
        return [member for _, member in sorted((score, m) for m, score in self.items())]


Value = bytes | Hash | Sorted
TYPES = {bytes: b"string", Hash: b"hash", Sorted: b"zset"}
V = TypeVar("V", bytes, Hash, Sorted)


class Data:
    """The keys of one server, whose clock is in microseconds."""

    def __init__(self, micros: Callable[[], int]) -> None:
        self.micros = micros
        self.values: dict[bytes, Value] = {}
        self.ends: dict[bytes, int] = {}
        # The keys written since the server last cleared this set.
        self.touched: set[bytes] = set()

    def do(self, words: tuple[bytes, ...]) -> Reply:
        """Execute a command."""
        command = getattr(self, method_of(words[0]), None)
        if command is None:
            raise ErrorReply(f"ERR unknown command '{words[0].decode()}'")
        reply: Reply = command(*words[1:])
        return reply

    # --- keys -----------------------------------------------------------------------------------

    def find(self, key: bytes) -> Value | None:
        """The value of a key that has not expired."""
        end = self.ends.get(key)
        if end is not None and self.micros() // 1000 > end:
            self.drop(key)
        return self.values.get(key)

    def get(self, key: bytes, kind: type[V]) -> V | None:
        """The value of a key of that type; another type is an error."""
        value = self.find(key)
        if value is not None and not isinstance(value, kind):
            raise ErrorReply(WRONGTYPE)
        return value

    def put(self, key: bytes, value: Value) -> None:
        """Set the value of a key, without a change of its expiry."""
        self.touched.add(key)
        self.values[key] = value

    def drop(self, key: bytes) -> None:
        """Remove a key."""
        self.touched.add(key)
        del self.values[key]
        self.ends.pop(key, None)

    def _end(self, key: bytes, ms: int) -> int:
        """Set the expiry of a key."""
        if self.find(key) is None:
            return 0
        if ms <= 0:
            self.drop(key)
            return 1
        self.touched.add(key)
        self.ends[key] = self.micros() // 1000 + ms
        return 1

    def do_exists(self, *keys: bytes) -> int:
        """EXISTS: the number of existing keys."""
        return sum(self.find(key) is not None for key in keys)

    def do_del(self, *keys: bytes) -> int:
        """DEL: the number of deleted keys."""
        there = [key for key in dict.fromkeys(keys) if self.find(key) is not None]
        for key in there:
            self.drop(key)
        return len(there)

    def do_pexpire(self, key: bytes, ms: bytes) -> int:
        """PEXPIRE: in milliseconds."""
        return self._end(key, _number(ms))

    def do_expire(self, key: bytes, seconds: bytes) -> int:
        """EXPIRE: in seconds."""
        return self._end(key, _number(seconds) * 1000)

    def do_pttl(self, key: bytes) -> int:
        """PTTL: the remaining time; -1 without expiry, -2 without a key."""
        if self.find(key) is None:
            return -2
        return max(0, self.ends[key] - self.micros() // 1000) if key in self.ends else -1

    def do_ttl(self, key: bytes) -> int:
        """TTL: the same in seconds, rounded."""
        left = self.do_pttl(key)
        return (left + 500) // 1000 if left >= 0 else left

    def do_time(self) -> list[Reply]:
        """TIME: seconds and microseconds."""
        seconds, micros = divmod(self.micros(), 1_000_000)
        return [b"%d" % seconds, b"%d" % micros]

    def do_scan(self, cursor: bytes, _match: bytes, pattern: bytes, *more: bytes) -> list[Reply]:
        """SCAN: all keys at once."""
        here = [key for key in sorted(self.values) if self.find(key) is not None]
        if b"TYPE" in more:
            here = [key for key in here if self.do_type(key) == more[more.index(b"TYPE") + 1]]
        return [b"0", [key for key in here if fnmatch.fnmatchcase(key, pattern)]]

    def do_type(self, key: bytes) -> bytes:
        """TYPE: the kind of value; a server replies a status."""
        value = self.find(key)
        return b"none" if value is None else TYPES[type(value)]

    # --- strings --------------------------------------------------------------------------------

    def do_get(self, key: bytes) -> bytes | None:
        """GET: the value."""
        return self.get(key, bytes)

    def do_set(self, key: bytes, value: bytes, *options: bytes) -> bytes | None:
        """SET: PX and EX set an expiry, KEEPTTL keeps it; with GET, reply the value before."""
        before = self.get(key, bytes) if b"GET" in options else b"OK"
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
        return before

    def do_setnx(self, key: bytes, value: bytes) -> int:
        """SETNX: set the value if there is none."""
        if self.find(key) is not None:
            return 0
        self.put(key, value)
        return 1

    def do_getset(self, key: bytes, value: bytes) -> bytes | None:
        """GETSET: the old value."""
        before = self.get(key, bytes)
        self.do_set(key, value)
        return before

    def _add(self, key: bytes, amount: int) -> int:
        count = _number(self.get(key, bytes) or b"0") + amount
        self.put(key, b"%d" % count)
        return count

    def do_incr(self, key: bytes) -> int:
        """INCR: add 1."""
        return self._add(key, 1)

    def do_decr(self, key: bytes) -> int:
        """DECR: subtract 1."""
        return self._add(key, -1)

    # --- hashes ---------------------------------------------------------------------------------

    def do_hset(self, key: bytes, *pairs: bytes) -> int:
        """HSET: the number of new fields."""
        fields = self.get(key, Hash) or Hash()
        written = Hash({**fields, **dict(zip(pairs[::2], pairs[1::2], strict=True))})
        self.put(key, written)
        return len(written) - len(fields)

    def do_hget(self, key: bytes, field: bytes) -> bytes | None:
        """HGET: the value of a field."""
        return (self.get(key, Hash) or Hash()).get(field)

    def do_hmget(self, key: bytes, *names: bytes) -> list[Reply]:
        """HMGET: the values of fields."""
        fields = self.get(key, Hash) or Hash()
        return [fields.get(name) for name in names]

    def do_hgetall(self, key: bytes) -> list[Reply]:
        """HGETALL: fields and values."""
        return [word for pair in (self.get(key, Hash) or Hash()).items() for word in pair]

    def do_hdel(self, key: bytes, *names: bytes) -> int:
        """HDEL: the number of removed fields."""
        fields = self.get(key, Hash) or Hash()
        left = Hash({name: value for name, value in fields.items() if name not in names})
        if left and len(left) < len(fields):
            self.put(key, left)
        elif fields and not left:
            self.drop(key)
        return len(fields) - len(left)

    def do_hexists(self, key: bytes, field: bytes) -> int:
        """HEXISTS: whether the field exists."""
        return int(field in (self.get(key, Hash) or ()))

    # --- sorted sets ----------------------------------------------------------------------------

    def do_zadd(self, key: bytes, *words: bytes) -> int:
        """ZADD: the number of new members; with NX the others keep their scores."""
        *options, score, member = words
        assert options in ([], [b"NX"])
        members = self.get(key, Sorted) or Sorted()
        new = member not in members
        if new or not options:
            self.put(key, Sorted({**members, member: float(score)}))
        return int(new)

    def do_zrem(self, key: bytes, *gone: bytes) -> int:
        """ZREM: the number of removed members."""
        members = self.get(key, Sorted) or Sorted()
        left = Sorted({other: score for other, score in members.items() if other not in gone})
        if members and not left:
            self.drop(key)
        elif len(left) < len(members):
            self.put(key, left)
        return len(members) - len(left)

    def do_zscore(self, key: bytes, member: bytes) -> bytes | None:
        """ZSCORE, as text, as in scripts and RESP2."""
        score = (self.get(key, Sorted) or Sorted()).get(member)
        return None if score is None else b"%.17g" % score

    def do_zrank(self, key: bytes, member: bytes) -> int | None:
        """ZRANK: the position, starting at 0."""
        members = self.get(key, Sorted) or Sorted()
        return members.in_order().index(member) if member in members else None

    def do_zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[Reply]:
        """ZRANGE: by position; or the first of those with a score of at most *last*."""
        members = self.get(key, Sorted) or Sorted()
        if options in ((), (b"REV",)):
            return [*_part(members.in_order()[:: -1 if options else 1], first, last)]
        assert (first, *options[:2]) == (b"-inf", b"BYSCORE", b"LIMIT")
        low = [member for member in members.in_order() if members[member] <= float(last)]
        start, count = map(_number, options[2:])
        return [*low[start : start + count]]

    def do_zrevrange(self, key: bytes, first: bytes, last: bytes, *scores: bytes) -> list[Reply]:
        """ZREVRANGE: from the end, with scores on request."""
        members = self.get(key, Sorted) or Sorted()
        wanted = _part(members.in_order()[::-1], first, last)
        if not scores:
            return [*wanted]
        return [word for member in wanted for word in (member, b"%.17g" % members[member])]


@cache
def method_of(verb: bytes) -> str:
    """The method of each command, cached."""
    return f"do_{verb.decode().lower()}"


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ErrorReply(NO_NUMBER) from None


def _part(members: list[bytes], first: bytes, last: bytes) -> list[bytes]:
    start, end = _number(first), _number(last)
    return members[start : end + 1 if end != -1 else None]
