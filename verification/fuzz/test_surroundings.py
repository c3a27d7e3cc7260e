"""The surroundings of a client: its environment, its wake-up pipe, its Redlock masters."""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from verification.fuzz.hostile import Hostile, Piece
from verification.fuzz.properties import holds
from verification.fuzz.test_lines import RAW, SLACK, SOUND
from verification.fuzz.test_urls import PIECES, REST

import leaselock
from leaselock._api.connect import FILE_VARIABLE, VARIABLE, connect
from leaselock._backends.sqlite.client_registry import MESSAGE_SIZE
from leaselock._backends.sqlite.file import File
from leaselock._cli.child import STACK, command_environment, enclosing_locks
from leaselock._cli.exit_codes import Misconfigured
from leaselock._cli.store import OUTER_URL, open_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.sqlite.liveness import Liveness

# Any bytes that an environment variable can have.
VALUE = st.binary(max_size=12).map(lambda b: b.replace(b"\0", b"")) | (PIECES | REST).map(
    lambda text: text.encode("utf-8", "replace").replace(b"\0", b"")
)
MASTERS = 3
TIMEOUT = 0.15


@contextlib.contextmanager
def environment_with(**words: bytes) -> Iterator[None]:
    """Set these environment variables during the body."""
    before = dict(os.environb)
    os.environb.update({name.encode(): word for name, word in words.items()})
    try:
        yield
    finally:
        os.environb.clear()
        os.environb.update(before)


@holds(url=st.just(b"") | VALUE, file=st.just(b"") | VALUE, stack=VALUE, outer=VALUE)
def test_any_environment_names_a_store_or_is_rejected(
    url: bytes, file: bytes, stack: bytes, outer: bytes
) -> None:
    words = {VARIABLE: url, FILE_VARIABLE: file, STACK: stack, OUTER_URL: outer}
    with environment_with(**words):
        with contextlib.suppress(ValueError, leaselock.LeaselockError):
            opened = connect(None, monotonic)
            for part in opened.parts:
                part.close()
        with contextlib.suppress(Misconfigured):
            options: Any = SimpleNamespace(
                backend=None, url_file=None, op_timeout=None, verbose=False
            )
            open_client(options).close()
        lease: Any = SimpleNamespace(name="a", token=1, slots=())
        assert command_environment(lease, 1.0, "memory://")[STACK].endswith("a")
        assert all(enclosing_locks())


@cache
def liveness() -> Liveness:
    """Return a client's liveness, in a database file of this process."""
    folder = tempfile.mkdtemp()
    file = File(f"{folder}/locks.db", monotonic)
    file.open(monotonic() + 10.0)
    return file.begin_client("0" * 32)


@holds(words=st.binary(min_size=1, max_size=60))
def test_any_data_in_the_wake_up_pipe_is_a_wake_up(words: bytes) -> None:
    own = liveness()
    own.mailbox.put(words)
    # Each read starts at a record's beginning.
    own.mailbox.put(b"\1" * (MESSAGE_SIZE - len(words) % MESSAGE_SIZE))
    for name in own.await_wakeup(60.0):
        assert name == "" or name.startswith(f"{own.client}:")


@cache
def masters() -> tuple[Hostile, ...]:
    """Return the masters of this process."""
    return tuple(Hostile() for _ in range(MASTERS))


ANSWERS = st.lists(SOUND, min_size=1, max_size=3)


@holds(10, answers=st.tuples(*[ANSWERS] * MASTERS), noise=st.none() | RAW)
def test_redlock_needs_a_majority_of_votes(
    answers: tuple[list[Piece], ...], noise: Piece | None
) -> None:
    for number, (master, pieces) in enumerate(zip(masters(), answers, strict=True)):
        # One of them may reply anything: it is no majority.
        master.play([noise] if noise and not number else pieces)
    began = monotonic()
    url = ",".join(master.url for master in masters())
    with (
        leaselock.Client(url, op_timeout=TIMEOUT) as client,
        contextlib.suppress(leaselock.LeaselockError),
    ):
        if client.lock("a", lease=5.0).try_acquire(timeout=TIMEOUT) is not None:
            votes = sum(bool(master.granted) for master in masters()[bool(noise) :])
            assert votes + bool(noise) > MASTERS // 2
    assert monotonic() < began + 2 * TIMEOUT + SLACK
