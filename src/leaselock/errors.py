"""Every exception that a caller can see.

    LeaselockError
    ├── AcquireTimeout      (also TimeoutError)   the time passed, somebody else holds the lock
    ├── NotHeld             (also RuntimeError)   given back by one who does not hold it
    ├── LeaseLost                                 the lease ended while it was in use
    ├── InvalidName         (also ValueError)     refused before any store was asked
    ├── Closed                                    the client was closed
    ├── StaleVersion                              the row has changed since it was read
    ├── FenceRejected                             a newer holder has written the row
    ├── RowMissing          (also LookupError)    there is no such row
    └── StoreError                                the store did not do what it was asked
        ├── Refused                               certainly not applied
        └── Unknown                               perhaps applied: no answer arrived

Every retry and every undo of the core turns on the difference between the last two.
Nothing is imported here.
"""


class LeaselockError(Exception):
    """The root of everything that leaselock raises on purpose."""

    __module__ = "leaselock"


class AcquireTimeout(LeaselockError, TimeoutError):
    """The lock was not free within the time allowed."""

    __module__ = "leaselock"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotHeld(LeaselockError, RuntimeError):
    """The caller does not hold this lock, and nothing was changed."""

    __module__ = "leaselock"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message


class LeaseLost(LeaselockError):
    """The lease can no longer be believed: somebody else may hold the lock now."""

    __module__ = "leaselock"

    def __init__(self, name: str, token: int, reason: str) -> None:
        super().__init__(name, token, reason)
        self.name = name
        self.token = token
        self.reason = reason

    def __str__(self) -> str:
        return f"the lease on {self.name!r} (token {self.token}) is lost: {self.reason}"


class InvalidName(LeaselockError, ValueError):
    """The text cannot be the name of a lock."""

    __module__ = "leaselock"


class ClientClosed(LeaselockError):
    """The client was closed; make a new one."""

    __module__ = "leaselock"


class StaleVersion(LeaselockError):
    """The row has not the version it was read with: somebody has changed it. Nothing was written.

    *found* is the version that it has.
    """

    __module__ = "leaselock"

    def __init__(self, table: str, key: dict[str, object], expected: int, found: int) -> None:
        super().__init__(table, key, expected, found)
        self.table = table
        self.key = key
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.table} {self.key} has version {self.found}, not {self.expected}: "
            "it was changed after it was read"
        )


class FenceRejected(LeaselockError):
    """The row has been written with a newer fencing token. Nothing was written.

    *found* is the token in the row. It equals *token* when a write that may happen once only had
    happened already.
    """

    __module__ = "leaselock"

    def __init__(self, table: str, key: dict[str, object], token: int, found: int) -> None:
        super().__init__(table, key, token, found)
        self.table = table
        self.key = key
        self.token = token
        self.found = found

    def __str__(self) -> str:
        if self.found == self.token:
            return f"{self.table} {self.key} has been written with token {self.token} already"
        return (
            f"{self.table} {self.key} refuses token {self.token}: "
            f"a newer holder, with token {self.found}, has written it"
        )


class RowNotFound(LeaselockError, LookupError):
    """There is no row with this key; nothing was written."""

    __module__ = "leaselock"

    def __init__(self, table: str, key: dict[str, object]) -> None:
        super().__init__(table, key)
        self.table = table
        self.key = key

    def __str__(self) -> str:
        return f"{self.table} has no row {self.key}"


class StoreError(LeaselockError):
    """The store did not do what it was asked."""

    __module__ = "leaselock"


class NotApplied(StoreError):
    """The store said no, or was never reached: certainly nothing was applied."""

    __module__ = "leaselock"


class OutcomeUnknown(StoreError):
    """No answer arrived: the request may have been applied."""

    __module__ = "leaselock"


class UnsafeProtocolWarning(UserWarning):
    """The chosen way of locking can let two holders in; the message says when."""

    __module__ = "leaselock"
