"""How many calls the scripts make in a Redis server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.redis import Redis

# Not a call of the scripts: the script itself, connecting, and listening. And once in each tenth of
# a second a hand-off looks for subscribers of other programs.
UNCOUNTED = (
    "evalsha",
    "eval",
    "hello",
    "select",
    "client",
    "config",
    "info",
    "subscribe",
    "pubsub",
)


def calls_during(server: Redis, step: Callable[[], object]) -> dict[str, int]:
    """How often the server carried out each command during a step."""
    server.ask("CONFIG", "RESETSTAT")
    step()
    return {
        key.removeprefix("cmdstat_"): int(value.partition("=")[2].partition(",")[0])
        for key, value in server.info("commandstats").items()
    }


def calls_of_scripts(calls: dict[str, int]) -> int:
    """How many of them the scripts made."""
    return sum(count for word, count in calls.items() if not word.startswith(UNCOUNTED))
