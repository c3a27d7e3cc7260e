"""Planted bugs of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.lua import rewrite, script_of
from verification.simulation.plant import planted
from verification.simulation.redis import RedisScenario, trim_always

from leaselock._backends.redis import index, keys, packed_commands, scripted_backend
from leaselock._backends.redis.listener import Listener
from leaselock._backends.redis.pool import Pool
from leaselock._backends.redis.queue_state import QueueState
from leaselock._backends.redis.scripted_backend import ScriptedBackend
from leaselock._backends.redis.scripts import FORGET_IDLE
from leaselock._backends.redis.subscriptions import Subscriptions
from leaselock._backends.redis.waiters import Group
from leaselock._core.client import acquisition, withdrawal
from leaselock._core.client.hold import State
from leaselock._core.contract.effects import FOREVER

if TYPE_CHECKING:
    import pytest
    from verification.simulation.simulator import Faults

    from leaselock._backends.redis.codec import Subscription
    from leaselock._backends.redis.messages import Connection
    from leaselock._core.client.attempts import Attempts
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.backend import Busy, Claim, Grant
    from leaselock._core.contract.effects import Call


ADDS = "redis.pcall('ZADD', index, string.format('%.0f', now), lock)"


@planted("redis")
def address_changes(patch: pytest.MonkeyPatch) -> None:
    """A claim that repeats its request takes over another kept subscription, and is queued
    twice.
    """
    real = Listener.take_address

    def take_address(self: Listener, claim: Claim) -> str:
        if claim.id not in self.waiting:
            self.forget_address(claim)
        return real(self, claim)

    patch.setattr(Listener, "take_address", take_address)


@planted("redis")
def ended_subscription_kept(patch: pytest.MonkeyPatch) -> None:
    """A subscription that has ended is taken over by the next claim."""
    real = Subscriptions.end

    def end(self: Subscriptions, group: Group) -> None:
        real(self, group)
        self.sharing.vacated(group)

    patch.setattr(Subscriptions, "end", end)


@planted("redis")
def expired_lock_jumps_queue(patch: pytest.MonkeyPatch) -> None:
    """An expired lock is granted to a new client, ahead of the waiters (hazard E5)."""
    rewrite(
        patch,
        "ACQUIRE",
        "ahead = state.promote(owner, false)",
        "",
    )


@planted("redis")
def expired_lock_not_granted(patch: pytest.MonkeyPatch) -> None:
    """An expired lock is not granted to any client."""
    rewrite(
        patch,
        "ACQUIRE",
        "ahead.left_to_others = state.read_handoff() == 'left'",
        "ahead.left_to_others = true",
    )


@planted("redis")
def handed_to_dead_waiter(patch: pytest.MonkeyPatch) -> None:
    """A release does not check whether the waiter has a subscriber (hazard E6)."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "if state.tell(state.channels .. claim.address, news) > 0 then",
        "state.tell(state.channels .. claim.address, news)\n        if true then",
    )


@planted("redis")
def handoff_not_published(patch: pytest.MonkeyPatch) -> None:
    """A hand-off publishes no message (hazard E1)."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "if state.tell(state.channels .. claim.address, news) > 0 then",
        "if true then",
    )


@planted("redis")
def held_by_any_is_held(patch: pytest.MonkeyPatch) -> None:
    """A lock held by any client counts as held by the requesting one."""
    rewrite(
        patch,
        "ACQUIRE",
        "if hold.owner == owner then state.own = hold end",
        "state.own = hold",
    )


@planted("redis")
def message_grant_for_whole_lease(patch: pytest.MonkeyPatch) -> None:
    """A grant received in a message is considered valid for the whole lease."""
    real = QueueState.grant

    def grant(self: QueueState, holder: str) -> Grant | None:
        found = real(self, holder)
        return None if found is None else found._replace(lasts=FOREVER)

    patch.setattr(QueueState, "grant", grant)


@planted("redis", faults={"freeze": 0.05, "freeze_mean": 4.0})
def message_grant_from_receipt(patch: pytest.MonkeyPatch) -> None:
    """The validity of a grant in a message is counted from its receipt (hazard B2)."""
    real = QueueState.grant

    def grant(self: QueueState, holder: str) -> Grant | None:
        if holder in self.grants:
            self.sent_at[holder] = self.now()
        return real(self, holder)

    patch.setattr(QueueState, "grant", grant)


@planted("redis")
def no_expiry(patch: pytest.MonkeyPatch) -> None:
    """A lock gets no expiry (hazard A1)."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "local done = redis.pcall('PEXPIRE', lock, lease)",
        "local done = 1",
    )


