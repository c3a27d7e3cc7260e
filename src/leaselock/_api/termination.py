"""The end of a program by SIGTERM, as an exit that releases its locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._drivers.system_env import TERMINATION

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def exit_on_sigterm() -> AbstractContextManager[None]:
    """Raise SystemExit at SIGTERM, for the length of a `with` in the main thread.

    By default Python ends at SIGTERM without cleaning up, and the locks of the program stay held
    until their leases end. With this, bodies of `with` end, and all clients release. It has no
    effect where the program handles the signal itself, or in another thread. `Election.run` and
    `leaselock run` do the same by themselves.

    >>> with leaselock.exit_on_sigterm(), leaselock.Client() as client:
    ...     serve(client)
    """
    return TERMINATION.exits()
