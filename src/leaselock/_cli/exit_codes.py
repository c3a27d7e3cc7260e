"""Exit codes: those of sysexits.h where they fit, and the shell's convention for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock import ErrorReason

UNMET = 1
USAGE = 64
UNREACHABLE = 69
INTERNAL = 70
OUTPUT = 74
BUSY = 75
LOST = 76
DENIED = 77
CONFIG = 78
NOT_HELD = 79
# As timeout(1) exits.
MAX_HOLD = 124
CANNOT_EXECUTE = 126
NOT_FOUND = 127
BY_SIGNAL = 128

# The word for each in a JSON document.
KINDS = {
    USAGE: "usage",
    UNREACHABLE: "unreachable",
    INTERNAL: "internal",
    OUTPUT: "output",
    BUSY: "busy",
    LOST: "lost",
    DENIED: "permission",
    CONFIG: "configuration",
    NOT_HELD: "not held",
    MAX_HOLD: "max hold",
    CANNOT_EXECUTE: "cannot run",
    NOT_FOUND: "cannot run",
}
# By the reason of a StoreError.
BY_REASON: dict[ErrorReason, int] = {
    "unreachable": UNREACHABLE,
    "refused": UNREACHABLE,
    "denied": DENIED,
    "misconfigured": CONFIG,
}

TABLE = """\
exit codes:
  run: that of the command
    1  no: nothing listed (ls --exit-code), not broken (break), no leader (leader),
       deadlocks found (deadlocks), or a fault found (doctor)
   64  wrong usage                    76  the lease was lost while the command ran
   69  the store cannot be reached    77  permission denied
   70  an error inside leaselock      78  wrong URL or configuration
   74  the output is not written      79  not held, or by another token
   75  busy (-E sets another)
  124  the command ran for longer than --max-hold, and was ended
  126  the command cannot be executed, 127 it is not found
When signal N ended the command of run or lead, or came while leaselock waited, signal N
ends leaselock, too, when its work is done. A shell reports that as 128+N: 130 interrupted,
143 terminated. Process 1 of a container exits with that code.
"""


class Usage(Exception):
    """The arguments are wrong; *usage* says what the command expects."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


class Misconfigured(Exception):
    """The URL or the configuration names no usable store."""


class OutputFailed(OSError):
    """Standard output cannot be written: the disk is full, for example."""


class Interrupted(Exception):
    """A signal ended the command; nothing is held."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number


class CannotRun(Exception):
    """The command could not be executed; *code* is the exit code a shell uses for that."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Negative(Exception):
    """The answer is no, which --quiet does not print. *kind* is the word for it in a JSON document,
    which has *details* besides.
    """

    def __init__(self, message: str, code: int, kind: str, details: Mapping[str, object]) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.details = details


def for_shell(status: int) -> int:
    """Return the exit code for a status that is -N when signal N ended a process."""
    return BY_SIGNAL - status if status < 0 else status


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    import leaselock

    if isinstance(error, (CannotRun, Negative)):
        return error.code
    if isinstance(error, Interrupted):
        return BY_SIGNAL + error.number
    if isinstance(error, leaselock.StoreError):
        return BY_REASON[error.reason]
    by_type = (
        (leaselock.NotHeld, NOT_HELD),
        (leaselock.LeaseLost, LOST),
        (Misconfigured, CONFIG),
        (OutputFailed, OUTPUT),
        # ValueError: the library rejects names and numbers out of range before any request.
        ((Usage, ValueError), USAGE),
    )
    return next((code for kind, code in by_type if isinstance(error, kind)), INTERNAL)
