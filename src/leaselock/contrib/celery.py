"""Tasks of Celery that run one at a time, `single`, or are queued once, `unique`.

    @app.task(bind=True, acks_late=True)
    @single("sync:{account}", store="redis://localhost:6379/0")
    def sync(self, account): ...

The lock is held while the task runs, in the process that runs it, and renewed there. It is released
when the task ends, is revoked or passes its soft time limit. If its process is killed (hard time
limit, lack of memory, lost machine), it is free when its lease ends. So nothing needs to be cleared
when a worker starts.

    @app.task(bind=True, base=unique("sync:{account}", store="redis://localhost:6379/0"))
    def sync(self, account): ...

A unique task is not queued while an equal one is queued or runs. The sender acquires the lock
`sync:5:queued` and detaches it, and its token travels with the message. The worker adopts it,
acquires `sync:5` for the run as `single` does, and releases `sync:5:queued`. So one of the two is
held from before the message is sent until the task has ended. None of them outlives a crash by more
than its bound.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, ParamSpec, TypeVar, get_args

from celery import Task, signals
from celery.exceptions import Ignore, Reject, Retry
from celery.utils import uuid

from leaselock import AcquireTimeout, Client, LeaseLost, NotHeld, StoreError
from leaselock._api.guard import Guard, checked_busy, no_lock
from leaselock._core.client.validation import checked_body

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, Unpack

    from leaselock import Holder, Lease, Lock, LockArguments

P = ParamSpec("P")
R = TypeVar("R")

# What becomes of a task whose lock is busy: it runs later, is dropped, or goes back to the broker.
IfBusy = Literal["retry", "skip", "reject"]
# What a call that sends a unique task does while an equal one is queued or runs.
IfQueued = Literal["skip", "raise"]

# Seconds for which the sender's lock lasts until the message is known to be sent.
SENDING = 30.0
# Seconds that a worker waits for a sender that looks whether the task runs.
LOOKING = 5.0
# The headers of a message: the name of its lock, and the token of the sender's lease on it.
NAME, TOKEN = "leaselock_name", "leaselock_token"
LABEL = "celery "

log = logging.getLogger("leaselock.contrib.celery")

_clients: dict[tuple[int, str, bool], Client] = {}
_hooks: list[Callable[[Client], object]] = []


def on_client(hook: Callable[[Client], object]) -> None:
    """Call *hook* with each client that this module makes, in each worker process: for metrics.

    >>> on_client(leaselock.contrib.prometheus.instrument)
    """
    _hooks.append(hook)
    for (pid, _, _), client in list(_clients.items()):
        if pid == os.getpid():
            hook(client)


def client_of(store: Any, *, runs: bool = False) -> Client:
    """The client of this process for a store. A forked worker makes one of its own.

    A worker whose pool has threads may send and run one message at the same time. Leases that one
    client adopts share a hold, and a release by one would wait for the other: so what *runs*
    messages has a client of its own.
    """
    key = (os.getpid(), str(store), runs)
    client = _clients.get(key)
    if client is None:
        made = Client(store, label="celery")
        client = _clients.setdefault(key, made)
        if client is made:
            for hook in _hooks:
                hook(client)
    return client


def single(
    name: str,
    *,
    store: Any = None,
    busy: IfBusy = "retry",
    countdown: float = 30.0,
    **options: Unpack[LockArguments],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate the function of a bound task: it runs while it holds the lock *name*. It goes below
    `@app.task`; above it TypeError is raised, because a worker would run the task without it.

    *name* is a format string over the parameters of the task. *store* is that of `Client`, the
    default $LEASELOCK_URL. If another task holds the lock for longer than *timeout* seconds (0),
    the task is retried after *countdown* seconds, as often as its `max_retries` allows (None: no
    limit); or, as *busy* says, skipped or rejected (with `acks_late`: given back to the broker).
    The broker delivers a rejected task again at once: without a *timeout* of some seconds, it goes
    around hundreds of times a second while the lock is busy.
    *options* are those of `Client.lock`.
    """
    checked_busy(busy, get_args(IfBusy), renamed="ignore")
    options.setdefault("timeout", 0.0)
    guard = Guard(no_lock, name, "wait", options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        checked_body(function, awaited=False, written="@single(...)")
        signature = guard.signature(function)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            task = bound.args[0] if bound.args else None
            if not isinstance(task, Task):
                raise TypeError(
                    f"{function.__qualname__} is no bound task, and could not be retried while "
                    f"{name!r} is busy: write @app.task(bind=True), and self as its first parameter"
                )
            lock = client_of(store).lock(guard.name(signature, args, kwargs), **guard.options)
            entered = False
            try:
                with lock:
                    entered = True
                    return function(*args, **kwargs)
            except AcquireTimeout as error:
                if entered:  # an error of the task, about a lock of its own
                    raise
                late = error
            _put_off(task, late, busy, countdown)

        return under_lock

    return decorate


def _put_off(task: Any, late: AcquireTimeout, busy: IfBusy, countdown: float) -> NoReturn:
    """Raise what makes Celery retry, ignore or reject the task; *late* says who holds the lock."""
    if busy == "skip":
        raise Ignore(str(late))
    if busy == "reject":
        raise Reject(str(late), requeue=True)
    try:
        again = task.retry(countdown=countdown, throw=False)
    except task.MaxRetriesExceededError as error:
        raise type(error)(f"{error}: {late}") from None
    raise again


def unique(
    name: str,
    *,
    store: Any = None,
    queued: float = 3600.0,
    busy: IfQueued = "skip",
    countdown: float = 5.0,
    base: type[Any] = Task,
    **options: Unpack[LockArguments],
) -> type[Any]:
    """Return the base class of a task that is not queued while an equal one is queued or runs.

    *name* is a format string over the parameters of the task: tasks of the same name are equal.
    *store* is that of `Client`, the default $LEASELOCK_URL: one whose leases can be detached (not
    ZooKeeper, and not the SQL protocols "row" and "advisory"). *queued* is how long, in seconds, a
    message keeps others out before it runs; the time until its `countdown` or `eta` is added. A
    message that waits for longer is still run, unless another one was sent meanwhile. *options* are
    those of `Client.lock`, for the lock *name*, which is held and renewed while the task runs.

    With *busy* "skip", sending an equal task sends nothing, and returns the AsyncResult of the one
    that is queued or runs; "raise" raises AcquireTimeout. A task whose end something waits for (a
    member of a chord, the next one of a chain, `link`) is always sent, and runs after the other.
    If the caller chose the task id, it is marked as revoked, so that waiting for it ends.

    A worker that gets a message while an equal task runs (after a crash, until the lease ends, or a
    second delivery of the same message) puts it off for *countdown* seconds. A task that is called
    directly, or eagerly, takes no lock. *base* is the class to inherit from.

    >>> @app.task(bind=True, base=unique("sync:{account}"), acks_late=True)
    ... def sync(self, account): ...
    >>> sync.delay(5).id == sync.delay(5).id    # the second one was not queued
    True
    """
    checked_busy(busy, get_args(IfQueued))
    for what, seconds in (("queued", queued), ("countdown", countdown)):
        if not seconds > 0:
            raise ValueError(f"{what} is a number of seconds above 0, not {seconds!r:.80}")
    options.setdefault("timeout", 0.0)
    options["owner"] = "lock"
    guard = Guard(no_lock, name, "wait", options)
    settings = _Unique(name, store, queued, busy, countdown, guard.options)
    # Celery's own `__call__` would begin a new request.
    wrapped = base.__call__ is not Task.__call__
    members = {"abstract": True, "leaselock": settings, "_base_is_called": wrapped}
    return type("UniqueTask", (_UniqueTask, base), members)


class _Unique(NamedTuple):
    """What the caller of `unique` chose."""

    template: str
    store: Any
    queued: float
    busy: IfQueued
    countdown: float
    options: dict[str, Any]

    def client(self) -> Client:
        return client_of(self.store)

    def running(self, name: str, task_id: str) -> Lock:
        """The lock that is held while the task runs."""
        return self.client().lock(name, **{"label": LABEL + task_id, **self.options})

    def waiting(self, name: str, task_id: str) -> Lock:
        """The lock that is held while the task is queued."""
        return self.client().lock(
            _queued(name), lease=SENDING, renew=False, owner="lock", label=LABEL + task_id
        )

    def adopted(self, name: str, token: int | None, *, runs: bool = False) -> Lease | None:
        """The lease of the sender; None if it has ended."""
        if token is None:
            return None
        try:
            return client_of(self.store, runs=runs).adopt(_queued(name), token)
        except NotHeld:
            return None

    def keep(self, name: str, token: int, seconds: float) -> None:
        """Let the lease of a message last for *seconds*, unless the message runs already."""
        with suppress(LeaseLost):
            if lease := self.adopted(name, token):
                lease.extend(seconds)
                lease.detach()

    def drop(self, name: str, token: int | None) -> None:
        """Release the lease of a message that will not run."""
        with suppress(LeaseLost):
            if lease := self.adopted(name, token):
                lease.release()


def _queued(name: str) -> str:
    return f"{name}:queued"


class _UniqueTask(Task):  # type: ignore[misc]
    """Sends and runs a unique task."""

    abstract = True
    leaselock: _Unique
    _base_is_called: bool
    _guard: Guard[None]

    def __new__(cls, *function: object) -> Self:
        """An instance for Celery; TypeError if `unique` is used as a decorator."""
        if function:
            raise TypeError(
                "unique(...) returns the base class of a task, and is no decorator: write "
                "@app.task(bind=True, base=unique(...)) above the function"
            )
        made: Self = super().__new__(cls)
        return made

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Check that the name needs no more than the parameters of the task."""
        super().on_bound(app)
        cls._guard = Guard(no_lock, cls.leaselock.template, "wait", {})
        # Of an unbound task, `run` is a static method; of a bound one it has `self`.
        cls._guard.signature(cls.run)

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        """Send the task, unless an equal one is queued or runs."""
        if self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, *rest, **options)
        signature = inspect.signature(self.run)
        name = self._guard.name(signature, tuple(args or ()), dict(kwargs or {}))
        chosen, again = task_id or uuid(), task_id is not None and task_id == self.request.id
        awaited = any(rest[1:2]) or any(options.get(word) for word in ("link", "chord", "chain"))
        lease, equal = self._enter(name, chosen, again)
        if lease is None and not (again or awaited):
            return self._not_sent(name, task_id, equal)
        headers = {NAME: name, TOKEN: lease.token if lease else None}
        options["headers"] = {**(options.get("headers") or {}), **headers}
        if lease is None:
            return super().apply_async(args, kwargs, chosen, *rest, **options)
        token = lease.token
        lease.detach()
        try:
            result = super().apply_async(args, kwargs, chosen, *rest, **options)
        except BaseException:
            # If the message was sent all the same, the worker acquires the lock itself.
            self.leaselock.drop(name, token)
            raise
        try:
            self.leaselock.keep(name, token, self._bound(options))
        except StoreError:
            log.exception("%s is sent; it keeps equal ones out for %s s only", name, SENDING)
        return result

    def _enter(self, name: str, task_id: str, again: bool) -> tuple[Lease | None, Holder | None]:
        """Acquire the lock of the queue; None, and the task that is queued or runs."""
        lock, running = self.leaselock.waiting(name, task_id), None
        lease = lock.try_acquire(timeout=LOOKING if again else 0.0)
        if lease is None:
            return None, lock.holder()
        # A task that sends itself again holds the other lock until it returns.
        if not again:
            try:
                running = self.leaselock.running(name, task_id).holder()
            except BaseException:
                lease.release()
                raise
            if running is not None:
                lease.release()
        return (None, running) if running is not None else (lease, None)

    def _not_sent(self, name: str, task_id: str | None, equal: Holder | None) -> Any:
        """What the caller gets for a task that was not sent."""
        label = (equal.label if equal else None) or ""
        by = f"{name!r} is queued or runs already: {equal or 'it has just ended'}"
        if self.leaselock.busy == "raise":
            raise AcquireTimeout(name, None, equal, detail=by)
        other = label.removeprefix(LABEL) if label.startswith(LABEL) else None
        if other is None or task_id not in (None, other):
            task_id = task_id or uuid()
            self.backend.mark_as_revoked(task_id, by, store_result=not self.ignore_result)
            return self.AsyncResult(task_id)
        return self.AsyncResult(other)

    def _bound(self, options: dict[str, Any]) -> float:
        """Seconds for which the message may wait."""
        return self.leaselock.queued + max(0.0, _seconds(options, "countdown", "eta") or 0.0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task under its lock, put it off, or ignore it."""
        request = self.request
        if request.called_directly or request.is_eager:
            return super().__call__(*args, **kwargs)
        headers = request.headers or {}
        name = headers.get(NAME)
        if name is None:  # sent by its name, by a program that does not have the task
            name = self._guard.name(inspect.signature(self.run), args, kwargs)
        settings = self.leaselock
        token = headers.get(TOKEN)
        queued = settings.adopted(name, token, runs=True) or self._queue_again(name)
        entered = False
        try:
            with settings.running(name, request.id):
                entered = True
                with suppress(LeaseLost):  # another delivery of this message has released it
                    queued.release()
                run = super().__call__ if self._base_is_called else self.run
                return run(*args, **kwargs)
        except AcquireTimeout as error:
            if entered:  # an error of the task, about a lock of its own
                raise
            late = error
        except BaseException:
            if not entered:
                # The message will not run: a time limit has ended the wait, for example.
                with suppress(LeaseLost):
                    queued.release()
            raise
        with suppress(LeaseLost):
            queued.extend(settings.queued + settings.countdown)
            queued.detach()
        try:
            ended = self._put_off(str(late), queued.token)
        except BaseException:
            settings.drop(name, queued.token)  # it was not sent
            raise
        raise ended

    def _queue_again(self, name: str) -> Lease:
        """The lock of the queue, for a message whose lease has ended; or ignore the message."""
        lock = self.leaselock.waiting(name, self.request.id)
        lease = lock.try_acquire(timeout=LOOKING)
        if lease is not None:
            return lease
        other, request = lock.holder(), self.request
        awaited = request.chord or request.chain or request.callbacks
        if other and other.detached and (other.remaining or 0.0) > SENDING and not awaited:
            why = f"an equal task is queued: {other}"
            if other.label != LABEL + request.id:  # otherwise it is a copy of that one
                self.backend.mark_as_revoked(request.id, why, store_result=not self.ignore_result)
            raise Ignore(why)
        raise self._put_off(f"an equal task is being queued: {other}", None)

    def _put_off(self, why: str, token: int | None) -> Retry:
        """Send this message again, which is no retry of the task; return what ends this run."""
        seconds, request = self.leaselock.countdown, self.request
        again = self.signature_from_request(request, countdown=seconds, retries=request.retries)
        again.options["headers"] = {**(again.options.get("headers") or {}), TOKEN: token}
        super().apply_async(again.args, again.kwargs, **again.options)
        return Retry(why, when=seconds)


def _seconds(options: dict[str, Any], relative: str, absolute: str) -> float | None:
    """Seconds from now on, of options that say it one way or the other."""
    moment = options.get(absolute)
    if isinstance(moment, str):
        moment = datetime.datetime.fromisoformat(moment)
    if isinstance(moment, datetime.datetime):
        return moment.timestamp() - time.time()
    seconds: float | None = options.get(relative)
    return seconds


@signals.task_revoked.connect  # type: ignore[untyped-decorator]
def _revoked(sender: Any, request: Any, **_: Any) -> None:
    """Release the lock of a message that a worker drops: its task was revoked, or has expired."""
    headers = getattr(request, "headers", None) or {}
    if isinstance(sender, _UniqueTask) and NAME in headers:
        sender.leaselock.drop(headers[NAME], headers.get(TOKEN))
