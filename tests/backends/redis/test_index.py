"""The index of active names: what is listed, what it costs, and how the index repairs itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from verification.models.redis_data import ErrorReply, Hash, Sorted
from verification.models.redis_runner import Runner, commands_of
from verification.models.redis_server import Connection, Server
from verification.models.sides import claim_of

from leaselock._backends.redis import index, lock_reader
from leaselock._backends.redis.keys import SLOTS, index_of, keys_of, slot_of, tag_of
from leaselock._backends.redis.messages import Connect
from leaselock._core.contract.backend import (
    Acquire,
    Claim,
    CollectGarbage,
    Grant,
    Inspect,
    Release,
    Walk,
)
from leaselock._core.contract.effects import Call
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._backends.redis.messages import Address, Send

START = 1_700_000_000_000_000
CLIENT = "0" * 32
JAVA = b"053008ff-bcd9-fd3c-bec3-cc01444196c0:1"


class Store:
    """A client of a server that is not shared, and the commands that it has sent."""

    def __init__(self, form: str = "hash", prefix: str = "lock:") -> None:
        self.prefix = prefix
        self.micros = START
        self.server = Server(lambda: self.micros)
        self.connection = Connection(self.server, lambda channel, word: None)
        self.sent: list[str] = []
        self.runner = Runner(f"redis://nowhere?prefix={prefix}", self._send)
        self.backend = self.runner.store.backend(form)

    def _send(self, address: Address, message: Send) -> list[Any]:
        for _, channel in message.subscriptions:
            self.connection.subscribe(channel)
        commands = commands_of(message)
        self.sent += [str(words[0], "ascii") for words in commands]  # type: ignore[arg-type]
        return [self.connection.do(command) for command in commands]

    def claim(self, name: str, serial: int = 1, **fields: Any) -> Claim:
        return claim_of(CLIENT, name, serial, 30.0)._replace(since=self.micros / 1e6, **fields)

    def ask(self, request: Any) -> Any:
        """Answer a request, as the core sends it."""
        self.sent.clear()
        return self.runner.run(self.backend.request(request, 60.0))

    def acquire(self, name: str, serial: int = 1, *, wait: bool = False, **fields: Any) -> Claim:
        claim = self.claim(name, serial, **fields)
        granted = isinstance(self.ask(Acquire(claim, wait)), Grant)
        assert granted is not wait
        return claim

    def release(self, claim: Claim) -> None:
        assert self.ask(Release(claim, False)).was == "held"
        self.backend.forget(claim)

    def listed(self, pattern: str = "*") -> list[str]:
        return [state.name for state in self.ask(Inspect(None, pattern))]

    def walked(self) -> list[str]:
        return [state.name for state in self.ask(Walk("*"))]

    def collect(self) -> int:
        """Collect garbage, step by step."""
        step = self.ask(CollectGarbage(None))
        removed: int = step.removed
        while step.position is not None:
            step = self.ask(CollectGarbage(step.position))
            removed += step.removed
        return removed

    def pass_time(self, seconds: float) -> None:
        self.micros += int(seconds * 1e6)
        self.runner.time += seconds

    def members(self) -> list[str]:
        found = self.server.data.values.get(index_of(None, self.prefix).encode(), Sorted())
        assert isinstance(found, Sorted)
        return sorted(member.decode() for member in found)

    def put(self, key: str, value: Any) -> None:
        """What another program writes."""
        self.server.data.put(key.encode(), value)


@pytest.fixture(params=["hash", "string", "vote", "setnx-expire"])
def store(request: pytest.FixtureRequest) -> Store:
    return Store(request.param)


def test_a_held_lock_is_listed_without_a_look_at_other_keys(store: Store) -> None:
    claims = [store.acquire(name) for name in ("b", "a")]
    assert store.listed() == ["a", "b"]
    assert "SCAN" not in store.sent
    assert store.listed("b*") == ["b"]
    store.release(claims[0])
    assert store.listed() == ["a"]
    assert store.members() == ["lock:a"]


def test_readers_and_permits_are_listed() -> None:
    store = Store()
    store.acquire("catalog", mode="shared")
    store.acquire("gpus", mode="permits", limit=4)
    assert store.listed() == ["catalog", "gpus"]


def test_a_claim_that_waits_for_another_program_is_listed() -> None:
    store = Store()
    store.put("lock:a", Hash({JAVA: b"1"}))
    assert store.listed() == []
    store.acquire("a", wait=True)
    (state,) = store.ask(Inspect(None, "*"))
    assert state.held is not None
    assert len(state.waiting) == 1


def test_a_lock_of_another_program_is_found_by_a_walk_and_listed_from_then_on(
    store: Store,
) -> None:
    hashes = store.backend.index.kind == "hash"
    store.put("lock:java", Hash({JAVA: b"1"}) if hashes else JAVA)
    store.put("lock:no lock", Hash({b"a": b"b"}))
    store.acquire("ours")
    assert store.listed() == ["ours"]
    assert store.walked() == ["java", "ours"]
    assert store.listed() == ["java", "ours"]
    assert "SCAN" not in store.sent
    store.server.data.drop(b"lock:java")
    assert store.listed() == ["ours"]
    assert store.members() == ["lock:ours"]


def test_without_a_prefix_a_walk_finds_locks_by_their_counters() -> None:
    store = Store(prefix="")
    store.put("java", Hash({JAVA: b"1"}))
    store.put("redisson_lock_token:{java}", b"1")
    store.put("redisson_lock_token:{gone}", b"1")
    assert store.listed() == []
    assert store.walked() == store.listed() == ["java"]
    store.server.data.drop(index_of(None, "").encode())
    store.pass_time(1.0)
    assert store.listed() == ["java"]


def test_a_client_that_lists_again_walks_on_but_once_a_second() -> None:
    store = Store()
    store.put("lock:java", Hash({JAVA: b"1"}))
    assert store.listed() == []
    store.pass_time(0.9)
    assert store.listed() == []
    assert "SCAN" not in store.sent
    store.pass_time(0.1)
    assert store.listed() == ["java"]
    assert store.sent.count("SCAN") == 1
    assert store.listed() == ["java"]
    assert "SCAN" not in store.sent


def test_a_walk_that_goes_on_sees_a_bounded_number_of_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    cursors: list[int] = []

    async def page_on(
        executor: Any, address: Any, prefix: str, kind: str, cursor: int, until: Any
    ) -> Any:
        cursors.append(cursor)
        return (cursor + 1) % 7, {f"lock:{cursor}"}

    monkeypatch.setattr(index, "page_on", page_on)
    for number in range(7):
        store.put(f"lock:{number}", Hash({JAVA: b"1"}))
    store.listed()
    for expected in (range(5), range(5, 7), range(5)):
        cursors.clear()
        store.pass_time(1.0)
        store.listed()
        assert cursors == [*expected]
    assert len(store.listed()) == 7


def test_a_user_who_may_not_walk_lists_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    store.acquire("a")
    refused = ErrorReply("NOPERM this user has no permissions to run the 'scan' command")
    monkeypatch.setattr(store.server.data, "do_scan", lambda *words: _raise(refused), raising=True)
    store.listed()
    store.pass_time(1.0)
    assert store.listed() == ["a"]
    assert "SCAN" in store.sent
    with pytest.raises(NotApplied, match="NOPERM"):
        store.walked()


def _raise(error: Exception) -> None:
    raise error


def test_names_that_cool_down_leave_the_index_as_well() -> None:
    store = Store()
    largest = 0
    for number in range(300):
        claim = store.acquire(f"n{number}", min_hold=20.0)
        assert store.ask(Release(claim, False)).was == "held"
        store.pass_time(30.0)
        largest = max(largest, len(store.members()))
    assert largest < 150


def test_an_idle_name_is_kept_if_its_lock_was_taken_meanwhile() -> None:
    """The script looks again: a grant between the look and the removal counts."""
    store = Store()
    claim = store.acquire("a")
    store.runner.run(store.backend.index._forget(["a", "b"], 60.0))
    assert store.members() == ["lock:a"]
    store.release(claim)
    assert store.runner.run(store.backend.index._forget(["a"], 60.0)) == 1
    assert store.members() == []


def test_names_that_are_used_once_leave_an_index_that_is_never_listed(store: Store) -> None:
    store.acquire("long", 0, lease=1e6)
    largest = 0
    for number in range(1000):
        store.release(store.acquire(f"n{number}", number + 1))
        store.pass_time(1.0)
        largest = max(largest, len(store.members()))
    assert largest < 300
    assert "lock:long" in store.members()


def test_an_index_that_cannot_be_used_fails_neither_a_grant_nor_a_release(store: Store) -> None:
    store.put(index_of(None, "lock:"), b"no sorted set")
    for number in range(1, 2 + index.TRIM_EVERY):
        store.release(store.acquire("a", number))
    store.acquire("held", 2 + index.TRIM_EVERY)
    # All keys are walked then.
    assert store.listed() == ["held"]
    assert "SCAN" in store.sent


def test_gc_repairs_the_index(store: Store) -> None:
    store.acquire("held")
    store.release(store.acquire("idle", 2))
    hashes = store.backend.index.kind == "hash"
    store.put("lock:java", Hash({JAVA: b"1"}) if hashes else JAVA)
    store.put("lock:no lock", Hash({b"a": b"b"}))
    store.server.data.drop(index_of(None, "lock:").encode())
    store.release(store.acquire("idle", 3))
    assert store.members() == ["lock:idle"]
    assert store.collect() == 1
    assert store.members() == ["lock:held", "lock:java"]


def test_gc_reads_a_long_index_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "TOGETHER", 5)
    monkeypatch.setattr(index, "STEP_OF_SLOT", 1)
    pages: list[int] = []
    read = store.server.data.do_zrange

    def zrange(*words: bytes) -> list[Any]:
        reply = read(*words)
        pages.append(len(reply))
        return reply

    for number in range(40):
        claim = store.acquire(f"n{number:02}", number)
        if number % 3:
            store.release(claim)
    monkeypatch.setattr(store.server.data, "do_zrange", zrange)
    assert store.collect() == 26
    assert max(pages) == 5
    assert store.members() == [f"lock:n{number:02}" for number in range(0, 40, 3)]


def add_foreign(store: Store, count: int) -> None:
    """Another program adds members to the index that are no keys of locks."""
    found = store.server.data.values[index_of(None, "lock:").encode()]
    assert isinstance(found, Sorted)
    found.update({b"\xff%d" % number: 0.0 for number in range(count)})
    found.update({b"lock:\xff": 0.0, b"lock:": 0.0})


def test_a_list_reads_a_long_index_page_by_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "PAGE", 10)
    pages: list[int] = []
    read = store.server.data.do_zrange

    def zrange(*words: bytes) -> list[Any]:
        reply = read(*words)
        if words[0] == index_of(None, "lock:").encode():
            pages.append(len(reply))
        return reply

    for number in range(45):
        claim = store.acquire(f"n{number:02}", number)
        if number % 3:
            store.release(claim)
    monkeypatch.setattr(store.server.data, "do_zrange", zrange)
    assert store.listed() == [f"n{number:02}" for number in range(0, 45, 3)]
    assert pages == [10, 10, 10, 10, 5]
    assert len(store.members()) == 15


def test_names_that_are_trimmed_while_a_list_reads_hide_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trimming removes the oldest, and so moves the ranks of all that are newer."""
    monkeypatch.setattr(index, "PAGE", 10)
    key = index_of(None, "lock:").encode()
    read = store.server.data.do_zrange

    def zrange(*words: bytes) -> list[Any]:
        reply = read(*words)
        if words[0] == key:
            members = store.server.data.values[key]
            assert isinstance(members, Sorted)
            for member in members.in_order()[:5]:
                if b"old" in member:
                    del members[member]
        return reply

    for number in range(20):
        store.release(store.acquire(f"old{number:02}", number))
    held = [store.acquire(f"held{number:02}", 100 + number) for number in range(20)]
    monkeypatch.setattr(store.server.data, "do_zrange", zrange)
    assert store.listed("held*") == [claim.name for claim in held]


