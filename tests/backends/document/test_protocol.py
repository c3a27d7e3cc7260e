"""The protocol `document`: its documents, its requests, and what it does when others write."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from testkit.documents import ROOMS, Listener, Memory, Room

import leaselock
from leaselock._backends import SCHEMES, open_store
from leaselock._backends.document import backend as document_backend
from leaselock._backends.document import known as known_documents
from leaselock._backends.document.adapter import Conflict, Found, Page, Stored
from leaselock._backends.document.content import Content, Held, decoded, encoded
from leaselock._backends.document.engine import Engine
from leaselock._backends.document.row import DRIFT, MARGIN, DocumentRow, RowContext
from leaselock._core.contract.backend import Claim, HoldRecord, Unreadable
from leaselock._core.contract.effects import Call, Signal, Wait
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store in memory."""
    monkeypatch.setitem(SCHEMES, "documents", "testkit.documents:MEMORY")
    yield
    ROOMS.clear()


def room() -> Room:
    """The only room."""
    (found,) = ROOMS.values()
    return found


def document(name: str = "a") -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(room().documents[name][0])
    return found


def write(name: str, text: bytes) -> None:
    """Write what another program, or another version, writes."""
    room().documents[name] = (text, -1)


HOLD = HoldRecord("c:1", "c", "lease", 7, 0.0, "m", 5.0, "shared", 2, 0.0, 4, True)
WAITER = Claim("a", "d:1", "d", 30.0, "", 6.0, "permits", 3, 5.0, True, last_seen=9)
CONTENT = Content(12, "w.1", 5.5, 7, 3, 8, (Held(HOLD, 11, 2.5, 1.5, 99.0),), (WAITER,))


def read(text: bytes | None) -> Content:
    """The content of a document."""
    return decoded(text, "a", "the document 'a'", "delete it")


def test_a_document_is_read_as_it_was_written() -> None:
    assert read(encoded(CONTENT)) == CONTENT
    plain = Content(
        1,
        "w.2",
        0.0,
        1,
        holds=(Held(HoldRecord("c:1", "c", "either", 1, 0.0, "", 0.0), 1, 2.0, None, None),),
    )
    assert read(encoded(plain)) == plain
    assert b"mode" not in encoded(plain)
    assert read(None) == Content()


def test_a_write_keeps_the_marker_that_it_found() -> None:
    """It stands for programs that may be running, which a newer release must not join."""
    text = json.dumps({**json.loads(encoded(CONTENT)), "v": "2 1"}).encode()
    assert json.loads(encoded(read(text)._replace(n=13)))["v"] == "2 1"


def test_what_earlier_versions_wrote_beside_it_is_read() -> None:
    """How many tokens a grant had reserved, and whether its client kept the lease."""
    document = json.loads(encoded(CONTENT))
    for record in (*document["holds"], *document["queue"]):
        record |= {"tokens": 1024, "cached": True}
    assert read(json.dumps(document).encode()) == CONTENT


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": "2"}, "it has the layout 2 of a newer leaselock"),
        ({"v": 1}, "its layout marker is '1'|KeyError|layout"),
        ({"n": 0}, "n is 0"),
        ({"token": "7"}, "token is '7'"),
        ({"holds": None}, "TypeError"),
        ({"holds": [1]}, "TypeError"),
        ({"queue": [{"id": "d:1"}]}, "KeyError"),
        ({"lapsed_offer": -1}, "lapsed_offer is -1"),
    ],
)
def test_a_document_that_cannot_be_read_says_why(change: dict[str, Any], why: str) -> None:
    text = json.dumps({**json.loads(encoded(CONTENT)), **change}).encode()
    if change == {"v": 1}:
        assert read(text) == CONTENT  # a number is the text of it
        return
    with pytest.raises(Unreadable, match=f"the document 'a' cannot be read: .*{why}.*: delete it"):
        read(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("beat", -1),
        ("lasts", "1"),
        ("lasts", -1.0),
        ("free", None),
        ("free", -0.5),
        ("stamp", "x"),
        ("offered", 1),
        ("mode", "all"),
    ],
)
def test_a_hold_that_cannot_be_read_says_why(field: str, value: object) -> None:
    raw = json.loads(encoded(CONTENT))
    raw["holds"][0][field] = value
    with pytest.raises(Unreadable, match=f"{field} is"):
        read(json.dumps(raw).encode())


