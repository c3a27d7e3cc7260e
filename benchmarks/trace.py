"""Count the calls of `with client.lock("x")` on memory://, for each part of the package.

    python -m benchmarks.trace                  # this tree
    python -m benchmarks.trace --package NAME   # an installed package with the same interface
    python -m benchmarks.trace --calls          # list every function

The renewer runs already and the lock was acquired once before. A call is an entry into a Python
function of the package; a coroutine is entered again when it is resumed. "contended" is an acquire
in a thread that waits until another client releases the lock; what other threads do is not counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

Calls = Counter[tuple[str, str]]


def trace(package: str) -> dict[str, Calls]:
    """The calls of one acquire and of one release, in the order of the first entry."""
    module: Any = import_module(package)
    root = os.path.dirname(module.__file__) + os.sep
    parts: dict[str, Calls] = {"acquire": Counter(), "release": Counter()}
    calls = parts["acquire"]

    def count(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            calls[os.path.relpath(code.co_filename, root), code.co_qualname] += 1

    with module.Client("memory://trace") as client:
        lock = client.lock("x")
        with lock:
            pass
        sys.setprofile(count)
        try:
            with lock:
                calls = parts["release"]
        finally:
            sys.setprofile(None)
        calls = parts["contended acquire"] = Counter()
        _contend(client, module.Client("memory://trace"), count)
    return parts


def _contend(holder: Any, client: Any, count: Callable[[FrameType, str, object], None]) -> None:
    """Count the calls of an acquire that waits for the release by *holder*."""

    def acquire() -> None:
        sys.setprofile(count)
        try:
            lease = lock.acquire()
        finally:
            sys.setprofile(None)
        lease.release()

    with client:
        lock = client.lock("x")
        lock.acquire().release()
        lease = holder.lock("x").acquire()
        thread = threading.Thread(target=acquire)
        thread.start()
        while not lock.waiters():
            time.sleep(0.01)
        time.sleep(0.1)  # it has asked; now it waits
        lease.release()
        thread.join()


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--package", default="leaselock")
    parser.add_argument("--calls", action="store_true")
    options = parser.parse_args()
    parts = trace(options.package)
    for name, calls in parts.items():
        print(f"{name}: {calls.total()} calls in {len({path for path, _ in calls})} modules")
        if options.calls:
            for (path, function), count in calls.items():
                print(f"  {count}  {path}  {function}")
    print(f"together: {len({path for calls in parts.values() for path, _ in calls})} modules")


if __name__ == "__main__":
    main()
