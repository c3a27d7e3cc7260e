"""Locks on Redis, one right and four with an error that is often made, for a checker to find."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from verification.linearizability.operations import NEVER
from verification.linearizability.workload import EXCLUSIVE, now

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

LEASE = 0.05
TIMEOUT = 2.0
STEP = 0.001
# How late some replies are.
LATE = 0.03
TAKE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[1] .. ':token')
end
return false
"""
GIVE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
# What the models must find: under the first names, and for the third only where tokens count.
ERRORS = {
    "plain delete": "mutex",
    "loss never reported": "mutex",
    "token before the grant": "fenced",
    "validity from the reply": "mutex",
}


class RedisLocks:
    """One connection, and an error or none."""

    reentrant = False
    lease = LEASE

    def __init__(self, server: Redis, error: str = "") -> None:
        self.wire = server.wire()
        self.error = error
        self.rng = secrets.SystemRandom()

    def acquire(self, name: str) -> RedisHold | None:
        """Try until it is granted, or for a while."""
        owner, end = secrets.token_hex(8), now() + TIMEOUT * 1e9
        early = self.error == "token before the grant"
        token = self.wire.ask("INCR", f"{name}:token") if early else 0
        while now() < end:
            asked = now()
            if early:
                granted = (
                    self.wire.ask("SET", name, owner, "NX", "PX", round(LEASE * 1000)) and token
                )
            else:
                granted = self.wire.ask("EVAL", TAKE, 1, name, owner, round(LEASE * 1000))
            if granted:
                return RedisHold(self, name, owner, int(granted), self._valid_until(asked))
            time.sleep(STEP)
        return None

    def _valid_until(self, asked: int) -> int:
        lease = round(LEASE * 1e9)
        if self.error == "loss never reported":
            return NEVER
        if self.error == "validity from the reply":
            # The reply has been under way for some time.
            time.sleep(self.rng.choice((0.0, LATE)))
            return now() + lease
        return asked + lease

    def close(self) -> None:
        """End the connection."""
        self.wire.close()

    def ask(self, *words: Any) -> Any:
        """One command."""
        return self.wire.ask(*words)


class RedisHold:
    """One hold."""

    shares = EXCLUSIVE

    def __init__(
        self, locks: RedisLocks, name: str, owner: str, token: int, valid_until: int
    ) -> None:
        self.locks = locks
        self.name = name
        self.owner = owner
        self.token = token
        self.end = valid_until

    def valid_until(self) -> int:
        """The instant that was found with the grant."""
        return self.end

    def release(self) -> bool:
        """Give it back."""
        if self.locks.error == "plain delete":
            return bool(self.locks.ask("DEL", self.name))
        return bool(self.locks.ask("EVAL", GIVE, 1, self.name, self.owner))
