r"""The contract of a `DocumentStore` and its listener, called directly, without the protocol.

The scenarios of the conformance suite see a store through the protocol, which repairs much: it
compares again, reads again, and lets leases end. Here each method is called by itself. A check is a
function of a `Trial`, which opens the store of a URL, and a proxy before its server if it has one.

    python -m pytest testkit/conformance --proxy localhost:2379 \
        --store 'etcd://localhost:2379/{unique}'
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from leaselock import NotApplied, OutcomeUnknown, StoreError
from leaselock._backends import open_store
from leaselock._core.contract.effects import FOREVER, Signal
from leaselock.stores import Changes, Conflict, DocumentStore, Found, Stored
from testkit.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from leaselock.stores import BlockingNode, Changed

T = TypeVar("T")
Check = Any  # Callable[[Trial], None]; Trial is below
CHECKS: list[Check] = []
# Seconds. A call that has not returned by then hangs.
HANGS = 60.0
# How late a call may be that has a deadline, times the pace of the machine.
LATE = 5.0
# For calls that succeed.
LONG = 60.0
# More names than a careless list has in one part.
NAMES = 130
SHORT = 0.5


class Skipped(Exception):
    """The store lacks what a check is about."""


class Opened(NamedTuple):
    """The two parts of a store."""

    store: DocumentStore
    listener: BlockingNode | None


def check(function: Check) -> Check:
    """Register a check."""
    CHECKS.append(function)
    return function


def text(word: str) -> bytes:
    """Return a document of a free lock, with a word in it."""
    return json.dumps({"holds": [], "word": word}).encode()


def until(seconds: float = LONG) -> float:
    """A deadline."""
    return time.monotonic() + seconds


class Trial:
    """One check of one store. *url* has no documents; a proxy forwards to *server*."""

    def __init__(self, url: str, server: str | None = None, pace: float = 1.0) -> None:
        self.url, self.server, self.pace = url, server, pace
        self.opened: list[Opened] = []
        self.proxies: list[Proxy] = []
        self.name = f"order:{uuid.uuid4().hex[:12]}"

    def open(self, url: str = "") -> Opened:
        """Open the store as another client; it is closed at the end."""
        parts = open_store(url or self.url, time.monotonic).parts
        store, listener = parts[0], parts[1] if len(parts) > 1 else None
        if not isinstance(store, DocumentStore):
            raise Skipped(f"{type(store).__name__} is no DocumentStore")
        self.opened.append(Opened(store, listener))  # type: ignore[arg-type]
        return self.opened[-1]

    def in_use(self) -> tuple[Opened, Any]:
        """Open the store; also the version of the document, for which the listener has waited."""
        opened = self.open()
        version = self.created(opened.store)
        if opened.listener is not None:
            opened.listener.call(Changes({self.name: version}, Signal()), until(0.1))
        return opened, version

    def store(self) -> DocumentStore:
        """Open the store, and use it once."""
        opened = self.open()
        opened.store.get(self.name, until())
        return opened.store

    def listener(self) -> tuple[DocumentStore, BlockingNode]:
        """Open the store and its listener."""
        opened = self.open()
        if opened.listener is None:
            raise Skipped("it reports no changes")
        return opened.store, opened.listener

    def behind_proxy(self) -> tuple[Opened, Proxy]:
        """Open the store with a proxy before its server."""
        if self.server is None:
            raise Skipped("no proxy: name the server, --proxy HOST:PORT")
        host, _, port = self.server.rpartition(":")
        proxy = Proxy(int(port), host)
        self.proxies.append(proxy)
        place = f"127.0.0.1:{proxy.port}"
        url = self.url.replace(self.server, place)
        url = url.replace(self.server.replace(":", "%3A"), place.replace(":", "%3A"))
        assert place in url or place.replace(":", "%3A") in url, f"{self.server} is not in the URL"
        opened = self.open(url)
        opened.store.get(self.name, until())
        return opened, proxy

    def created(self, store: DocumentStore, name: str = "", word: str = "first") -> Any:
        """Create a document; return its version."""
        reply = store.put(name or self.name, text(word), None, None, until())
        assert isinstance(reply, Stored), f"the creation of a document replied {reply}"
        return reply.version

    def forgotten(self) -> None:
        """Delete the documents of this trial, and close all."""
        for proxy in self.proxies:
            proxy.heal()
        with contextlib.suppress(Skipped):
            remove_all(self.open().store, self.name)
        for store, listener in self.opened:
            for part in filter(None, (listener, store)):
                part.wake()
                part.close()
        for proxy in self.proxies:
            proxy.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.forgotten()


def remove_all(store: DocumentStore, prefix: str = "") -> None:
    """Delete all documents of a store whose names begin so."""
    for name, found in listed(store).items():
        if not name.startswith(prefix):
            continue
        version = (found or store.get(name, until())).version
        if version is not None:
            store.delete(name, version, until())


def listed(store: DocumentStore) -> dict[str, Found | None]:
    """Return all parts of the list."""
    documents: dict[str, Found | None] = {}
    page = store.list(None, until())
    documents.update(page.documents)
    while page.position is not None:
        page = store.list(page.position, until())
        documents.update(page.documents)
    return documents


class Running(Generic[T]):
    """A call in a thread of its own, which ends with the process if the call never returns."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.value: T | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self.call()
        except BaseException as error:
            self.error = error

    def result(self, seconds: float, what: str) -> T:
        """Return what the call returns, or raise what it raises; AssertionError if it hangs."""
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"{what} has not returned after {seconds:g} s"
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def in_time(call: Callable[[], T], seconds: float, what: str) -> T:
    """Return what a call returns, or raise what it raises; AssertionError if it hangs."""
    return Running(call).result(seconds, what)


