"""Lua, as the server runs it: the production scripts themselves, on the model's commands.

For the model alone. The interpreter is the real one, Lua 5.1 (`lupa`, of the test dependencies); a
script is compiled once for the whole process. Dragonfly has Lua 5.4, with an `unpack` as in 5.1.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from verification.models.redis_data import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.models.redis_data import Reply


class Interpreter:
    """One Lua interpreter for all models, which run one after the other."""

    def __init__(self, version: str = "51") -> None:
        self.lua = import_module(f"lupa.lua{version}").LuaRuntime(encoding=None)
        self.lua.execute(b"unpack = unpack or table.unpack")
        # Of these versions only later ones have whole numbers; a server replies others as they are.
        self.whole = version != "51"
        self.do: Callable[[tuple[bytes, ...]], Reply] = _nothing
        self.table = self.lua.table_from
        self.kind = type(self.table([]))
        commands = {b"call": self._call, b"pcall": self._pcall, b"error_reply": self._error}
        self.lua.globals()[b"redis"] = self.table(commands)
        self.compiled: dict[str, Any] = {}

    def run(
        self,
        text: str,
        keys: Sequence[bytes],
        words: Sequence[bytes],
        do: Callable[[tuple[bytes, ...]], Reply],
    ) -> Reply:
        """Run a script; *do* executes its commands."""
        function = self.compiled.get(text)
        if function is None:
            whole = f"return function(KEYS, ARGV)\n{text}\nend".encode()
            function = self.compiled[text] = self.lua.execute(whole)
        self.do = do
        try:
            found = function(self.table(keys), self.table(words))
        except ErrorReply as error:
            raise ErrorReply(f"{error} script: x, on @user_script:1.") from error
        return self._reply(found)

    def _call(self, *words: bytes | float) -> object:
        if words[0] == b"TYPE":
            return self.table({b"ok": self.do(words)})  # type: ignore[arg-type]
        return self._value(self.do(tuple([w if type(w) is bytes else _bytes(w) for w in words])))

    def _pcall(self, *words: bytes | float) -> object:
        try:
            return self._call(*words)
        except ErrorReply as error:
            return self.table({b"err": str(error).encode()})

    def _error(self, text: bytes) -> object:
        return self.table({b"err": text})

    def _value(self, reply: Reply) -> object:
        """Convert a reply for a script: nil becomes false."""
        if isinstance(reply, list):
            return self.table([False if each is None else each for each in reply])
        return False if reply is None else reply

    def _reply(self, value: Any) -> Reply:
        """Convert a script's result for a client: numbers are truncated, a table ends at nil."""
        if isinstance(value, self.kind) and value[b"err"] is not None:
            raise ErrorReply(value[b"err"].decode())
        if isinstance(value, self.kind):
            return [self._reply(value[place]) for place in range(1, len(value) + 1)]
        if value is None or value is False:
            return None
        if self.whole and isinstance(value, float):
            raise TypeError(f"a script replies {value!r}, not a whole number")
        return value if isinstance(value, bytes) else int(value)


@cache
def interpreter() -> Interpreter:
    """Return the interpreter."""
    return Interpreter()


def _bytes(word: bytes | float) -> bytes:
    assert not isinstance(word, bytes)
    return b"%d" % word if word == int(word) else b"%.17g" % word


def _nothing(words: tuple[bytes, ...]) -> Reply:
    return None