@planted("redis")
def no_periodic_check(patch: pytest.MonkeyPatch) -> None:
    """A waiter relies on messages alone (hazard E2)."""
    patch.setattr(scripted_backend, "_recheck", lambda left, rank: 1e9)


@planted("redis")
def no_subscription(patch: pytest.MonkeyPatch) -> None:
    """A waiter is queued without a subscription (hazard E1)."""

    def none(self: Subscriptions, group: Group) -> list[Subscription]:
        group.connection.refused.clear()
        return []

    patch.setattr(Subscriptions, "missing", none)


@planted("redis")
def no_successor(patch: pytest.MonkeyPatch) -> None:
    """When the task that asks for all tasks of a client is done, no other one continues."""
    patch.setattr(Group, "wake_first_later", lambda self: None)
    patch.setattr(Group, "wake_first", lambda self: None)


@planted("redis")
def only_record_removed(patch: pytest.MonkeyPatch) -> None:
    """A release removes the record but not the lock."""
    rewrite(
        patch,
        "RELEASE",
        "redis.call('HDEL', lock, owner, 'about:' .. owner, 'mode', 'free_from')",
        "redis.call('HDEL', lock, 'about:' .. owner)",
    )


@planted("redis")
def owner_per_client(patch: pytest.MonkeyPatch) -> None:
    """All threads or tasks of a client are one owner (hazard A5)."""
    for module in (keys, packed_commands):
        patch.setattr(module, "owner_of", lambda holder: holder.partition(":")[0] + ":1")


@planted("redis")
def queue_ordered_by_name(patch: pytest.MonkeyPatch) -> None:
    """The queue is ordered by names instead of tickets (hazard E5)."""
    rewrite(
        patch,
        "ACQUIRE",
        "redis.call('ZADD', queue, 'NX', ticket, member)",
        "redis.call('ZADD', queue, 'NX', 0, member)",
    )


@planted("redis")
def grant_not_listed(patch: pytest.MonkeyPatch) -> None:
    """A grant does not add the lock to the index of active names."""
    rewrite(patch, "ACQUIRE", ADDS, "")


@planted("redis")
def index_trimmed_unseen(patch: pytest.MonkeyPatch) -> None:
    """The oldest names are removed from the index without a look at their locks."""
    trim_always(patch)
    text = FORGET_IDLE.text.replace("KEYS[i + 2]) == 0", "KEYS[i + 2]) >= 0")
    assert text != FORGET_IDLE.text
    patch.setattr(index, "FORGET_IDLE", script_of(text))


@planted("redis")
def release_ignores_queue(patch: pytest.MonkeyPatch) -> None:
    """A release frees the lock and ignores the queue."""
    rewrite(
        patch,
        "RELEASE",
        "if not heads[1] then",
        "if true then",
    )


@planted("redis")
def release_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A release frees the lock of any holder (hazard A2)."""
    rewrite(
        patch,
        "RELEASE",
        "alone, about = found[2] and (found[1] or 'exclusive') == 'exclusive', found[3]",
        "alone, about = true, found[3]",
    )
    rewrite(
        patch,
        "RELEASE",
        "redis.call('HDEL', lock, owner, 'about:' .. owner, 'mode', 'free_from')",
        "redis.call('DEL', lock)",
    )


# Not long before the first seed in which two hold the lock.
@planted("redis")
def released_grant_accepted(patch: pytest.MonkeyPatch) -> None:
    """A grant that no replica confirmed, and that was released, is accepted when requested
    again.
    """

    class Forgetting(dict[str, Any]):
        def setdefault(self, key: str, default: Any = None) -> Any:
            return default

    make, make_model = ScriptedBackend.__init__, RedisScenario.make_model

    def careless(self: ScriptedBackend, *arguments: Any) -> None:
        make(self, *arguments)
        self.given_back = Forgetting()

    def replicated(self: RedisScenario) -> Any:
        model = make_model(self)
        self.settings = self.settings._replace(replicas=1)
        return model

    def seldom(self: RedisScenario, wanted: int) -> int:
        return wanted if self.calm or self.simulator.chance.random() < 0.5 else 0

    make_faults = RedisScenario._faults

    def late(self: RedisScenario) -> Faults:
        return make_faults(self)._replace(slow=0.1, delay=0.005)

    patch.setattr(ScriptedBackend, "__init__", careless)
    patch.setattr(RedisScenario, "_faults", late)
    patch.setattr(RedisScenario, "works", (3.0,))
    patch.setattr(RedisScenario, "make_model", replicated)
    patch.setattr(RedisScenario, "_replicas", seldom)


@planted("redis", faults={"slow": 0.02, "freeze": 0.05, "freeze_mean": 1.0})
def renewal_creates_lock(patch: pytest.MonkeyPatch) -> None:
    """A renewal recreates a hold that has ended (hazard A4)."""
    rewrite(
        patch,
        "RENEW",
        "    found = redis.pcall('HGET', lock, owner)",
        "    redis.call('HSET', lock, owner, 1)\n"
        "    redis.call('PEXPIRE', lock, lease)\n"
        "    found = '1'",
    )


# The scenario that shows it.
@planted("redis data loss")
def renewal_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A renewal checks that the lock is held, but not its holder (hazard A4)."""
    rewrite(
        patch,
        "RENEW",
        "    found = redis.pcall('HGET', lock, owner)",
        "    found = redis.call('EXISTS', lock) == 1 and '1'",
    )


