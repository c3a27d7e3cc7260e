"""Every exception that a caller can see.

    HoldfastError
    ├── AcquireTimeout      (also TimeoutError)   the time passed, somebody else holds the lock
    ├── NotHeld             (also RuntimeError)   given back by one who does not hold it
    ├── LeaseLost                                 the lease ended while it was in use
    ├── InvalidName         (also ValueError)     refused before any store was asked
    ├── Closed                                    the client was closed
    └── StoreError                                the store did not do what it was asked
        ├── Refused                               certainly not applied
        └── Unknown                               perhaps applied: no answer arrived

Every retry and every undo of the core turns on the difference between the last two.
Nothing is imported here.
"""


class HoldfastError(Exception):
    """The root of everything that holdfast raises on purpose."""

    __module__ = "holdfast"


class AcquireTimeout(HoldfastError, TimeoutError):
    """The lock was not free within the time allowed."""

    __module__ = "holdfast"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotHeld(HoldfastError, RuntimeError):
    """The caller does not hold this lock, and nothing was changed."""

    __module__ = "holdfast"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message


class LeaseLost(HoldfastError):
    """The lease can no longer be believed: somebody else may hold the lock now."""

    __module__ = "holdfast"

    def __init__(self, name: str, token: int, reason: str) -> None:
        super().__init__(name, token, reason)
        self.name = name
        self.token = token
        self.reason = reason

    def __str__(self) -> str:
        return f"the lease on {self.name!r} (token {self.token}) is lost: {self.reason}"


class InvalidName(HoldfastError, ValueError):
    """The text cannot be the name of a lock."""

    __module__ = "holdfast"


class Closed(HoldfastError):
    """The client was closed; make a new one."""

    __module__ = "holdfast"


class StoreError(HoldfastError):
    """The store did not do what it was asked."""

    __module__ = "holdfast"


class Refused(StoreError):
    """The store said no, or was never reached: certainly nothing was applied."""

    __module__ = "holdfast"


class Unknown(StoreError):
    """No answer arrived: the request may have been applied."""

    __module__ = "holdfast"


class UnsafeProtocolWarning(UserWarning):
    """The chosen way of locking can let two holders in; the message says when."""

    __module__ = "holdfast"
