"""`python -m verification.windows.console WORDS…`: `leaselock WORDS…` on this console; a line on
stdin is Ctrl-C for all processes of the console.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import os
import signal
import subprocess


def main(words: list[str]) -> int:
    """Run it, and return its exit code."""
    # A handler, because that a process ignores Ctrl-C is inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    command = [sys.executable, "-m", "leaselock", *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if sys.stdin.readline():
        assert ctypes.WinDLL("kernel32").GenerateConsoleCtrlEvent(signal.CTRL_C_EVENT, 0)
    return process.wait()


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]) & 0x7FFFFFFF)