def test_each_page_of_a_long_index_has_the_time_of_one_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many names are idle, and however many packets of locks there are."""
    monkeypatch.setattr(index, "PAGE", 10)
    monkeypatch.setattr(lock_reader, "READ_AT_ONCE", 1)
    for number in range(45):
        claim = store.acquire(f"n{number:02}", number)
        if number % 3:
            store.release(claim)
    answer, began = store.runner._answer, store.runner.time

    def slow(effect: Any) -> Any:
        if isinstance(effect, Call) and not isinstance(effect.request, Connect):
            if effect.until <= store.runner.time:
                raise OutcomeUnknown("no answer within its time", "unreachable")
            store.runner.time += 10.0
        return answer(effect)

    monkeypatch.setattr(store.runner, "_answer", slow)
    assert store.listed() == [f"n{number:02}" for number in range(0, 45, 3)]
    assert store.runner.time > began + 4 * 60.0


@pytest.mark.parametrize("silent", [b"ZRANGE", b"EVALSHA"])
def test_an_index_that_cannot_be_read_in_time_is_one_for_gc(
    silent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    monkeypatch.setattr(index, "PAGE", 10)
    store.acquire("held")
    for number in range(30):
        store.release(store.acquire(f"n{number:02}", 2 + number))
    answer = store.runner.answer

    def slow(address: Address, message: Send) -> list[Any]:
        command = commands_of(message)[0]
        if command[0] == silent and command[2] in (b"20", b"3", b"4"):
            raise OutcomeUnknown("no answer within its time", "unreachable")
        return answer(address, message)

    monkeypatch.setattr(store.runner, "answer", slow)
    with pytest.raises(OutcomeUnknown, match=r"[23]0 names of idle locks, .*`leaselock gc`"):
        store.listed()


def test_many_names_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(index, "ASKED_AT_ONCE", 10)
    held = [f"n{number:02}" for number in (4, 5, 23)]
    for number in range(35):
        claim = store.acquire(f"n{number:02}", number + 1)
        if claim.name not in held:
            store.release(claim)
    store.sent.clear()
    assert store.listed() == held
    # Each ten, and then each one of the tens that have a held one.
    assert store.sent.count("EXISTS") == 4 + 20
    assert store.members() == [f"lock:{name}" for name in held]


def test_a_list_removes_members_that_are_no_keys_of_locks(store: Store) -> None:
    store.acquire("held")
    add_foreign(store, 700)
    assert store.listed() == ["held"]
    assert store.members() == ["lock:held"]


def test_gc_removes_members_that_are_no_keys_of_locks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.acquire("held")
    store.release(store.acquire("idle", 2))
    add_foreign(store, 20)
    monkeypatch.setattr(index, "TOGETHER", 5)
    monkeypatch.setattr(index, "STEP_OF_SLOT", 1)
    assert store.collect() == 23
    assert store.members() == ["lock:held"]


def test_names_are_trimmed_behind_old_ones_that_stay(store: Store) -> None:
    """As many foreign members, and locks that are held for long, as one release looks at."""
    for number in range(index.TRIM_SIZE + 10):
        store.acquire(f"long{number}", number, lease=1e6)
    add_foreign(store, index.TRIM_SIZE)
    for number in range(1000):
        store.release(store.acquire(f"n{number}", 200 + number))
        store.pass_time(1.0)
    assert len(store.server.data.values[index_of(None, "lock:").encode()]) < index.TRIM_SIZE + 350


def test_each_slot_is_trimmed_behind_its_own_old_names(store: Store) -> None:
    """A cluster has an index for each slot: what stays in one of them hides nothing in another."""
    kept = store.backend.index
    kept.kept = {"an index of another slot": 500}
    for number in range(1000):
        store.release(store.acquire(f"n{number}", 200 + number))
        store.pass_time(1.0)
    assert len(store.members()) < 400
    assert kept.kept["an index of another slot"] == 500


def test_a_list_does_not_wait_for_a_server_that_refuses_to_repair_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica refuses each write, and a master that is replaced does for a while."""
    store = Store()
    store.acquire("held")
    store.release(store.acquire("idle", 2))
    answer = store.runner.answer

    def refused(address: Address, message: Send) -> list[Any]:
        command = commands_of(message)[0]
        if command[0] != b"ZRANGE" and index_of(None, "lock:").encode() in command:
            return [ErrorReply("READONLY You can't write against a read only replica.")]
        return answer(address, message)

    store.runner.answer = refused
    assert store.listed() == ["held"]
    assert store.members() == ["lock:held", "lock:idle"]
    assert store.runner.time <= index.REPAIR_WITHIN


