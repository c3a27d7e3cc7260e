"""Operations on a lock, as a linearizability checker reads them, and the checker itself.

An acquire and a release are calls, from invocation to return. When a hold ends otherwise, it
expires at an unknown instant between the last at which its owner certainly relied on it and the
report of the loss. A hold that is never reported lost may expire at any time after that instant.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaselock.testing.history import History, Hold, LockHistory

SOURCE = Path(__file__).parent / "porcupine"
MODELS = ("mutex", "reentrant", "fenced", "reentrant-fenced", "shared", "shared-fenced")
# The models of locks that have readers, or permits.
SHARED = MODELS[-2:]
# Those of permits with numbers: unique; with rising tokens, too; and the lowest that are free, and
# nothing is refused while enough are free. The last one is for histories without waiters and late
# grants: a number that is offered to a waiter, or was granted too late, is taken, and no history
# shows it. The simulation, which sees the store, judges those (`check_numbers`).
NUMBERED = ("numbered", "numbered-fenced", "numbered-lowest")
# The names that the checker has for the fields of an operation.
FIELDS = (
    *("Lock", "Client", "Kind", "Hold", "Owner", "Token", "Call", "Return"),
    *("Mode", "Permits", "Limit", "Slots"),
)
# Later than any instant: an operation that does not return.
NEVER = (1 << 63) - 1
UNDECIDED = 2


class Operation(NamedTuple):
    """One operation; *hold* is the same for an acquire and for what ends it."""

    lock: str
    client: int
    kind: str
    """acquire, release or expire; or refuse, of an acquire that did not wait and got nothing."""
    hold: str
    owner: str
    token: int
    call: int
    returned: int
    mode: str = "exclusive"
    permits: int = 0
    limit: int = 0
    slots: tuple[int, ...] = ()

    def line(self) -> str:
        """As the checker reads it."""
        return json.dumps(dict(zip(FIELDS, self, strict=True)))


class Log:
    """Operations of several threads."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.operations: list[Operation] = []

    def add(self, operation: Operation) -> None:
        """Append one."""
        with self.mutex:
            self.operations.append(operation)


def operations_of(history: History) -> Iterator[Operation]:
    """Those of a recorded history, of all locks."""
    for lock in history.locks.values():
        for number, hold in enumerate(lock.holds):
            if hold.acquiring is not None and hold.granted is not None:
                yield from _operations_of(lock, hold, number)


def _operations_of(lock: LockHistory, hold: Hold, number: int) -> Iterator[Operation]:
    """What one attempt did. It claims nothing without a grant, or if the lease was over before the
    grant arrived: then it was relied on at no instant.
    """
    if hold.certain_interval is None:
        return
    granted, end = hold.certain_interval
    assert hold.acquiring is not None
    owner = f"{hold.process.pid} {hold.process.born} {hold.task}"
    first = Operation(
        *(lock.name, number, "acquire", f"{hold.ident:x}", owner, hold.token or 0),
        *(hold.acquiring, granted, hold.mode, hold.permits, hold.limit),
    )
    yield first
    reports = [instant for instant in (hold.release_lost, hold.lost) if instant is not None]
    if hold.released is not None:
        yield first._replace(kind="release", call=end, returned=max(hold.released, end))
    else:
        reported = max([end, *reports]) if reports else NEVER
        yield first._replace(kind="expire", call=end, returned=reported)


class Checker:
    """Porcupine, built for this run."""

    def __init__(self, folder: Path) -> None:
        go = shutil.which("go")
        if go is None:
            pytest.skip("no server: porcupine has to be built: install Go (https://go.dev/dl)")
        self.program = folder / "porcupine"
        command = [go, "build", "-mod=readonly", "-o", str(self.program), "."]
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def complaints(self, model: str, operations: Iterable[Operation]) -> list[str]:
        """The locks whose operations the model cannot have done, and those left undecided."""
        lines = "".join(f"{operation.line()}\n" for operation in operations)
        command = [str(self.program), model]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        assert done.returncode < UNDECIDED, done.stderr
        return done.stdout.splitlines()