def test_an_id_that_occurs_twice_cannot_be_read() -> None:
    raw = json.loads(encoded(CONTENT))
    raw["holds"] *= 2
    with pytest.raises(Unreadable, match="an id occurs twice"):
        read(json.dumps(raw).encode())
    with pytest.raises(Unreadable, match="JSONDecodeError"):
        read(b"{")


def test_a_fast_clock_does_not_shorten_a_period() -> None:
    """The client that has counted most of it writes what may be left of it by a slower clock."""
    period, passed = 3600.0, 3599.0
    hold = HOLD._replace(id="c:1", client="c", permits=1, offered=False, step=0)
    content = CONTENT._replace(holds=(Held(hold, 11, 30.0, period, None),), queue=())
    row = DocumentRow(content, RowContext({("c:1", 11): 0.0}, "c", passed, 5.5, None))
    row.put(row.entry.holds["c:1"])
    written = row.changed()
    assert written is not None
    (held,) = written.holds
    assert held.free is not None
    assert held.free == pytest.approx(period - passed * (1.0 - DRIFT))


def test_an_unreadable_document_hides_no_other() -> None:
    with leaselock.Client("documents://r", op_timeout=1.0) as client, client.lock("good"):
        write("bad", b"[]")
        write("new", b'{"v": "9 8"}')
        with pytest.raises(leaselock.NotApplied, match="'bad' cannot be read") as raised:
            client.lock("bad").try_acquire()
        assert raised.value.reason == "misconfigured"
        with pytest.raises(leaselock.NotApplied, match="layout 9 of a newer leaselock"):
            client.lock("new").try_acquire()
        assert [(info.name, bool(info.unreadable)) for info in client.locks()] == [
            ("bad", True),
            ("good", False),
            ("new", True),
        ]
        write("old", b"{}")
        assert client.gc() == 0  # what cannot be read is not removed


def test_a_free_lock_that_is_known_costs_two_writes_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    get = Memory.get

    def counted(self: Memory, name: str, until: float) -> Found:
        reads.append(name)
        return get(self, name, until)

    monkeypatch.setattr(Memory, "get", counted)
    with leaselock.Client("documents://r") as client:
        for _ in range(5):
            with client.lock("a"):
                pass
        assert (reads, room().writes) == (["a"], 10)


