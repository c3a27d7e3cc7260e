"""A grant that no replica confirmed, and that was released, is accepted when requested again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.redis import RedisStory

from leaselock._backends.redis.scripted_lock import ScriptedLock

if TYPE_CHECKING:
    import pytest
    from verification.simulation.world import Faults


# Not long before the first seed in which two hold the lock.


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in, into stories in which replicas seldom confirm and requests are often late."""

    class Forgetting(dict[str, Any]):
        def setdefault(self, key: str, default: Any = None) -> Any:
            return default

    make, make_model = ScriptedLock.__init__, RedisStory.make_model

    def careless(self: ScriptedLock, *arguments: Any) -> None:
        make(self, *arguments)
        self.undone = Forgetting()

    def replicated(self: RedisStory) -> Any:
        model = make_model(self)
        self.settings = self.settings._replace(replicas=1)
        return model

    def seldom(self: RedisStory, wanted: int) -> int:
        return wanted if self.calm or self.world.chance.random() < 0.5 else 0

    make_faults = RedisStory._faults

    def late(self: RedisStory) -> Faults:
        return make_faults(self)._replace(slow=0.1, delay=0.005)

    patch.setattr(ScriptedLock, "__init__", careless)
    patch.setattr(RedisStory, "_faults", late)
    patch.setattr(RedisStory, "works", (3.0,))
    patch.setattr(RedisStory, "make_model", replicated)
    patch.setattr(RedisStory, "_replicas", seldom)
