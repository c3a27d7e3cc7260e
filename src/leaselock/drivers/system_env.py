"""The environment of threads and asyncio: clocks, randomness, host and process."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from types import FrameType

# Linux's boot clock counts suspend, which the monotonic clock does not (hazard B4).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# The longest timeout of one wait for a lock or a selector. Longer waits are made of several.
LONGEST_WAIT = 3600.0

# Seconds on the clock of all deadlines. It is read several times with each acquire, so there is no
# Python function in between.
now = partial(time.clock_gettime, _CLOCK)


def time_left(until: float) -> float:
    """Seconds until *until*, at most LONGEST_WAIT."""
    return max(0.0, min(until - now(), LONGEST_WAIT)) if until < FOREVER else LONGEST_WAIT


class SystemEnv:
    """The part of `Env` that threads and asyncio have in common."""

    now = staticmethod(now)
    wall = staticmethod(time.time)

    def random_id(self) -> str:
        """128 random bits of the kernel, so a fork does not repeat them."""
        return os.urandom(16).hex()

    def call_site(self) -> str:
        """The line of the user's program, in Python's development mode or with tracemalloc."""
        if not sys.flags.dev_mode and not ("tracemalloc" in sys.modules and _tracing()):
            return ""
        frame = sys._getframe(1)
        while (above := frame.f_back) is not None and _ours(frame):
            frame = above
        code = frame.f_code
        return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'

    def random(self) -> float:
        """A number from 0 up to 1."""
        return int.from_bytes(os.urandom(4), "big") / 2**32

    def host_and_pid(self) -> tuple[str, int]:
        """The name of this host and the number of this process."""
        return _host(), os.getpid()


def _host() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # takes longer to load than all that the drivers need

    return socket.gethostname()


def _tracing() -> bool:
    import tracemalloc

    return tracemalloc.is_tracing()


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "leaselock"


def was_dropped(process: object) -> bool:
    """Whether *process* was closed before its first step."""
    return getattr(process, "cr_frame", process) is None
