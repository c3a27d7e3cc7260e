"""What happens to drivers when this process forks."""

from __future__ import annotations

import os
from typing import Protocol

from leaselock._core.contract.lifecycle import Living
from leaselock._drivers.forgotten import CLOSER
from leaselock._drivers.owners import OWNERS


class Forks(Protocol):
    """A driver, as far as forks go."""

    def after_fork(self) -> None:
        """Forget, in a forked child, everything of the parent."""
        ...


# Every driver alive. A forked child must not share a socket, a descriptor or a hold (F6, F7).
DRIVERS = Living[Forks]()


def _after_fork_in_child() -> None:
    OWNERS.forget()
    for driver in DRIVERS:
        driver.after_fork()
    # After that: what is dropped there does no harm to the parent any more.
    CLOSER.reset()


def forked_message() -> str:
    """The reason of the loss of a hold in a forked child."""
    return f"it stayed with process {os.getppid()}, which forked this one"


if hasattr(os, "register_at_fork"):  # pragma: no branch: Windows has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
