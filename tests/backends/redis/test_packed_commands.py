"""What is packed beforehand equals, byte for byte, what would be packed from the whole command."""

from __future__ import annotations

import hiredis
from hypothesis import given
from hypothesis import strategies as st
from verification.models.redis_runner import NoConnection

from leaselock._backends.redis import keys
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.scripted_backend import ScriptedBackend
from leaselock._backends.redis.store import RedisStore
from leaselock._backends.redis.topology import Cluster
from leaselock._core.contract.backend import Claim
from leaselock._drivers.system_env import now

PLACE = Address("localhost", 6379)
CLIENT = "0123456789abcdef" * 2
PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
NAMES = st.text(PRINTABLE, min_size=1, max_size=60)
# The second name of the same length is made from the first; these are stored under other keys.
NAMES |= st.sampled_from(["ab", "é", "}b", "{a", "{a}", "a}b", "a{b}c", "leaselock:a"])
URLS = st.sampled_from(
    ["redis://localhost", "redis://localhost?prefix=", "redis+cluster://localhost?prefix="]
)
STORES: dict[tuple[str, str], ScriptedBackend] = {}
CLAIMS = st.builds(
    Claim,
    name=NAMES,
    id=st.integers(1, 10**9).map(lambda serial: f"{CLIENT}:{serial}"),
    client=st.just(CLIENT),
    lease=st.floats(0.05, 1e6),
    metadata=NAMES,
    since=st.floats(0, 2e9),
    mode=st.just("exclusive"),
)


def kept_locks_of(form: str, url: str) -> ScriptedBackend:
    """The same ones for all examples, which remember the names of earlier ones."""
    if (form, url) not in STORES:
        STORES[form, url] = locks_of(form, url)
    return STORES[form, url]


def locks_of(form: str, url: str = "redis://localhost") -> ScriptedBackend:
    locks = RedisStore(settings_of(url), now, NoConnection).backend(form)
    assert isinstance(locks, ScriptedBackend)
    return locks


@given(CLAIMS, st.sampled_from(["hash", "string", "vote"]), URLS, st.booleans())
def test_a_first_try_is_what_would_be_packed(
    claim: Claim, form: str, url: str, waits: bool
) -> None:
    locks = kept_locks_of(form, url)
    owner = keys.owner_of(claim.id)
    member = keys.member_of(claim, claim.id)
    command = locks._acquire_command(
        claim.name, owner, round(claim.lease * 1000), member, 1, int(waits), b""
    )
    assert locks.packed.acquire(claim, waits) == (command[3], packed([command]))


@given(CLAIMS, st.sampled_from(["hash", "string", "vote"]), URLS)
def test_a_release_is_what_would_be_packed(claim: Claim, form: str, url: str) -> None:
    locks = kept_locks_of(form, url)
    command = locks._release_command(claim.name, keys.owner_of(claim.id))
    assert locks.packed.release(claim) == (command[3], packed([command]))


def test_commands_follow_what_the_cluster_turns_out_to_be() -> None:
    locks = locks_of("hash", "redis+cluster://localhost")
    topology = locks.topology
    assert isinstance(topology, Cluster)
    claim = Claim("a", f"{CLIENT}:1", CLIENT, 30.0, "me", 1.0)

    def verb() -> bytes:
        reader = hiredis.Reader()
        reader.feed(locks.packed.acquire(claim, False)[1])
        return next(bytes(word) for word in reader.gets() if word.endswith(b"PUBLISH"))

    topology.sharded = True
    assert verb() == b"SPUBLISH"
    topology.sharded = False
    assert verb() == b"PUBLISH"
