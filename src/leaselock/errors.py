"""Every exception that a user can see, as a tree::

    LeaselockError
    ├── AcquireTimeout      (also TimeoutError)   the time passed while another owner held the lock
    ├── AcquireCancelled                          `cancel` ended the wait for the lock
    ├── DeadlockDetected                          the youngest of owners that wait for one another
    ├── AlreadyHeld         (also RuntimeError)   acquired again, without reentrancy
    ├── WouldDeadlock       (also RuntimeError)   a wait that could not end: refused at once
    ├── LimitMismatch       (also ValueError)     the name is in use with another number of permits
    ├── NotHeld             (also RuntimeError)   released by a thread or task that does not hold it
    ├── LeaseLost                                 the lease ended while it was in use
    ├── InvalidName         (also ValueError)     refused before any store was asked
    ├── ClientClosed                              the client was closed
    ├── StaleVersion                              the row has changed since it was read
    ├── FenceRejected                             a newer holder has written the row
    ├── RowNotFound         (also LookupError)    there is no such row
    └── StoreError                                the store has not confirmed a request
        ├── NotApplied                            certainly not applied
        │   └── StoreUnreachable (also ConnectionError)    the store could not be reached
        └── OutcomeUnknown       (also ConnectionError)    perhaps applied: no answer arrived

Every retry and every compensation of the core depends on the difference between `NotApplied` and
`OutcomeUnknown`. Nothing is imported here.
"""

TYPE_CHECKING = False  # as type checkers know it, without loading typing
if TYPE_CHECKING:
    from typing import Any, Self

    from leaselock import Deadlock, ErrorReason, Holder


class LeaselockError(Exception):
    """The base class of all errors but those about an argument: TypeError and ValueError."""


class AcquireTimeout(LeaselockError, TimeoutError):
    """The lock was not free within the time allowed. `Lock.try_acquire` returns None instead.

    >>> try:
    ...     with client.lock("order:5", timeout=2.5):
    ...         charge(order)
    ... except leaselock.AcquireTimeout as error:
    ...     print(error)
    could not acquire 'order:5' in redis://db within 2.5 s: held by web-3, process 47, main for 3 s;
    wait longer, or see what it does: leaselock show 'order:5'
    """

    name: str
    """The name of the lock."""
    timeout: "float | None"
    """Seconds allowed; None where the time was not limited."""
    holder: "Holder | None"
    """The `Holder` at the last request; None where the store did not know it."""
    waiting: "int | None"
    """How many clients waited then, this one included; None where the store does not count them."""
    detail: str
    """What is known about the holder, in words; empty where the store does not say."""
    store: str
    """The URL of the store, without its secrets."""

    def __init__(
        self,
        name: str,
        timeout: "float | None",
        holder: "Holder | None" = None,
        waiting: "int | None" = None,
        detail: str = "",
        store: str = "",
    ) -> None:
        super().__init__(name, timeout, holder, waiting, detail, store)
        self.name = name
        self.timeout = timeout
        self.holder = holder
        self.waiting = waiting
        self.detail = detail
        self.store = store

    def __str__(self) -> str:
        text = f"could not acquire {self.name!r}{_within(self.store)}"
        if self.timeout is not None:
            text += f" within {self.timeout:g} s"
        if self.detail:
            text += f": {self.detail}"
        if self.store and self.holder is not None:
            text += f"; wait longer, or see what it does: leaselock show {self.name!r}"
        return text


class AcquireCancelled(LeaselockError):
    """`Lock.cancel` has ended the wait for the lock: nothing more is held than before."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the wait for {self.name!r} was cancelled"


class DeadlockDetected(LeaselockError):
    """This acquire was the youngest of a deadlock: owners that wait for one another. Nothing is
    held of this lock. Release what else is held, and start over.

    It is raised with ``Client(deadlock_timeout=…)``. *name* is the lock, *deadlock* is as
    `Client.deadlocks` returns it, *detail* says which owner waits for which.
    """

    def __init__(self, name: str, detail: str, deadlock: "Deadlock" = ()) -> None:
        super().__init__(name, detail, deadlock)
        self.name = name
        self.detail = detail
        self.deadlock = deadlock

    def __str__(self) -> str:
        return f"acquiring {self.name!r} is part of a deadlock: {self.detail}"


class AlreadyHeld(LeaselockError, RuntimeError):
    """This thread or task holds the lock already, and acquires it with ``reentrant=False``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"{self.name!r} is already held by this thread or task, and reentrant=False: "
            "waiting for it here would never end"
        )


