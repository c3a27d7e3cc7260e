"""Interrupts around the mutexes of stores, and in the packing of commands.

Invariant: no interrupt leaves a mutex taken, wherever it comes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.etcd.gateway import Gateway
from leaselock._backends.s3.bucket import Bucket
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.store import Store
from leaselock._core.contract.backend import Inspect
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import CodeType, FrameType

LIMIT = 60.0
CRASHES = """
from leaselock._backends.redis.codec import packed

class Interrupted(int):
    def __str__(self):
        raise KeyboardInterrupt

try:
    packed([("INCRBY", "a", Interrupted(1))])
except KeyboardInterrupt:
    print("interrupted")
"""


class Interruption(Exception):
    """Raised where a signal handler may raise: when a call has returned."""


def interrupted(code: CodeType, work: Callable[[], object], number: int) -> bool:
    """Call *work*, and raise after the given one of the calls of *code*; whether there was one."""
    seen = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        calls = frame.f_back if event == "return" else frame if event == "c_return" else None
        if calls is not None and calls.f_code is code:
            seen += 1
            if seen == number:
                raise Interruption

    sys.setprofile(profile)
    try:
        work()
    except Interruption:
        pass
    finally:
        sys.setprofile(None)
    return seen >= number


def in_thread(work: Callable[[], object]) -> None:
    """Call it in another thread, which a mutex that this one has would stop."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert not raised


def test_no_interrupted_request_leaves_the_file_busy(tmp_path: Path) -> None:
    store = Store(File(str(tmp_path / "locks.db"), lambda: 0.0))

    def ask() -> object:
        return store.call(Inspect("a", "*"), 1.0)

    ask()
    number = 1
    while interrupted(Store.call.__code__, ask, number):
        in_thread(ask)
        number += 1
    assert number > 5
    store.file.close()


def test_no_interrupted_login_stops_the_others() -> None:
    class Gate(Gateway):
        def _log_in(self, until: float) -> str | None:
            self.token = None
            return "token"

    class NoPool:
        def time_left(self, until: float) -> float:
            return LIMIT

    pool: Any = NoPool()
    gateway = Gate(pool, ("ann", "secret"))
    number = 1
    while interrupted(Gateway._token.__code__, lambda: gateway._token(LIMIT), number):
        in_thread(lambda: gateway._token(LIMIT))
        gateway.token = None
        number += 1
    assert number > 2


def test_no_interrupted_examination_stops_the_others() -> None:
    class Connection:
        def now(self) -> float:
            return 0.0

    bucket: Any = object.__new__(Bucket)
    bucket._checking, bucket.connection = threading.RLock(), Connection()

    def examine() -> None:
        with bucket._one_at_a_time(LIMIT):
            len("")

    mutex = Bucket._one_at_a_time.__wrapped__.__code__  # type: ignore[attr-defined]
    for code in (mutex, examine.__code__):
        number = 1
        while interrupted(code, examine, number):
            in_thread(examine)
            number += 1
        assert number > 2


def test_a_request_within_a_request_is_refused(tmp_path: Path) -> None:
    """A signal handler that locks must not end the transaction that it has interrupted."""
    file = File(str(tmp_path / "locks.db"), lambda: 0.0)
    store = Store(file)
    store.call(Inspect("a", "*"), 1.0)
    answers = dict(store.answers)
    problems: list[NotApplied] = []

    def nested(request: Any, until: float) -> object:
        with pytest.raises(NotApplied, match="busy") as caught:
            Store.call(store, Inspect("a", "*"), until)
        problems.append(caught.value)
        return store._answer(request, until)

    store.answers = {**answers, Inspect: nested}
    store.call(Inspect("a", "*"), 1.0)
    assert [problem.reason for problem in problems] == ["unreachable"]
    store.answers = answers
    in_thread(lambda: store.call(Inspect("a", "*"), 1.0))
    file.close()


def test_a_number_whose_conversion_is_interrupted_does_not_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done
    assert done.returncode != -signal.SIGSEGV