@planted("redis")
def token_is_clock(patch: pytest.MonkeyPatch) -> None:
    """The token is the server's clock, even if the last token was greater."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "token = math.max(token, (tonumber(before) or 0) + 1)",
        "",
    )


@planted("redis")
def token_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The token is not stored before the grant; a clock that is set back repeats it."""
    rewrite(
        patch,
        "ACQUIRE RELEASE BREAK_LOCK",
        "redis.pcall('SET', counter, string.format('%.0f', token), 'PX', token_ttl, 'GET')",
        "redis.pcall('GET', counter)",
    )


@planted("redis")
def token_without_clock(patch: pytest.MonkeyPatch) -> None:
    """The token is the counter alone, which starts again when it has expired."""
    scripts = "ACQUIRE RELEASE BREAK_LOCK"
    rewrite(patch, scripts, "local token, before = now, nil", "local token, before = 1, nil")
    rewrite(patch, scripts, "form == 'vote' or token > now then", "before then")


@planted("redis")
def tombstone_ignored(patch: pytest.MonkeyPatch) -> None:
    """A cancelled claim is granted by a late request (hazard D2)."""
    rewrite(patch, "ACQUIRE", "existing >= 4", "false")


@planted("redis")
def tombstone_not_written(patch: pytest.MonkeyPatch) -> None:
    """No tombstone is written for a cancelled claim (hazard D2)."""
    rewrite(
        patch,
        "RELEASE",
        "if ARGV[10] ~= '0' then redis.call('SET', KEYS[6], '', 'PX', ARGV[10]) end",
        "",
    )


# --- the first request of an acquisition ----------------------------------------------------------


@planted("redis")
def late_reply_taken_for_the_next(patch: pytest.MonkeyPatch) -> None:
    """The reply to a request that was given up is taken for that to the next one."""
    drop, read = Pool.drop, ScriptedBackend._granted_or_busy
    late: set[Pool] = set()

    def dropped(self: Pool, connection: Connection) -> None:
        late.add(self)
        drop(self, connection)

    def granted_or_busy(
        self: ScriptedBackend, call: Call[Any], claim: Claim, wait: bool, replies: list[Any]
    ) -> Grant | Busy | None:
        if self.pool in late:
            late.discard(self.pool)
            replies = [[1, b"%d" % (claim.since * 1e6)]]
        return read(self, call, claim, wait, replies)

    patch.setattr(Pool, "drop", dropped)
    patch.setattr(ScriptedBackend, "_granted_or_busy", granted_or_busy)


@planted("redis", faults={"slow": 0.02, "freeze": 0.05, "freeze_mean": 4.0})
def lease_counted_from_the_first_reply(patch: pytest.MonkeyPatch) -> None:
    """The lease of a grant by the first request is counted from its reply (hazard B2)."""
    real = acquisition._valid_until

    def valid_until(registry: ClaimRegistry, claim: Claim, grant: Grant, sent_at: float) -> float:
        return real(registry, claim, grant, registry.env.now())

    patch.setattr(acquisition, "_valid_until", valid_until)


@planted("redis")
def interrupted_first_request_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A claim whose first request was interrupted is not released (hazards D1, F1)."""
    real = withdrawal.end_after

    async def end_after(
        attempts: Attempts, error: BaseException, lease: LeaseHandle
    ) -> BaseException:
        if attempts.hold.state is State.ASKING:
            attempts.registry.forget(attempts.hold)
        return await real(attempts, error, lease)

    patch.setattr(withdrawal, "end_after", end_after)
