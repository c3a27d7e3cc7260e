"""Exceptions as they leave the library: under public names, and without its inner frames."""

from __future__ import annotations

from leaselock.errors import LeaselockError, StoreError

PUBLIC = LeaselockError.__module__


def as_public(error: BaseException) -> BaseException:
    """The exception to raise to the caller in place of *error*.

    The traceback of an exception that is raised on purpose, and of an interrupt, starts again: its
    message says what happened. Any other one is a bug of the library, and keeps all that explains
    it.
    """
    if isinstance(error, LeaselockError):
        cause = error.__cause__
        if type(error).__module__ != PUBLIC:
            error = _public_class(error)(*error.args)
        # The message of a StoreError contains that of its cause.
        keeps = isinstance(cause, LeaselockError) and not isinstance(error, StoreError)
        error.__cause__ = as_public(cause) if keeps and cause is not None else None
        error.__suppress_context__ = error.__cause__ is not None
    elif isinstance(error, Exception):
        return error
    error.__context__ = None
    return error.with_traceback(None)


def _public_class(error: LeaselockError) -> type[LeaselockError]:
    return next(
        kind
        for kind in type(error).__mro__
        if kind.__module__ == PUBLIC and issubclass(kind, LeaselockError)
    )