class WouldDeadlock(LeaselockError, RuntimeError):
    """The wait for the lock could not end, so it is refused at once. Nothing was changed.

    Either this thread or task holds the lock for reading and asks for more: two that do so would
    wait for each other. Acquire `update` first instead, and upgrade that. *holder* is empty then.

    Or a synchronous client waits in a thread that runs the holder, too: *holder* is another task
    of the same event loop, or the thread itself. The wait would block it, and it could never
    release. Use AsyncClient in tasks, or do not wait.
    """

    def __init__(self, name: str, wanted: str, holder: str = "") -> None:
        super().__init__(name, wanted, holder)
        self.name = name
        self.wanted = wanted
        self.holder = holder

    def __str__(self) -> str:
        if self.holder:
            return (
                f"{self.name!r} is held by {self.holder!r}, which runs in this thread, too: "
                "waiting here would block it, and it could never release. "
                "Use leaselock.AsyncClient in the tasks of an event loop, or do not wait "
                "(try_acquire)"
            )
        return (
            f"{self.name!r} is held for reading by this thread or task, which cannot wait for "
            f"{self.wanted!r} beside it: acquire .update first, and upgrade that"
        )


class LimitMismatch(LeaselockError, ValueError):
    """The name is in use as another kind of lock, or has another number of permits.

    *wanted* is what was asked for, *found* what the store has: a number of permits, or None for a
    lock; 0 where the number is not known.
    """

    def __init__(
        self, name: str, wanted: "int | None", found: "int | None", permits: int = 1
    ) -> None:
        super().__init__(name, wanted, found, permits)
        self.name = name
        self.wanted = wanted
        self.found = found
        self.permits = permits

    def __str__(self) -> str:
        if self.found == 0:
            return f"the semaphore {self.name!r} is new: give its number of permits"
        if self.found and self.wanted is not None and self.permits > self.found:
            return f"{self.name!r} has {_permits(self.found)}: {self.permits} can never be acquired"
        found = "a lock" if self.found is None else f"a semaphore of {_permits(self.found)}"
        if self.wanted is None:
            return f"{self.name!r} is in use as {found}, not as a lock"
        wanted = f" of {_permits(self.wanted)}" if self.wanted else ""
        return f"{self.name!r} is in use as {found}, not as a semaphore{wanted}"


def _permits(number: int) -> str:
    return f"{number} permit{'s' * (number > 1)}"


