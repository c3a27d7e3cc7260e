"""A waiter is queued without a subscription (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.hash import Hash
from leaselock.backends.redis.steps import Send

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from leaselock.backends.redis.steps import Command, Steps
    from leaselock.core.backend import Claim


# Not long before the first seed that finds it, which takes its time.
FIRST = 80


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Hash._acquire

    def deaf(self: Hash, claim: Claim, wait: bool, then: Sequence[Command]) -> Steps[Any]:
        steps = real(self, claim, wait, then)
        step = next(steps)
        while True:
            try:
                if isinstance(step, Send) and step.waiting is not None:
                    step = step._replace(waiting=step.waiting._replace(channels=()))
                step = steps.send((yield step))
            except StopIteration as done:
                return done.value

    patch.setattr(Hash, "_acquire", deaf)