def refused(call: Callable[[], object], seconds: float, what: str) -> StoreError:
    """Return the error of the library that a call must raise."""
    try:
        reply = in_time(call, seconds, what)
    except StoreError as error:
        return error
    except AssertionError:
        raise
    except BaseException as error:
        raise AssertionError(
            f"{what} raised {type(error).__module__}.{type(error).__name__}: {error}; an adapter "
            "raises NotApplied or OutcomeUnknown"
        ) from error
    raise AssertionError(f"{what} replied {reply!r} without a server")


def calls(store: DocumentStore, name: str, version: Any, at: Callable[[], float]) -> dict[str, Any]:
    """Return a call of each method."""
    return {
        "get": lambda: store.get(name, at()),
        "put": lambda: store.put(name, text("next"), version, None, at()),
        "delete": lambda: store.delete(name, version, at()),
        "list": lambda: store.list(None, at()),
    }


def every_call_is_refused(trial: Trial, store: DocumentStore, version: Any, where: str) -> None:
    """Check that each method raises an error of the library in time."""
    for what, call in calls(store, trial.name, version, lambda: until(SHORT)).items():
        refused(call, SHORT + LATE * trial.pace, f"{what} {where}")


# --- reading and writing ----------------------------------------------------------------------


@check
def a_document_is_created_read_replaced_and_deleted(trial: Trial) -> None:
    store = trial.store()
    assert store.get(trial.name, until())[:2] == (None, None)
    first = trial.created(store)
    assert store.get(trial.name, until())[:2] == (text("first"), first)
    reply = store.put(trial.name, text("second"), first, None, until())
    assert isinstance(reply, Stored), reply
    assert reply.version != first, "the version did not change with the write"
    assert trial.open().store.get(trial.name, until())[:2] == (text("second"), reply.version)
    assert store.delete(trial.name, reply.version, until()) is True
    assert store.get(trial.name, until())[:2] == (None, None), "the document was not deleted"


@check
def a_document_that_exists_is_not_created(trial: Trial) -> None:
    store = trial.store()
    version = trial.created(store)
    must_conflict(trial, store, None, (text("first"), version))


@check
def a_write_with_another_version_changes_nothing(trial: Trial) -> None:
    store = trial.store()
    first = trial.created(store)
    second = store.put(trial.name, text("second"), first, None, until())
    assert isinstance(second, Stored), second
    must_conflict(trial, store, first, (text("second"), second.version))
    assert store.delete(trial.name, second.version, until())
    must_conflict(trial, store, second.version, (None, None))


