"""Tasks of Celery that run one at a time: `single`.

    @app.task(bind=True, acks_late=True)
    @single("sync:{account}", store="redis://localhost:6379/0")
    def sync(self, account): ...

The lock is held while the task runs, in the process that runs it, and renewed there. It is released
when the task ends, is revoked or passes its soft time limit. If its process is killed (hard time
limit, lack of memory, lost machine), it is free when its lease ends. So nothing needs to be cleared
when a worker starts.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar

from celery import Task
from celery.exceptions import Ignore, Reject

from leaselock import AcquireTimeout, Client

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

# What becomes of a task whose lock is busy: it runs later, is dropped, or goes back to the broker.
IfBusy = Literal["retry", "ignore", "reject"]

_clients: dict[tuple[int, str], Client] = {}


def client_of(store: Any) -> Client:
    """The client of this process for a store. A forked worker makes one of its own."""
    key = (os.getpid(), str(store))
    client = _clients.get(key)
    if client is None:
        client = _clients.setdefault(key, Client(store, label="celery"))
    return client


def single(
    name: str,
    *,
    store: Any = None,
    busy: IfBusy = "retry",
    countdown: float = 30.0,
    timeout: float = 0.0,
    **options: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate the function of a bound task: it runs while it holds the lock *name*.

    *name* is a format string over the parameters of the task. *store* is that of `Client`, the
    default $LEASELOCK_URL. If another task holds the lock for longer than *timeout* seconds, the
    task is retried after *countdown* seconds, as often as its `max_retries` allows (None: without
    limit); or, as *busy* says, ignored or rejected (with `acks_late`: given back to the broker).
    The broker delivers a rejected task again at once: without a *timeout* of some seconds, it goes
    around hundreds of times a second while the lock is busy.
    *options* are those of `Client.lock`.
    """
    if busy not in ("retry", "ignore", "reject"):
        raise ValueError(f"busy is 'retry', 'ignore' or 'reject', not {busy!r:.80}")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

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
            lock = client_of(store).lock(name.format(**bound.arguments), timeout=timeout, **options)
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
    if busy == "ignore":
        raise Ignore(str(late))
    if busy == "reject":
        raise Reject(str(late), requeue=True)
    try:
        again = task.retry(countdown=countdown, throw=False)
    except task.MaxRetriesExceededError as error:
        raise type(error)(f"{error}: {late}") from None
    raise again