def test_only_a_lock_that_was_waited_for_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder of a free lock would be told of its own writes alone."""
    listened: list[list[str]] = []
    call = Listener.call

    def counted(self: Listener, request: Any, until: float) -> Any:
        listened.append(list(request.versions))
        return call(self, request, until)

    monkeypatch.setattr(Listener, "call", counted)
    with leaselock.Client("documents://r") as client, leaselock.Client("documents://r") as other:
        for _ in range(50):
            with client.lock("a", lease=5):
                pass
        # The renewer has a hold, and so it has begun to wait.
        lease = client.lock("b").acquire()
        assert listened == []
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.lock("b").acquire, timeout=20)
            while not listened:
                threading.Event().wait(0.01)
            lease.release()
            waiting.result().release()
    assert {name for names in listened for name in names} == {"b"}


def test_claims_of_one_client_do_not_conflict_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conflicts: list[str] = []
    put = Memory.put

    def counted(self: Memory, name: str, *words: Any) -> Stored | Conflict:
        reply = put(self, name, *words)
        if isinstance(reply, Conflict):
            conflicts.append(name)
        return reply

    monkeypatch.setattr(Memory, "put", counted)
    with leaselock.Client("documents://r") as client, ThreadPoolExecutor(12) as pool:
        lease = client.lock("a").acquire()
        waiting = [pool.submit(client.lock("a").acquire, timeout=20) for _ in range(12)]
        while len(document()["queue"]) < 12:
            threading.Event().wait(0.01)
        assert conflicts == []
        lease.release()
        for future in as_completed(waiting):
            future.result().release()


def test_a_write_that_was_repeated_on_its_way_is_recognised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = Memory.put

    def twice(self: Memory, *words: Any) -> Stored | Conflict:
        assert isinstance(put(self, *words), Stored)
        return put(self, *words)

    with leaselock.Client("documents://r?watch=no") as client:
        lease = client.lock("a").acquire()
        monkeypatch.setattr(Memory, "put", twice)
        lease.release()
        assert document()["holds"] == []


def test_an_acquire_that_others_outrun_all_the_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def outrun(self: Memory, name: str, *words: Any) -> Conflict:
        return Conflict(None)

    monkeypatch.setattr(Memory, "put", outrun)
    with leaselock.Client("documents://r", op_timeout=0.1) as client:
        assert client.lock("a").try_acquire() is None
        # One that waits has more time than one request.
        with pytest.raises(leaselock.AcquireTimeout):
            client.lock("a").acquire(timeout=0.5)


def test_a_break_that_others_outrun_all_the_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def outrun(self: Memory, name: str, *words: Any) -> Conflict:
        return Conflict(None)

    with leaselock.Client("documents://r", op_timeout=0.1) as client, client.lock("a"):
        put = Memory.put
        monkeypatch.setattr(Memory, "put", outrun)
        with pytest.raises(leaselock.NotApplied, match="change the lock 'a' all the time"):
            client.break_lock("a")
        monkeypatch.setattr(Memory, "put", put)


def test_an_acquire_that_was_outrun_more_often_asks_again_sooner() -> None:
    """Otherwise claims that were made later would overtake it."""
    clock = [100.0]
    opened = open_store("documents://r", lambda: clock[0])
    engine: Any = opened.backend(None).engine  # type: ignore[attr-defined]
    engine.random, engine.known.trip = (lambda: 1.0), 0.1
    row_changed = Conflict(Found(encoded(CONTENT), 1, None))
    steps = engine.apply("a", "e", lambda row: row.join(WAITER._replace(id="e:1")), 130.0)
    pauses: list[tuple[float, float]] = []

    def run() -> None:
        effect = steps.send(None)
        while True:
            if isinstance(effect, Call):
                clock[0] += 0.1
                is_read = type(effect.request).__name__ == "Get"
                effect = steps.send(row_changed.found if is_read else row_changed)
            else:
                pauses.append((clock[0], effect.until - clock[0]))
                clock[0] = effect.until
                effect = steps.send(None)

    with pytest.raises(NotApplied, match="all the time"):
        run()
    times = [pause for _, pause in pauses]
    assert len(times) > 50
    assert all(later <= earlier for earlier, later in pairwise(times[:-1]))
    assert times[-2] < 0.1 * times[0]


@pytest.mark.parametrize("silent", [5.0, 40.0])
def test_a_new_client_knows_how_long_a_waiter_was_silent(
    silent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store tells its time: a dead waiter keeps no new client from a free lock."""
    get = Memory.get
    monkeypatch.setattr(Memory, "get", lambda *words: get(*words)._replace(now=1e9))
    content = CONTENT._replace(holds=(), lapsed_offer=0, stamps={WAITER.id: 1e9 - silent})
    with leaselock.Client("documents://r?watch=no") as client:
        client.lock("other").locked()  # opens the room
        write("a", encoded(content))
        lease = client.semaphore("a", 3).try_acquire()
        assert (lease is not None) == (silent > 30.0)
        if lease is not None:
            lease.release()


def test_the_stamp_of_a_waiter_goes_with_its_last_sign_of_life() -> None:
    written = CONTENT._replace(stamps={WAITER.id: 55.5})
    assert read(encoded(written)) == written
    for stamp, stamps in ((77.7, {WAITER.id: 77.7}), (None, {})):
        context = RowContext({}, WAITER.client, 1000.0, 2e9, stamp)
        row = DocumentRow(written._replace(lapsed_offer=11), context)
        row.touch(WAITER.client)
        changed = row.changed()
        assert changed is not None
        assert changed.stamps == stamps