@check
def the_version_of_a_deleted_document_is_not_that_of_its_successor(trial: Trial) -> None:
    store = trial.store()
    first = trial.created(store)
    assert store.delete(trial.name, first, until())
    second = trial.created(store, word="another")
    must_conflict(trial, store, first, (text("another"), second))


def must_conflict(
    trial: Trial, store: DocumentStore, version: Any, present: tuple[bytes | None, Any]
) -> None:
    """Check that a write with a version is refused, and that nothing is written."""
    reply = store.put(trial.name, text("too late"), version, None, until())
    assert isinstance(reply, Conflict), f"a write with the version {version!r} replied {reply}"
    if reply.found is not None:
        assert reply.found[:2] == present, f"the conflict shows {reply.found}"
    assert store.get(trial.name, until())[:2] == present


@check
def the_same_value_written_again_has_another_version_or_is_the_same_document(trial: Trial) -> None:
    store = trial.store()
    first = trial.created(store)
    reply = store.put(trial.name, text("first"), first, None, until())
    assert isinstance(reply, Stored), reply
    assert store.get(trial.name, until())[:2] == (text("first"), reply.version)


@check
def a_delete_with_another_version_deletes_nothing(trial: Trial) -> None:
    store = trial.store()
    first = trial.created(store)
    second = store.put(trial.name, text("second"), first, None, until())
    assert isinstance(second, Stored), second
    assert store.delete(trial.name, first, until()) is False
    assert store.get(trial.name, until())[:2] == (text("second"), second.version)
    assert store.delete(trial.name, second.version, until()) is True


@check
def of_writes_at_the_same_time_one_succeeds(trial: Trial) -> None:
    store = trial.store()
    trial.created(store, word="0")

    def count(_: int) -> None:
        while True:
            found = store.get(trial.name, until())
            assert found.value is not None
            value = text(str(int(json.loads(found.value)["word"]) + 1))
            if isinstance(store.put(trial.name, value, found.version, None, until()), Stored):
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(20)))
    assert store.get(trial.name, until()).value == text("20"), "writes were lost"


@check
def the_list_has_all_names(trial: Trial) -> None:
    store = trial.store()
    names = [f"{trial.name}:{n:04}" for n in range(NAMES)]
    with ThreadPoolExecutor(4) as pool:
        versions = dict(zip(names, pool.map(lambda n: trial.created(store, n), names), strict=True))
    found = listed(store)
    missing = [name for name in names if name not in found]
    assert not missing, f"the list lacks {len(missing)} of {NAMES} names"
    for name in names:
        shown = found[name]
        assert shown is None or shown[:2] == (text("first"), versions[name]), f"{name}: {shown}"


@check
def names_and_values_are_kept(trial: Trial) -> None:
    store = trial.store()
    odd = ["a/b", "a.b", "A.b", "..", "é", "a b", "%2F", "\\", "long" * 60, "日本", "a:b", "*"]
    names = [f"{trial.name}:{each}" for each in odd]
    word = "é\n" * 20_000
    for n, name in enumerate(names):
        trial.created(store, name, f"{n}{word}")
    for n, name in enumerate(names):
        assert store.get(name, until()).value == text(f"{n}{word}"), name
    assert set(names) <= listed(store).keys()


@check
def the_time_of_the_store_does_not_run_back(trial: Trial) -> None:
    store = trial.store()
    times = [store.get(trial.name, until()).now for _ in range(3)]
    if None in times:
        raise Skipped("it does not tell its time")
    spread = store.traits.clock_uncertainty
    known = [at for at in times if at is not None]
    assert all(later >= earlier - spread for earlier, later in pairwise(known))


# --- a server that does not answer ------------------------------------------------------------


@check
def a_call_ends_at_its_deadline(trial: Trial) -> None:
    opened, proxy = trial.behind_proxy()
    version = trial.created(opened.store)
    proxy.silence()
    every_call_is_refused(trial, opened.store, version, "on a silent server")
    proxy.heal()
    assert opened.store.get(trial.name, until()).value is not None


