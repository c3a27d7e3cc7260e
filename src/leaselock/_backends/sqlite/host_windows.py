"""What identifies a boot of Windows."""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import winreg

# The kernel counts the boots there.
KEY = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"


def boot() -> str:
    """Return the number of this boot; '' where Windows does not tell."""
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, KEY) as key:
            value, kind = winreg.QueryValueEx(key, "BootId")
    except OSError:
        return ""
    return str(value) if kind == winreg.REG_DWORD else ""