@pytest.mark.parametrize(("shown", "longer"), [(True, 0.0), (False, 1.5 * DRIFT + MARGIN)])
def test_a_lock_stays_taken_from_when_the_document_was_seen(shown: bool, longer: float) -> None:
    context = RowContext({(HOLD.id, 11): 990.0}, "", 1000.0, 2e9, None, shown=shown)
    hold = DocumentRow(CONTENT, context).entry.holds[HOLD.id]
    assert hold.free_from == pytest.approx(990.0 + 1.5 + longer)


def test_garbage_is_collected_when_it_was_not_used_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with leaselock.Client("documents://r?token_ttl=1h") as client:
        held = client.lock("held").acquire()
        for name in ("a", "b", "c", "d"):
            with client.lock(name):
                pass
        assert client.gc() == 0
        later = Engine.unused_after
        monkeypatch.setattr(
            Engine,
            "unused_after",
            lambda self, content: (found := later(self, content)) and found - 7200.0,
        )
        assert client.gc() == 4
        assert sorted(room().documents) == ["held"]
        held.release()
    with leaselock.Client("documents://r?token_ttl=0") as client:
        assert client.gc() == 0


def test_a_page_that_takes_long_is_collected_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step stops half way to its deadline; the next one goes on with what is left."""
    names = [f"n{number}" for number in range(4)]
    with leaselock.Client("documents://r?token_ttl=1h", op_timeout=0.5) as client:
        for name in names:
            with client.lock(name):
                pass
        backend = document_backend.DocumentBackend
        monkeypatch.setattr(Engine, "unused_after", lambda self, content: 1.0)
        monkeypatch.setattr(
            Memory, "list", lambda self, position, until: Page([(n, None) for n in names])
        )
        looked: list[int] = []
        remove = backend._remove_unused

        async def removed(self: Any, *words: Any) -> bool:
            looked.append(1)
            return await remove(self, *words)

        monkeypatch.setattr(backend, "_remove_unused", removed)
        # Every other step has no time to remove anything.
        steps = iter([0.0, 1e12])
        monkeypatch.setattr(document_backend, "half_way", lambda now, until: next(steps))
        assert client.gc() == 4
        assert len(looked) == 4


def test_the_renewer_goes_on_while_the_listener_fails() -> None:
    """It waits with the listener, up to its next renewal."""
    clock = [100.0]
    opened = open_store("documents://r", lambda: clock[0])
    backend: Any = opened.backend(None)
    backend.waiters.expect(WAITER)
    backend.waiters.listen_to(WAITER.id)
    backend.known.learn("a", Found(encoded(CONTENT), 1, None), 0.0)
    steps = backend.wait_and_listen(Signal(), 103.0)
    assert isinstance(steps.send(None), Call)
    paused = steps.throw(NotApplied("away"))
    assert isinstance(paused, Wait)
    assert paused.until <= 103.0
    clock[0] = 103.0
    with pytest.raises(StopIteration):
        steps.send(None)


def test_the_options_of_the_url() -> None:
    with pytest.raises(ValueError, match=r"\?poll= must be 0.001 to 60 seconds"):
        leaselock.Client("documents://r?poll=0")
    with pytest.raises(ValueError, match="unknown option 'pol'"):
        leaselock.Client("documents://r?pol=1")
    with pytest.raises(ValueError, match="no protocol 'lease'"):
        leaselock.Client("documents://r?protocol=lease")
    with leaselock.Client("documents://r?poll=2&watch=no") as client, client.lock("a"):
        assert client.doctor()[0].what == "documents in memory"
        assert client.setup() == []


def test_many_documents_are_known_and_some_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_documents, "MOST_KNOWN", 4)
    with leaselock.Client("documents://r") as client:
        for number in range(20):
            with client.lock(f"n{number}"):
                pass
        assert len(client.locks()) == 0


def test_as_many_documents_are_known_as_the_limit_says_however_many_names_there_are() -> None:
    """A client of a thousand names a second stays as large as it is after the first seconds."""
    with leaselock.Client("documents://filled") as client:
        for number in range(3 * known_documents.MOST_KNOWN):
            client.lock(f"n{number}").acquire().release()
        (context,) = client._core.contexts.values()
        known = context.registry.backend.known.views  # type: ignore[attr-defined]
        assert len(known) <= known_documents.MOST_KNOWN