@check
def a_write_without_a_reply_may_have_been_applied(trial: Trial) -> None:
    opened, proxy = trial.behind_proxy()
    version = trial.created(opened.store)
    for action in ("lose_reply", "cut_reply"):
        proxy.plan(action)

        def put(version: Any = version, value: bytes = text(action)) -> object:
            return opened.store.put(trial.name, value, version, None, until(4 * SHORT))

        what = f"put without a reply ({action})"
        error = refused(put, 4 * SHORT + LATE * trial.pace, what)
        proxy.calm()
        found = trial.open().store.get(trial.name, until())
        if found.value == text(action):
            assert isinstance(error, OutcomeUnknown), f"{what} was applied, and raised {error!r}"
        version = found.version


@check
def a_delete_without_a_reply_may_have_been_applied(trial: Trial) -> None:
    opened, proxy = trial.behind_proxy()
    trial.created(opened.store)
    # Some adapters read before they delete.
    for nth in (1, 2):
        found = trial.open().store.get(trial.name, until())
        if found.version is None:
            return
        proxy.plan("lose_reply", nth=nth)
        deleted, error = False, None
        try:
            deleted = opened.store.delete(trial.name, found.version, until(4 * SHORT))
        except StoreError as raised:
            error = raised
        proxy.calm()
        if trial.open().store.get(trial.name, until()).version is None:
            known = deleted or isinstance(error, OutcomeUnknown)
            assert known, f"it was deleted, and the reply was {error!r}"


@check
def a_server_that_is_gone_is_an_error_of_the_library(trial: Trial) -> None:
    opened, proxy = trial.behind_proxy()
    version = trial.created(opened.store)
    proxy.refuse()
    every_call_is_refused(trial, opened.store, version, "without a server")
    for what, call in {
        "doctor": lambda: opened.store.doctor(until(SHORT)),
        "setup": lambda: opened.store.setup(True, until(SHORT)),
    }.items():
        try:
            in_time(call, SHORT + LATE * trial.pace, f"{what} without a server")
        except StoreError:
            continue
    proxy.heal()
    assert opened.store.get(trial.name, until()).value == text("first")


# --- close, wake, fork ------------------------------------------------------------------------


def sockets() -> set[str]:
    """Return the sockets of this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("socket:"):
                found.add(target)
    return found


@check
def close_closes_all_connections(trial: Trial) -> None:
    before = sockets()
    opened, _ = trial.in_use()
    for part in filter(None, (opened.listener, opened.store)):
        part.wake()
        part.close()
    wait_until(lambda: not sockets() - before, "close left connections open")
    assert opened.store.get(trial.name, until()).value == text("first"), "it is opened again"
    if opened.listener is not None:
        must_report(trial, opened.listener, None, "a document, after close")


def wait_until(true: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait for a condition."""
    end = until(seconds)
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@check
def a_forked_child_opens_connections_of_its_own(trial: Trial) -> None:
    before = sockets()
    opened, version = trial.in_use()
    inherited = sockets() - before

    def child() -> None:
        for part in filter(None, (opened.store, opened.listener)):
            part.after_fork()
        if inherited:
            # A store in the memory of a process has nothing of its parent's.
            assert opened.store.get(trial.name, until()).value == text("first")
            assert sockets() - inherited - before, "it used a connection of its parent"
            if opened.listener is not None:
                own = sockets()
                opened.listener.call(Changes({trial.name: version}, Signal()), until(0.1))
                assert sockets() - own, "its listener used a connection of its parent"

    forked(child)
    reply = opened.store.put(trial.name, text("second"), version, None, until())
    assert isinstance(reply, Stored), reply
    if opened.listener is not None:
        must_report(trial, opened.listener, version, "a change, in the parent of a fork")


