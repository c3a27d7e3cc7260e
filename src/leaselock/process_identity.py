"""An identity of a process that no later process with the same number has.

On Linux a process is identified by the boot of its machine, its namespace of process numbers, and
the moment of its start within that boot; on Windows by the time of its start. On other systems
identities are empty, and nothing is known.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    from leaselock import _windows_process

if TYPE_CHECKING:
    from leaselock._core.client.inspection import Holder

# By process number: an identity is asked for with each claim of a new task.
_known: tuple[int, str] = (0, "")


def own_identity() -> str:
    """Return the identity of this process; empty where it is unknown."""
    global _known
    pid, identity = _known
    if pid != os.getpid():
        pid, identity = os.getpid(), ""
        try:
            if sys.platform == "win32":
                identity = _windows_process.identity(pid)
            # Otherwise /proc is that of another namespace of process numbers.
            elif os.readlink("/proc/self") == str(pid):
                with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                    boot = file.read(8)
                space = os.stat("/proc/self/ns/pid").st_ino
                _, started = _state_and_start(pid)
                identity = f"{boot}:{space}:{started}"
        except (FileNotFoundError, PermissionError, IndexError):
            pass  # another system, or a closed /proc
        except OSError:
            return ""  # for now: no descriptor is left, for example
        _known = (pid, identity)
    return identity


def is_stale(holder: Holder) -> bool:
    """Return whether a holder is a process of this host that has ended, and so can renew or release
    nothing. A lock that no process holds, because it was detached or cools down, is not stale; nor
    is one that other processes keep.
    """
    if holder.detached or holder.cooling_down or holder.descendants:
        return False
    return is_gone(holder.host, holder.pid, holder.process)


def is_gone(host: str, pid: int, identity: str) -> bool:
    """Return whether a process has certainly ended. False for processes of other hosts, containers
    and boots, and where that is unknown.
    """
    ours = own_identity()
    if not identity or not ours or host != host_name():
        return False
    if sys.platform == "win32":
        found = _windows_process.identity(pid)
        return bool(found) and found != identity
    host_identity, _, expected = identity.rpartition(":")
    if host_identity != ours.rpartition(":")[0]:
        return False
    try:
        state, started = _state_and_start(pid)
    except (FileNotFoundError, ProcessLookupError):
        return not _is_hidden(pid)
    except (OSError, IndexError):
        return False
    # Of a zombie only the exit code is left.
    return state in "ZX" or started != expected


def program_of(pid: int) -> str:
    """Return the name of the program of a process of this host; empty if it is not known."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The name of the program, in parentheses, may contain blanks and parentheses.
        fields = file.read().rpartition(")")[2].split()
    return fields[0], fields[19]


def _is_hidden(pid: int) -> bool:
    """Whether there is a process, although /proc does not show it: another user's may be hidden."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # no number of a process, but text from a store
        pass
    return True


def host_name() -> str:
    """Return the name of this machine, as records of holders and waiters have it."""
    if sys.platform != "win32":
        return os.uname().nodename
    import socket  # takes longer to load than all that the drivers need

    return socket.gethostname()
