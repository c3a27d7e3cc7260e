"""Windows: a file that no other process may write, UDP, and handles of processes.

A share mode belongs to the open file, and ends when the last handle of it is closed, as `flock`
does. `LockFileEx` would not do: its locks end with the process that took them, even if a child has
inherited the handle.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import _winapi
import ctypes
import msvcrt
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from leaselock._backends.sqlite import udp
from leaselock._backends.sqlite.udp import Peer

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Mailbox", "Peer", "create_locked", "is_locked", "observe", "rename", "send"]

READ, WRITE, DELETE = 1, 2, 4  # FILE_SHARE_*
ANY = READ | WRITE | DELETE
CREATE_NEW, OPEN_EXISTING = 1, 3
OPEN_REPARSE_POINT = 0x00200000  # a link is not followed
NOT_FOUND = (2, 3)
ACCESS_DENIED, SHARING_VIOLATION = 5, 32
SYNCHRONIZE = 0x00100000
FD_READ = 1
# WaitForMultipleObjects takes 64 handles: one is that of the inbox, and Python may add one.
MOST_HANDLES = 62
# Pauses between attempts. A file is "delete pending" while another client has it open, and it
# cannot be renamed while a scanner reads it, as that does with each new file.
DELETIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
SCANS = (*DELETIONS, *[0.064] * 30)

_ws2 = ctypes.WinDLL("ws2_32", use_last_error=True)
_ws2.WSACreateEvent.restype = ctypes.c_void_p
_ws2.WSACreateEvent.argtypes = ()
_ws2.WSAEventSelect.argtypes = (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_long)
_ws2.WSAResetEvent.argtypes = (ctypes.c_void_p,)
_ws2.WSACloseEvent.argtypes = (ctypes.c_void_p,)


def create_locked(path: str) -> int:
    """Create a file, and lock it until the last process that has it open is gone."""
    access = _winapi.GENERIC_READ | _winapi.GENERIC_WRITE
    handle = _winapi.CreateFile(path, access, READ | DELETE, 0, CREATE_NEW, OPEN_REPARSE_POINT, 0)
    return msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_BINARY | os.O_NOINHERIT)


def _open(path: str, access: int) -> int:
    for pause in DELETIONS:
        try:
            return _winapi.CreateFile(path, access, ANY, 0, OPEN_EXISTING, OPEN_REPARSE_POINT, 0)
        except OSError as error:
            # It must not be kept: it has this frame and its callers, and so cursors of SQLite that
            # would keep their transactions open until the cycle is collected.
            if error.winerror != ACCESS_DENIED:
                raise
        time.sleep(pause)
    return _winapi.CreateFile(path, access, ANY, 0, OPEN_EXISTING, OPEN_REPARSE_POINT, 0)


def rename(path: str, new: str) -> None:
    """Rename a file, when other programs have closed it."""
    for pause in SCANS:
        try:
            os.rename(path, new)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    os.rename(path, new)


def is_locked(path: str) -> bool:
    """Return whether a process has the file locked; FileNotFoundError if there is none."""
    try:
        # All clients that check at once let one another write.
        handle = _open(path, _winapi.GENERIC_WRITE)
    except OSError as error:
        if error.winerror == SHARING_VIOLATION:
            return True
        raise
    _winapi.CloseHandle(handle)
    return False


def _address(path: str) -> udp.Address | None:
    try:
        handle = _open(path, _winapi.GENERIC_READ)
    except OSError:
        return None
    try:
        return udp.parse(_winapi.ReadFile(handle, udp.LONGEST_ADDRESS)[0])
    except OSError:
        return None
    finally:
        _winapi.CloseHandle(handle)


class Client(udp.Peer):
    """Another client, by the share mode of its file."""

    def is_gone(self) -> bool:
        """Return whether no process has its file locked any more."""
        try:
            return not is_locked(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # look again later
            return False

    def close_handle(self) -> None:
        """Close the handle of its process."""
        _winapi.CloseHandle(self.handle)


class Mailbox(udp.Mailbox):
    """Where a client receives messages, which set an event."""

    most_handles = MOST_HANDLES

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.event = _ws2.WSACreateEvent()
        _ws2.WSAEventSelect(self.inbox.fileno(), self.event, FD_READ)

    def ready(self, handles: Collection[int], seconds: float) -> tuple[bool, list[int]]:
        """Wait; return whether a message has come, and the handle of an ended process.
        InterruptedError for Ctrl-C, in the main thread.
        """
        waited_for = [self.event, *handles]
        found = _winapi.WaitForMultipleObjects(waited_for, False, int(seconds * 1000 + 0.999))
        return found == 0, waited_for[found : found + 1] if found else []

    def read(self, size: int) -> bytes:
        """Return the messages that have come."""
        _ws2.WSAResetEvent(self.event)  # what comes after that sets it again
        return super().read(size)

    def close(self) -> None:
        """Close the socket and its event."""
        super().close()
        _ws2.WSACloseEvent(self.event)


def observe(live: str, wake: str) -> Peer | None:
    """Observe the client with these files; None if it is gone."""
    return udp.observed(_address(live), _open_process, partial(Client, live))


def _open_process(pid: int) -> int:
    return _winapi.OpenProcess(SYNCHRONIZE, False, pid)


def send(live: str, wake: str, message: bytes) -> None:
    """Send a message, which may be lost."""
    udp.send(_address(live), message)
