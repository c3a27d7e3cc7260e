"""When a process of Windows was started, and whether it has ended."""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
from ctypes import wintypes

QUERY_LIMITED_INFORMATION = 0x1000
INVALID_PARAMETER = 87
STILL_ACTIVE = 259
GONE = "gone"

_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel.OpenProcess.restype = wintypes.HANDLE
_kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
_kernel.GetProcessTimes.argtypes = (wintypes.HANDLE, *[wintypes.LPVOID] * 4)
_kernel.GetExitCodeProcess.argtypes = (wintypes.HANDLE, wintypes.LPVOID)
_kernel.CloseHandle.argtypes = (wintypes.HANDLE,)


def identity(pid: int) -> str:
    """Return the time at which a process was started; GONE if it has ended, "" if unknown."""
    process = _kernel.OpenProcess(QUERY_LIMITED_INFORMATION, False, pid)
    if not process:
        return GONE if ctypes.get_last_error() == INVALID_PARAMETER else ""
    try:
        times = [ctypes.c_uint64() for _ in range(4)]
        code = wintypes.DWORD()
        if not _kernel.GetExitCodeProcess(process, ctypes.byref(code)):
            return ""
        if code.value != STILL_ACTIVE:
            return GONE
        if not _kernel.GetProcessTimes(process, *map(ctypes.byref, times)):
            return ""
        return f"windows::{times[0].value}"
    finally:
        _kernel.CloseHandle(process)
