"""The command that runs under the lock: its environment, and the locks that it runs under.

`child_posix` and `child_windows` start and end it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from leaselock._api.connect import may_hold_secret, with_absolute_path
from leaselock._cli.exit_codes import Usage
from leaselock._cli.several import names_of
from leaselock._cli.signals import KILL
from leaselock._cli.store import OUTER_URL, URL, URL_FILE

if sys.platform == "win32":
    from leaselock._cli import child_windows as system
else:
    from leaselock._cli import child_posix as system

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock import Lease
    from leaselock._cli.several import SeveralLeases

Child = system.Child
CommandSpec = system.CommandSpec
reap_orphans = system.reap_orphans
shell_command = system.shell_command

STACK = "LEASELOCK_STACK"
SLOT = "LEASELOCK_SLOT"
STACK_STORES = "LEASELOCK_STACK_BACKENDS"
# Names have no control characters, but may have spaces.
STACK_SEPARATOR = "\n"


def enclosing_locks() -> list[tuple[str, str]]:
    """Return the locks under which this process runs, the outermost first: name and store."""
    names, stores = (
        [word for word in os.environ.get(variable, "").split(STACK_SEPARATOR) if word]
        for variable in (STACK, STACK_STORES)
    )
    return list(zip(names, stores, strict=False))


def check_nesting(name: str, store: str, timeout: float | None, permits: int = 1) -> None:
    """Refuse to wait for a lock that is held around this command, or for a permit when all of them
    are: the enclosing command would hold it until this one ends.
    """
    if timeout == 0:
        return
    held = enclosing_locks().count((name, store))
    if held >= permits:
        what = "the lock" if permits == 1 else f"all {permits} permits of the semaphore"
        raise Usage(
            f"this runs under {what} {name!r} of the same store ({store}) already: waiting for it "
            "would never end"
        )


def command_environment(
    lease: Lease | SeveralLeases, length: float, backend: str
) -> Mapping[str, str]:
    """Return this process's environment with the lock added, and without a URL with a secret."""
    env = dict(os.environ)
    if may_hold_secret(env.get(URL, "")):
        del env[URL]
    elif URL in env:
        # The command may run in another directory.
        env[URL] = with_absolute_path(env[URL])
    if env.get(URL_FILE):
        env[URL_FILE] = os.path.abspath(env[URL_FILE])
    held = [*enclosing_locks(), *((name, backend) for name in names_of(lease))]
    names, stores = zip(*held, strict=True)
    # Not that of an outer command.
    env.pop(SLOT, None)
    if lease.slots:
        env[SLOT] = str(lease.slots[0])
    return env | {
        "LEASELOCK_NAME": lease.name,
        "LEASELOCK_TOKEN": str(lease.token),
        "LEASELOCK_LEASE": f"{length:g}",
        "LEASELOCK_HELD_SINCE": f"{time.time():.6f}",
        OUTER_URL: backend,
        STACK: STACK_SEPARATOR.join(names),
        STACK_STORES: STACK_SEPARATOR.join(stores),
    }


def parse_signal(text: str) -> int:
    """Return the signal of that name or number; raise Usage when there is none."""
    name = text.upper().removeprefix("SIG")
    if name in ("KILL", str(KILL)):  # Windows has no signal of that name, but can do it
        return KILL
    try:
        return signal.Signals(int(text)) if text.isdecimal() else signal.Signals[f"SIG{name}"]
    except (KeyError, ValueError):
        raise Usage(f"{text!r} is not the name of a signal, such as TERM or KILL") from None
