"""The scripts on another version of Lua: Redis and Valkey have 5.1, Dragonfly has 5.4.

In 5.4 a number is whole or not, and one that is not is written with a point: as a part of a key's
value it would be another text. A reply would be another number.
"""

from __future__ import annotations

from functools import cache

import pytest
from verification.models import redis_server
from verification.models.redis_lua import Interpreter
from verification.simulation.scenarios import play

SCENARIOS = ("redis", "redis modes", "periods redis", "redlock")
SEEDS = 6
LUA_5_4 = cache(lambda: Interpreter("54"))


@pytest.mark.parametrize("kind", SCENARIOS)
def test_scripts_do_the_same_on_both_versions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [play(kind, seed, traced=True) for seed in range(SEEDS)]
    monkeypatch.setattr(redis_server, "interpreter", LUA_5_4)
    assert [play(kind, seed, traced=True) for seed in range(SEEDS)] == first
    assert LUA_5_4().compiled
    assert LUA_5_4().lua.execute(b"return _VERSION") == b"Lua 5.4"


@pytest.mark.parametrize("text", ["return 3 / 2", "return {1, 2.0}"])
def test_a_reply_that_is_not_a_whole_number_is_found(text: str) -> None:
    with pytest.raises(TypeError, match="not a whole number"):
        LUA_5_4().run(text, [], [], lambda words: None)