def test_a_slot_that_moves_while_masters_are_listed_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its new master was read before it had the slot."""
    store = Store()
    active = store.backend.index
    slots = {1: [10, 11], 2: [20, 21]}

    class Moving:
        async def masters(self, send: Any, until: float) -> list[int]:
            return [1, 2]

        def slots_of(self, address: int) -> list[int]:
            return list(slots[address])

    async def list_pages(
        address: int, unread: Any, pattern: str, found: index.Indexed, until: float
    ) -> Any:
        slots[1], slots[2] = [10, 11, 21], [20]
        found.used.update(key for key, _ in unread)
        return []

    monkeypatch.setattr(active, "topology", Moving())
    monkeypatch.setattr(active, "_list_pages", list_pages)
    used = store.runner.run(active._list_index("*", 60.0)).used
    assert used == {index_of(slot, "lock:") for slot in (10, 11, 20, 21)}


def test_a_lock_comes_back_with_its_next_grant_after_the_index_was_deleted(store: Store) -> None:
    claim = store.acquire("a")
    store.server.data.drop(index_of(None, "lock:").encode())
    assert store.listed() == []
    store.release(claim)
    store.acquire("a", 2)
    assert store.listed() == ["a"]


def _slots(names: Sequence[str]) -> set[int]:
    return {slot_of(name) for name in names}


def test_in_a_cluster_the_index_is_in_the_slot_of_the_lock() -> None:
    tags = [tag_of(slot) for slot in range(SLOTS)]
    assert [slot_of(tag) for tag in tags] == list(range(SLOTS))
    assert {len(tag) for tag in tags} == {4}
    for prefix in ("lock:", "", "a{b}c"):
        for name in ("a", "{a}b", "a}b", "{}", "leaselock:a", "x" * 300):
            keys = keys_of(name, prefix, divided=True)
            found = index_of(slot_of(keys.lock), prefix)
            assert _slots([*keys, found]) == {slot_of(keys.lock)}
    assert index_of(0, "lock:") == "leaselock:active:{afps}:lock:"
    with pytest.raises(ValueError, match="16384"):
        tag_of(SLOTS)