def forked(body: Callable[[], None]) -> None:
    """Run a function in a forked child, and wait for it."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            in_time(body, HANGS, "the child")
            code = 0
        except BaseException:
            os.write(sending, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, said


@check
def wake_ends_the_call_of_a_listener(trial: Trial) -> None:
    store, listener = trial.listener()
    version = trial.created(store)
    call = waiting(listener, {trial.name: version})
    listener.wake()
    with contextlib.suppress(StoreError):
        call.result(10.0 * trial.pace, "a call of a listener that was woken")
    listener.close()
    must_report(trial, listener, None, "a document, after wake and close")


@check
def an_interrupt_ends_the_call_of_a_listener(trial: Trial) -> None:
    store, listener = trial.listener()
    version = trial.created(store)
    interrupt = Signal()
    call = waiting(listener, {trial.name: version}, interrupt)
    interrupt.set()
    assert not call.result(10.0 * trial.pace, "a call of a listener that was interrupted")


def waiting(
    listener: BlockingNode, versions: Mapping[str, Any], interrupt: Signal | None = None
) -> Running[Any]:
    """Call a listener in a thread, without a deadline, and wait until it listens."""
    signal = interrupt or Signal()
    running: Running[Any] = Running(lambda: listener.call(Changes(versions, signal), FOREVER))
    wait_until(
        lambda: bool(signal.wakers) or not running.thread.is_alive(), "the listener has not begun"
    )
    return running


# --- changes ----------------------------------------------------------------------------------


def names_of(changed: Any, versions: Mapping[str, Any]) -> list[str]:
    """Return the names of what a listener has replied. It may say of any document that it may have
    missed changes, but no version that is known already.
    """
    ones: list[Changed] = list(changed)
    for name, found in ones:
        known = found is not None and found.version == versions[name]
        assert not known, f"{name} has no other version than the known one, {found}"
    return [each.name for each in ones]


def must_report(
    trial: Trial, listener: BlockingNode, known: Any, what: str, *others: tuple[str, Any]
) -> None:
    """Check that a listener reports a change that has happened."""
    versions = {trial.name: known} | dict(others)
    end = until(HANGS / 2)

    def call() -> list[str]:
        return names_of(listener.call(Changes(versions, Signal()), end), versions)

    while trial.name not in in_time(call, HANGS, what):
        assert time.monotonic() < end, f"{what} was not reported"


@check
def a_change_before_the_request_is_reported(trial: Trial) -> None:
    store, listener = trial.listener()
    first = trial.created(store)
    reply = store.put(trial.name, text("second"), first, None, until())
    assert isinstance(reply, Stored), reply
    must_report(trial, listener, first, "a change before the first request")
    # The listener watches the document by now. Nothing waits for it while it changes.
    third = store.put(trial.name, text("third"), reply.version, None, until())
    assert isinstance(third, Stored), third
    must_report(trial, listener, reply.version, "a change between two requests")
    assert store.delete(trial.name, third.version, until())
    must_report(trial, listener, third.version, "a deletion between two requests")
    trial.created(store)
    must_report(trial, listener, None, "a creation between two requests")


@check
def a_change_during_the_request_is_reported(trial: Trial) -> None:
    store, listener = trial.listener()
    first = trial.created(store)
    other = f"{trial.name}:other", trial.created(store, f"{trial.name}:other")
    none = f"{trial.name}:none", None
    versions = dict([(trial.name, first), other, none])
    call = waiting(listener, versions)
    reply = trial.open().store.put(trial.name, text("second"), first, None, until())
    assert isinstance(reply, Stored), reply
    if trial.name not in names_of(call.result(HANGS, "a call of a listener"), versions):
        must_report(trial, listener, first, "a change during a request", other, none)


@check
def a_listener_survives_the_loss_of_its_connection(trial: Trial) -> None:
    opened, proxy = trial.behind_proxy()
    if opened.listener is None:
        raise Skipped("it reports no changes")
    first = trial.created(opened.store)
    opened.listener.call(Changes({trial.name: first}, Signal()), until(0.2))
    proxy.cut_all()
    # Through a store that has no proxy, while the listener has no connection.
    reply = trial.open().store.put(trial.name, text("second"), first, None, until())
    assert isinstance(reply, Stored), reply
    end = until(HANGS)
    while True:
        assert time.monotonic() < end, "a change while the connection was lost was not reported"
        with contextlib.suppress(NotApplied):
            request = Changes({trial.name: first}, Signal())
            if opened.listener.call(request, until(SHORT)):
                break


def run_check(
    function: Check, url: str, server: str | None = None, pace: float = 1.0
) -> str | None:
    """Run one check on a store without documents. Return why it was skipped, or None."""
    with Trial(url, server, pace) as trial:
        try:
            function(trial)
        except Skipped as reason:
            return str(reason)
    return None


def by_name() -> Iterator[tuple[str, Check]]:
    """Return all checks by their names."""
    return ((function.__name__, function) for function in CHECKS)