class NotHeld(LeaselockError, RuntimeError):
    """The caller does not hold this lock. Nothing was changed."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return self.message


class LeaseLost(LeaselockError):
    """The lease is not valid any more: another owner may hold the lock now.

    *token* is its fencing token, *reason* why it was lost, *store* the URL of its store, without
    secrets.
    """

    def __init__(self, name: str, token: int, reason: str, store: str = "") -> None:
        super().__init__(name, token, reason, store)
        self.name = name
        self.token = token
        self.reason = reason
        self.store = store

    def __str__(self) -> str:
        which = f"{self.name!r}{_within(self.store)}"
        return (
            f"the lease on {which} (token {self.token}) is lost: {self.reason}. Another owner may "
            "hold the lock now: undo or repeat the work that it protects"
        )


def _within(store: str) -> str:
    return f" in {store}" if store else ""


class InvalidName(LeaselockError, ValueError):
    """The text cannot be the name of a lock."""


class ClientClosed(LeaselockError):
    """The client was closed; make a new one."""


class StaleVersion(LeaselockError):
    """The row has changed since it was read. Nothing was written.

    *expected* is the version that was read, *found* the version that the row has.
    """

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
    """The row was written with a newer fencing token. Nothing was written.

    *found* is the token in the row. It equals *token* when a write that may happen only once had
    already happened.
    """

    def __init__(self, table: str, key: dict[str, object], token: int, found: int) -> None:
        super().__init__(table, key, token, found)
        self.table = table
        self.key = key
        self.token = token
        self.found = found

    def __str__(self) -> str:
        if self.found == self.token:
            return f"{self.table} {self.key} was already written with token {self.token}"
        return (
            f"{self.table} {self.key} refuses token {self.token}: "
            f"a newer holder, with token {self.found}, has written it"
        )


class RowNotFound(LeaselockError, LookupError):
    """There is no row with this key. Nothing was written."""

    def __init__(self, table: str, key: dict[str, object]) -> None:
        super().__init__(table, key)
        self.table = table
        self.key = key

    def __str__(self) -> str:
        return f"{self.table} has no row {self.key}"


class StoreError(LeaselockError):
    """The store has not confirmed a request. The error of its client library, if there is one, is
    the `__cause__`.

    >>> try:
    ...     client.lock("order:5").acquire()
    ... except ConnectionError as error:  # the store does not answer
    ...     print(error)
    'order:5' in redis://db/0: db:6379: Error 111 connecting to db:6379. Connection refused.: check
    that it runs and that this host can reach it: leaselock doctor 'redis://db/0'
    """

    reason: "ErrorReason" = "refused"
    """Why: the store is "unreachable": it does not answer, or says that it cannot serve at the
    moment; permission was "denied"; the URL, the server or the stored layout is "misconfigured"; or
    the store "refused" this one request. Only the first is an outage (`on_outage=`).
    """
    name: str = ""
    """The name of the lock; empty where the request was for none, or for several."""
    store: str = ""
    """The URL of the store, without its secrets."""
    advice: str = ""
    """What to do, for a store that is unreachable."""

    def __init__(self, message: str = "", reason: "ErrorReason | None" = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        text = str(self.args[0])
        if self.name:
            where = "" if self.store in text else _within(self.store)
            text = f"{self.name!r}{where}: {text}"
        if self.advice and self.reason == "unreachable":
            text = f"{text.rstrip('.')}: {self.advice}"
        return text

    def concerning(self, name: str) -> "Self":
        """This error as that of a request for the lock *name*. It is a new object, because one
        failure of the store may be reported to many callers.
        """
        kind = next(each for each in type(self).__mro__ if each.__module__ == "leaselock")
        made: Any = kind(self.args[0], self.reason)
        made.name, made.store, made.advice = self.name or name, self.store, self.advice
        made.__cause__, made.__suppress_context__ = self.__cause__, True
        return made  # type: ignore[no-any-return]


class NotApplied(StoreError):
    """The store refused the request, or was never reached: certainly nothing was applied."""

    def __new__(
        cls, message: str = "", reason: "ErrorReason | None" = None, *_: object, **__: object
    ) -> "Self":
        """A StoreUnreachable where that is the reason, whichever store says so."""
        kind: Any = StoreUnreachable if cls is NotApplied and reason == "unreachable" else cls
        return super(NotApplied, kind).__new__(kind, message)  # type: ignore[no-any-return]


class StoreUnreachable(NotApplied, ConnectionError):
    """The store could not be reached, or cannot serve at the moment: certainly nothing was applied.
    It is the class of each NotApplied whose reason is "unreachable".
    """

    reason: "ErrorReason" = "unreachable"


class OutcomeUnknown(StoreError, ConnectionError):
    """No answer arrived: the request may have been applied."""

    reason: "ErrorReason" = "unreachable"


class UnsafeProtocolWarning(UserWarning):
    """The chosen protocol can let two holders in; the message says when."""


for _kind in tuple(globals().values()):
    if isinstance(_kind, type):
        _kind.__module__ = "leaselock"  # where users import it, and tracebacks show it
