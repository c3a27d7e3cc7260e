"""What is packed beforehand is, to the byte, what would be packed from the whole command."""

from __future__ import annotations

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from leaselock.backends.redis import keys
from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.hash import Hash
from leaselock.backends.redis.route import Cluster, Single
from leaselock.backends.redis.steps import Address, Send
from leaselock.backends.redis.talk import Talk
from leaselock.core.backend import Acquire, Claim, Release
from leaselock.drivers.system_env import now

PLACE = Address("localhost", 6379)
CLIENT = "0123456789abcdef" * 2
NAMES = st.text(min_size=1, max_size=60).filter(str.isprintable)
CLAIMS = st.builds(
    Claim,
    name=NAMES,
    holder=st.integers(1, 10**9).map(lambda serial: f"{CLIENT}:{serial}"),
    client=st.just(CLIENT),
    lease=st.floats(0.05, 1e6),
    about=NAMES,
    since=st.floats(0, 2e9),
    tokens=st.sampled_from([1, 17]),
    cached=st.just(False),
)


def hash_of(form: str) -> Hash:
    return Hash(Talk(Single(PLACE)), lambda claim: claim.client, 0, form, now)


@given(CLAIMS, st.sampled_from(["hash", "string", "vote"]))
def test_a_first_try_is_what_would_be_packed(claim: Claim, form: str) -> None:
    locks = hash_of(form)
    owner = keys.owner_of(claim.id)
    member = keys.member_of(claim, claim.client)
    command = locks._taking(claim.name, owner, round(claim.lease * 1000), member, claim.tokens)
    assert locks.ready.brief(Acquire(claim, True), 0) == Send(PLACE, packed([command]))


@given(CLAIMS, st.sampled_from(["hash", "string", "vote"]))
def test_a_release_is_what_would_be_packed(claim: Claim, form: str) -> None:
    locks = hash_of(form)
    command = locks._giving(claim.name, keys.owner_of(claim.id))
    assert locks.ready.brief(Release(claim, False), 0) == Send(PLACE, packed([command]))


def test_what_a_cluster_turns_out_to_be_counts() -> None:
    route = Cluster([PLACE])
    route.slots = dict.fromkeys(range(keys.SLOTS), PLACE)
    locks = Hash(Talk(route), lambda claim: claim.client, 0, "hash", now)
    claim = Claim("a", f"{CLIENT}:1", CLIENT, 30.0, "me", 1.0)

    def verb() -> bytes:
        step = locks.ready.brief(Acquire(claim, True), 0)
        assert step is not None
        reader = hiredis.Reader()
        reader.feed(packed(step.commands))
        return bytes(reader.gets()[14])

    assert verb() == b"SPUBLISH"
    route.sharded = False
    assert verb() == b"PUBLISH"
