"""run: a command under a lock, ended before anybody else can have the lock.

The command gets its signal so early that it is gone, at the latest by SIGKILL, when the lease
could be taken: as soon as what is left of the lease without a confirmed renewal is the time
that ending it may take.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

import holdfast
from holdfast.cli import Usage, codes
from holdfast.cli.child import CannotRun, Child, signal_named, terminal
from holdfast.cli.patience import Patience
from holdfast.cli.store import client_of

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from holdfast import Client, Lease

FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH")
)
HANDLED = (*FORWARDED, signal.SIGCHLD, signal.SIGCONT)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
TOO_LATE = 1.0


class Stopped(BaseException):
    """A signal that ends us while we have no command to pass it to."""

    def __init__(self, number: int) -> None:
        self.number = number


def do_run(options: argparse.Namespace) -> int:
    """Run a command while holding a lock."""
    name, words = _words(options)
    before = {number: signal.signal(number, _stop) for number in ENDING}
    try:
        with client_of(options) as client:
            return _under_lock(client, name, words, options)
    except Stopped as stopped:
        return codes.BY_SIGNAL + stopped.number
    except CannotRun as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return error.code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def _words(options: argparse.Namespace) -> tuple[str, list[str]]:
    words = list(options.words)
    name = None if options.name_from_command else (words.pop(0) if words else "")
    if words[:1] == ["--"]:
        words = words[1:]
    if options.shell is not None:
        if words:
            raise Usage("give a command or -c STR, not both")
        words = [os.environ.get("SHELL") or "/bin/sh", "-c", options.shell]
    if not words or name == "":
        raise Usage("run needs NAME and a command: holdfast run nightly -- ./report.sh")
    if words[0].startswith("-"):
        raise Usage(f"{words[0]!r} is taken for the command: options come before the name")
    _signal_on_loss(options)
    return (_name_of(words) if name is None else name), words


def _name_of(words: list[str]) -> str:
    import hashlib

    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()
    return f"command:{digest[:32]}"


def _signal_on_loss(options: argparse.Namespace) -> signal.Signals | None:
    if options.on_lost == "ignore":
        return None
    try:
        if options.pdeathsig.lower() != "none":
            signal_named(options.pdeathsig)
        return signal_named(options.on_lost)
    except (KeyError, ValueError):
        raise Usage(
            f"no such signal: --on-lost {options.on_lost} --pdeathsig {options.pdeathsig}"
        ) from None


def _under_lock(client: Client, name: str, words: list[str], options: argparse.Namespace) -> int:
    label = options.reason or " ".join(words)
    lock = client.lock(name, lease=options.ttl, renew=not options.no_renew, label=label)
    lease = Patience(lock, options).acquire()
    if lease is None:
        return 0 if options.skip_ok else int(options.conflict)
    try:
        return Job(client, lease, options).run(words)
    finally:
        _release(lease)


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except holdfast.LeaseLost as error:
        print(f"holdfast: {error}", file=sys.stderr)
    except holdfast.StoreError as error:
        print(f"holdfast: the lease ends by itself, for: {error}", file=sys.stderr)


class Job:
    """A command, watched until it ends."""

    def __init__(self, client: Client, lease: Lease, options: argparse.Namespace) -> None:
        self.client = client
        self.lease = lease
        self.options = options
        self.child = Child(None if options.no_tty else terminal())
        self.on_lost = _signal_on_loss(options)
        self.grace = min(options.kill_after, options.ttl / 3)
        self.began = time.monotonic()
        self.lost = False
        self.kill_at = float("inf")
        self.end_by = self.began + (options.max_hold or float("inf"))
        self.woken, self.wakes = os.pipe()

    def run(self, words: list[str]) -> int:
        """Start the command, see it through, and say how it ended."""
        os.set_blocking(self.wakes, False)
        os.set_blocking(self.woken, False)
        self.lease.on_lost(lambda lease: self._wake())
        handlers = {number: signal.signal(number, _note) for number in HANDLED}
        before = signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        try:
            self._start(words)
            self._watch()
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.child.take_terminal()
        return codes.LOST if self.lost else self.child.code()

    def _wake(self) -> None:
        try:
            os.write(self.wakes, b"\0")
        except BlockingIOError:
            return  # it is full of reasons to wake already

    def _start(self, words: list[str]) -> None:
        # Duplicates: the child closes, as every forked child does, what is the client's own.
        descriptors = [os.dup(fd) for fd in self.lease.bequeath()]
        try:
            env = child_env(self.client, self.lease, self.options)
            self.child.start(words, env, descriptors, self.options.pdeathsig, HANDLED)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _watch(self) -> None:
        while not self.child.poll():
            now = time.monotonic()
            self._look_at_lease(now)
            self._look_at_clock(now)
            select.select([self.woken], [], [], self._until_next(time.monotonic()))
            self._pass_on()
        if self.lost and self.on_lost is not None:
            self.child.send(signal.SIGKILL)

    def _look_at_lease(self, now: float) -> None:
        left = self.lease.remaining
        if self.lost or left > (self.grace if self.on_lost else 0.0):
            return
        self.lost = True
        if self.on_lost is None:
            return
        print(f"holdfast: {self._loss()}; ending the command", file=sys.stderr)
        self._end(self.on_lost, now + (left if left > 0 else min(self.grace, TOO_LATE)))

    def _loss(self) -> str:
        name = self.lease.name
        if self.lease.lost:
            return f"the lease on {name!r} is lost"
        if self.options.no_renew:
            return f"the fixed lease on {name!r} is nearly over"
        return f"the lease on {name!r} could not be renewed, and is nearly over"

    def _look_at_clock(self, now: float) -> None:
        if now >= self.end_by:
            self.end_by = float("inf")
            print(f"holdfast: {self.lease.name!r} was held too long", file=sys.stderr)
            self._end(signal.SIGTERM, now + self.options.kill_after)
        if now >= self.kill_at:
            self.kill_at = float("inf")
            self.child.send(signal.SIGKILL)

    def _end(self, number: signal.Signals, kill_at: float) -> None:
        self.child.send(number)
        self.child.send(signal.SIGCONT)
        self.kill_at = min(self.kill_at, kill_at)

    def _until_next(self, now: float) -> float | None:
        moments = [self.end_by - now, self.kill_at - now]
        if not self.lost:
            moments.append(self.lease.remaining - (self.grace if self.on_lost else 0.0))
        soonest = max(0.001, min(moments))
        return None if soonest == float("inf") else soonest

    def _pass_on(self) -> None:
        try:
            numbers = os.read(self.woken, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in FORWARDED:
                self.child.send(number)


def _note(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor has told already; only the default action is to be prevented."""


def child_env(client: Client, lease: Lease, options: argparse.Namespace) -> dict[str, str]:
    """What the command finds in its environment; the innermost lock comes last, and wins."""
    env = dict(os.environ)
    if _has_password(env.get("HOLDFAST_URL", "")):
        del env["HOLDFAST_URL"]
    stack = [env["HOLDFAST_STACK"]] if env.get("HOLDFAST_STACK") else []
    return env | {
        "HOLDFAST_NAME": lease.name,
        "HOLDFAST_TOKEN": str(lease.token),
        "HOLDFAST_FENCE": str(lease.token),
        "HOLDFAST_TTL": f"{options.ttl:g}",
        "HOLDFAST_HELD_SINCE": f"{time.time():.6f}",
        "HOLDFAST_BACKEND": client.url,
        "HOLDFAST_STACK": " ".join([*stack, lease.name]),
    }


def _has_password(url: str) -> bool:
    return "@" in url and ":" in url.partition("://")[2].rpartition("@")[0]
