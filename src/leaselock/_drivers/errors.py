"""Exceptions as they leave the library: under public names, and without its inner frames."""

from __future__ import annotations

from leaselock.errors import LeaselockError, StoreError

PUBLIC = LeaselockError.__module__


def as_public(error: BaseException, store: str = "", typed: str = "") -> BaseException:
    """The exception to raise to the caller in place of *error*. *store* is the URL of the store,
    and *typed* the one for a command.

    The traceback of an exception that is raised on purpose, and of an interrupt, starts again: its
    message says what happened. Any other one is a bug of the library, and keeps all that explains
    it.
    """
    if isinstance(error, LeaselockError):
        cause = error.__cause__
        if isinstance(error, StoreError):
            error = _about_store(error, store, typed)
            error.__cause__ = _of_library(cause)
        elif isinstance(cause, LeaselockError):
            error.__cause__ = as_public(cause, store, typed)
        else:
            error.__cause__ = None
        error.__suppress_context__ = error.__cause__ is not None
    elif isinstance(error, Exception):
        return error
    error.__context__ = None
    return error.with_traceback(None)


def refuse_pickling() -> TypeError:
    """The error for a client, lock or lease that is pickled, copied or sent to a process."""
    return TypeError(
        "a client, its locks and its leases cannot be pickled or copied: make a client in each "
        "process, and send the names of locks. To hand over a lease, detach() it, send its token, "
        "and adopt() it there"
    )


def _about_store(error: StoreError, store: str, typed: str) -> StoreError:
    if type(error).__module__ != PUBLIC:
        error = error.concerning("")
    error.store = store
    if typed:
        url = typed.replace("'", "%27")
        error.advice = (
            f"check that it runs and that this host can reach it: leaselock doctor '{url}'"
        )
    return error


def _of_library(cause: BaseException | None) -> BaseException | None:
    """The error of the client library; one of our own says the same as the error that it caused."""
    while cause is not None and _is_ours(cause):
        cause = cause.__cause__
    behind, stripped = cause, set[int]()
    while behind is not None and id(behind) not in stripped:
        stripped.add(id(behind))
        # Their frames are those of the client library, and keep its connections alive. A traceback
        # shows the cause alone.
        behind.__traceback__ = None
        behind.__suppress_context__ = True
        behind = behind.__cause__ or behind.__context__
    return cause


def _is_ours(error: BaseException) -> bool:
    ours = type(error).__module__.partition(".")[0] == PUBLIC
    return ours or isinstance(error, LeaselockError)
