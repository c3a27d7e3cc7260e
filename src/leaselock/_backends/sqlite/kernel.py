"""What the embedded store asks of the operating system: locks that end with a process, messages
between processes, and news of the end of a process.

| | module | lock | message | end of a process |
|---|---|---|---|---|
| Linux | `kernel_linux` | flock | fifo | its fifo hangs up |
| macOS, other systems with kqueue | `kernel_portable` | flock | UDP | kqueue |
| Windows | `kernel_windows` | share mode of a file | UDP | handle of the process |

No other module of the store knows these calls. Each module offers the same seven names.
"""

from __future__ import annotations

import os
import sys

# The tests run the portable module on Linux, too.
PORTABLE = "LEASELOCK_PORTABLE_KERNEL"

if sys.platform == "win32":
    from leaselock._backends.sqlite import kernel_windows as system
elif sys.platform == "linux":
    if PORTABLE in os.environ:
        from leaselock._backends.sqlite import kernel_portable as system
    else:
        from leaselock._backends.sqlite import kernel_linux as system  # type: ignore[no-redef]
else:
    from leaselock._backends.sqlite import kernel_portable as system

Mailbox = system.Mailbox
Peer = system.Peer
create_locked = system.create_locked
is_locked = system.is_locked
observe = system.observe
rename = system.rename
send = system.send
