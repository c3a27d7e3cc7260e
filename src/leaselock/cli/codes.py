"""What the command line ends with: sysexits where they fit, the shell's convention for commands.

A store says what went wrong in words. Where they tell of missing rights or of a store that has
to be set up otherwise, they are known here by those words; tests/cli/test_codes.py keeps both
in step.
"""

from __future__ import annotations

UNMET = 1
USAGE = 64
UNREACHABLE = 69
INTERNAL = 70
BUSY = 75
LOST = 76
DENIED = 77
CONFIG = 78
NOT_HELD = 79
CANNOT_EXECUTE = 126
NOT_FOUND = 127
BY_SIGNAL = 128

DENIED_WORDS = ("permission", "may not read and write", "belongs to user", "read-only")
CONFIG_WORDS = ("of another version of leaselock", "is on a network or shared file system")

TABLE = """\
exit codes:
  run: that of the command; 128+N when signal N ended it
    1  no: nothing listed (ls --exit-code), not broken, or a fault found (doctor, chaos, hazards)
   64  wrong usage                    76  the lease was lost while the command ran
   69  the store cannot be reached    77  permission denied
   70  an error inside leaselock       78  wrong URL or configuration
   75  busy (-E sets another)         79  not held, or by another token
  126  the command cannot be executed, 127 it is not found
  128+N  signal N came while waiting: 130 interrupted, 143 terminated
"""


class Usage(Exception):
    """The words fit the grammar, but not one another."""


class Misconfigured(Exception):
    """The store that was named cannot be one."""


class Interrupted(Exception):
    """A signal ended the wait; nothing is held."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number


class CannotRun(Exception):
    """The command could not be executed; *code* is the shell's for that."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    import leaselock

    if isinstance(error, CannotRun):
        return error.code
    if isinstance(error, leaselock.StoreError):
        return _code_of_store(error)
    by_kind = (
        (leaselock.NotHeld, NOT_HELD),
        (leaselock.LeaseLost, LOST),
        (Misconfigured, CONFIG),
        # Names and numbers out of range: refused by the library before it asks any store.
        ((Usage, ValueError), USAGE),
    )
    return next((code for kind, code in by_kind if isinstance(error, kind)), INTERNAL)


def _code_of_store(error: Exception) -> int:
    words = str(error).lower()
    if isinstance(error.__cause__, PermissionError) or any(word in words for word in DENIED_WORDS):
        return DENIED
    return CONFIG if any(word in words for word in CONFIG_WORDS) else UNREACHABLE
