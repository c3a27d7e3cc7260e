"""A known environment for every test, wherever and by whatever the run was started.

A script, nohup, cron or a service manager may start the run with signals ignored or blocked, with
another umask, few descriptors or no home directory. Child processes inherit all of that, and the
tests are about child processes. So each process that runs tests sets what they need, once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

if sys.platform != "win32":
    import resource

UMASK = 0o022
DESCRIPTORS = 8192
# Variables that client libraries and the command line read, by their first letters. `make` itself
# passes others that begin with LEASELOCK_ to the tests.
PERSONAL = (
    *("LEASELOCK_URL", "LEASELOCK_BACKEND", "LEASELOCK_STACK", "LEASELOCK_HELD_SINCE"),
    *("LEASELOCK_NAME", "LEASELOCK_TOKEN", "LEASELOCK_LEASE"),
    *("PG", "MYSQL_", "MARIADB_", "REDISCLI_", "FORCE_COLOR", "NO_COLOR"),
)


def prepare() -> None:
    """Set signals, umask, limits and environment variables of this process."""
    if sys.platform != "win32":
        _signals()
        os.umask(UMASK)
        _descriptors()
    _variables()
    _bytecode()


def _signals() -> None:
    """Start no child with a signal ignored or blocked.

    SIGPIPE stays ignored here, as Python wants it; subprocess restores it in each child. Where
    SIGHUP was ignored (nohup) this process keeps surviving it: a handler is not inherited by a
    program that is executed, in contrast to SIG_IGN.
    """
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _descriptors() -> None:
    """Allow as many open files as the tests need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS:
        return
    highest = hard if hard == resource.RLIM_INFINITY else max(hard, DESCRIPTORS)
    with contextlib.suppress(ValueError, PermissionError):
        # Only root may raise the hard limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, highest))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _variables() -> None:
    """Hide the person's own settings, and have a home directory."""
    for name in list(os.environ):
        if name.startswith(PERSONAL):
            del os.environ[name]
    # A folder that sudo left there, and that we may not enter, changes why a command is not found.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    entered = [folder for folder in folders if os.access(folder, os.X_OK)]
    os.environ["PATH"] = os.pathsep.join(entered)
    home = os.environ.get("HOME", "")
    if sys.platform == "win32":
        os.environ["USERPROFILE"] = tempfile.mkdtemp(prefix="home-")
    elif not (os.path.isabs(home) and os.access(home, os.W_OK | os.X_OK)):
        os.environ["HOME"] = tempfile.mkdtemp(prefix="home-")


def _bytecode() -> None:
    """Let modules be compiled once, although images of containers often forbid to write them.

    Else each process that runs tests, and each command line that they start, compiles all modules.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def reachable() -> str:
    """The folder for what other users must reach: that for temporary files, unless TMPDIR is in a
    folder which they may not enter.
    """
    chosen = Path(tempfile.gettempdir()).resolve()
    if all(path.stat().st_mode & 0o001 for path in (chosen, *chosen.parents)):
        return str(chosen)
    return "/tmp"
