"""What this machine says without being waited for: time, chance, place."""

from __future__ import annotations

import os
import time
from functools import partial

from leaselock.core.effects import FOREVER

# Linux's boot clock counts suspend, which the monotonic clock does not (hazard B4).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# What a lock or a selector can be told to wait at most; longer waits are made of several.
LONGEST_WAIT = 3600.0


def now() -> float:
    """Seconds on the clock of all deadlines."""
    return time.clock_gettime(_CLOCK)


def patience(until: float) -> float:
    """Seconds left until *until*, as far as one wait may last."""
    return max(0.0, min(until - now(), LONGEST_WAIT)) if until < FOREVER else LONGEST_WAIT


class SystemEnv:
    """The part of `Env` that threads and asyncio have in common."""

    # Asked several times with every acquire, so without a Python function in between: seconds on
    # the clock of all deadlines, and Unix time for people to read.
    now = staticmethod(partial(time.clock_gettime, _CLOCK))
    wall = staticmethod(time.time)

    def random_id(self) -> str:
        """128 fresh random bits; the kernel's, so a fork does not repeat them."""
        return os.urandom(16).hex()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return int.from_bytes(os.urandom(4), "big") / 2**32

    def host_and_pid(self) -> tuple[str, int]:
        """This host's name and this process's number."""
        return _host(), os.getpid()


def _host() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # takes longer to load than all that the drivers need

    return socket.gethostname()


def given_up(process: object) -> bool:
    """Whether whoever wanted *process* was interrupted, and closed it before its first step."""
    return getattr(process, "cr_frame", process) is None
