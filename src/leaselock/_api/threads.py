# Generated from aio.py by scripts/generate: edit that file, and run `make format`.
"""The public interface for threads. Every method is a docstring and one statement."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from leaselock._api.connect import connect
from leaselock._api.forgotten import end_forgotten
from leaselock._api.guard import Guard
from leaselock._api.log import attach
from leaselock._backends import stores_with
from leaselock._core.client.client_core import ClientCore
from leaselock._core.client.lease_handle import NO_LEASE, if_granted
from leaselock._core.client.lease_reference import UnderWay
from leaselock._core.client.validation import checked_body, lock_of_mode, no_attribute
from leaselock._core.client.watching import or_stop
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Literal, Never, Unpack

    from leaselock._api.connect import Store
    from leaselock._api.guard import IfBusy, LockArguments
    from leaselock._core.client.deadlocks import Deadlock
    from leaselock._core.client.election import Candidacy, Term
    from leaselock._core.client.events import Event
    from leaselock._core.client.inspection import Holder, LockChange, LockInfo, Waiter
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex
    from leaselock._core.client.timing import OnOutage
    from leaselock._core.client.together import Together, TogetherHandle
    from leaselock._core.client.watching import Watcher
    from leaselock._core.contract.backend import Finding, Mode

P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A client of a lock store, for threads.

    *store* is a URL such as ``redis://localhost:6379/0`` or ``sqlite:///``; or the path of a file;
    or a client of redis-py, valkey-py, kazoo, SQLAlchemy or boto3, whose settings are read and
    which is not used; or a list of Redis servers, for Redlock. The default is ``$LEASELOCK_URL``,
    or the URL in the file ``$LEASELOCK_URL_FILE``, else an embedded SQLite file. *protocol* is the
    default of `lock`, and the one of `locks`, `break_lock` and `adopt`. *prefix* begins the keys of
    locks in Redis (default: the one in the URL, else ``lock:``). *label* is a short text shown to
    users who inspect what this client holds; with *label_from* "caller", labels also say which
    module, function and line of the program asked for the lock. *op_timeout* limits the time for
    one answer of the store, in seconds. An acquire that waits longer than *deadlock_timeout*
    seconds looks for a deadlock, and raises DeadlockDetected in its youngest member; None does not
    look.

    The constructor does not connect. Use the client as a context manager, or call `close`. Python
    ends at SIGTERM without either, and what is held then ends with its lease: see
    `exit_on_sigterm`. Raises ValueError or TypeError if *store* names no store, ImportError if its
    client library is missing.

    >>> with leaselock.Client("redis://localhost:6379/0") as client:
    ...     with client.lock("order:5", timeout=10) as lease:
    ...         charge(order, fence=lease.token)
    """

    def __init__(
        self,
        store: Store = None,
        *,
        protocol: str | None = None,
        prefix: str | None = None,
        label: str | None = None,
        op_timeout: float = 5.0,
        deadlock_timeout: float | None = None,
        label_from: Literal["caller"] | None = None,
        **unknown: Never,
    ) -> None:
        opened = connect(
            store, now, protocol=protocol, prefix=prefix, aio=Threads.awaited, **unknown
        )
        self._driver = Threads(opened.parts)
        self._core = ClientCore(
            self._driver,
            opened.backend,
            protocol=opened.protocol,
            label=label,
            op_timeout=op_timeout,
            store=opened.shown,
            notes=opened.notes,
            deadlock_timeout=deadlock_timeout,
            label_from=label_from,
            able=stores_with,
        )
        self._driver.serve(self._core)
        self._url = opened.shown
        self._driver.typed = opened.typed or opened.shown
        attach(self._core, opened.shown)

    @property
    def url(self) -> str:
        """The URL of the store, without its secrets."""
        return self._url

    def lock(
        self,
        name: str,
        *,
        lease: float = 30.0,
        renew: bool = True,
        timeout: float | None = None,
        reentrant: bool = True,
        protocol: str | None = None,
        label: str | None = None,
        owner: Literal["lock"] | None = None,
        min_hold: float = 0.0,
        max_hold: float | None = None,
        on_outage: OnOutage = "fail",
        outage_timeout: float | None = None,
        **unknown: Never,
    ) -> Lock:
        """Return the lock of that name. The store is not asked.

        *lease* is the length of a lease in seconds: the lock is freed this long after its holder
        stopped renewing it. It is renewed until the release; with *renew* false it ends after
        *lease* seconds. *timeout* limits the wait, in seconds: None waits without limit, 0 does not
        wait. The owner may acquire the lock again, unless *reentrant* is false: the running task
        where an event loop runs in this thread, otherwise the thread. With *owner* "lock" the lock
        object is the owner instead: any thread may release it, and none may acquire it again before
        that. *protocol* is one of the store's protocols (default: the one in the URL, else the
        store's first). *label* is a short text that is shown to users.

        With *min_hold* the lock stays taken for that many seconds after its grant, even if it is
        released before or its holder dies: it is *cooling down*. With *max_hold* it is renewed for
        that many seconds at most, and is lost then.

        While the store cannot be reached, *on_outage* "fail" raises StoreError, and "wait" tries
        for *outage_timeout* seconds before, even beyond *timeout*. Raises InvalidName, ValueError
        or TypeError for what cannot be, here or in this store.
        """
        return Lock(
            self,
            self._core.mutex(
                name,
                lease=lease,
                renew=renew,
                timeout=timeout,
                reentrant=reentrant,
                protocol=protocol,
                label=label,
                owner=owner,
                min_hold=min_hold,
                max_hold=max_hold,
                on_outage=on_outage,
                outage_timeout=outage_timeout,
                **unknown,
            ),
        )

    @overload
    def guard(
        self,
        name: str,
        *,
        busy: Literal["wait", "raise"] = "wait",
        **options: Unpack[LockArguments],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def guard(
        self, name: str, *, busy: Literal["skip"], **options: Unpack[LockArguments]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def guard(self, name: str, *, busy: IfBusy = "wait", **options: Unpack[LockArguments]) -> Any:
        """Decorate a function that runs under the lock *name*, which its arguments complete.

        *name* is a format string over the parameters of the function: "bill:{user_id}". *options*
        are those of `lock`. While another owner holds the lock, a call waits, at most for *timeout*
        seconds; with *busy* "raise" it raises AcquireTimeout; with "skip" it returns None, and the
        function does not run. These two wait only if a *timeout* in seconds is given.

        >>> @client.guard("bill:{user_id}", busy="skip")
        ... def bill(user_id): ...
        """
        return functools.partial(_guarded, Guard(self.lock, name, busy, options))

    def rwlock(
        self,
        name: str,
        *,
        lease: float = 30.0,
        renew: bool = True,
        timeout: float | None = None,
        reentrant: bool = True,
        protocol: str | None = None,
        label: str | None = None,
        max_hold: float | None = None,
        on_outage: OnOutage = "fail",
        outage_timeout: float | None = None,
        **unknown: Never,
    ) -> RWLock:
        """Return the read/write lock of that name. The options are those of `lock`.

        `lock` of the same name is its write side. Raises ValueError where the store or protocol
        cannot share a lock; the message names those that can.
        """
        return RWLock(
            self,
            self._core.rwlock(
                name,
                lease=lease,
                renew=renew,
                timeout=timeout,
                reentrant=reentrant,
                protocol=protocol,
                label=label,
                max_hold=max_hold,
                on_outage=on_outage,
                outage_timeout=outage_timeout,
                **unknown,
            ),
        )

    def semaphore(
        self,
        name: str,
        permits: int | None,
        *,
        numbered: bool = False,
        lease: float = 30.0,
        renew: bool = True,
        timeout: float | None = None,
        protocol: str | None = None,
        label: str | None = None,
        min_hold: float = 0.0,
        max_hold: float | None = None,
        on_outage: OnOutage = "fail",
        outage_timeout: float | None = None,
        **unknown: Never,
    ) -> Semaphore:
        """Return the semaphore of that name. It has *permits* permits; None takes the number that
        the store has. With *numbered* each permit that is held has a number: the lowest, from 0 on,
        that no other holder has (`Lease.slot`). After a crash a number is free when the hold
        ends. Clients may differ in *numbered*. With *min_hold* a permit stays taken for that many
        seconds after its grant, even if it is released before or its holder dies: at most *permits*
        grants in any such period. The other options are those of `lock`.

        While the name is in use, every client must state the same number: acquiring raises
        LimitMismatch otherwise. Raises ValueError where the store or protocol has no semaphores;
        the message names those that have.
        """
        return Semaphore(
            self,
            self._core.semaphore(
                name,
                permits,
                numbered=numbered,
                lease=lease,
                renew=renew,
                timeout=timeout,
                protocol=protocol,
                label=label,
                min_hold=min_hold,
                max_hold=max_hold,
                on_outage=on_outage,
                outage_timeout=outage_timeout,
                **unknown,
            ),
        )

    def lock_all(
        self,
        locks: Iterable[str | Lock],
        *,
        timeout: float | None = None,
        lease: float = 30.0,
        renew: bool = True,
        protocol: str | None = None,
        label: str | None = None,
        max_hold: float | None = None,
        on_outage: OnOutage = "fail",
        outage_timeout: float | None = None,
        **unknown: Never,
    ) -> LockAll:
        """Return several locks that are acquired together, all or none, within one *timeout*.

        Each is a name or a lock of this client, such as the read side of a read/write lock or a
        semaphore, of which one permit is acquired. They are acquired in the order of their names,
        so that two callers cannot wait for each other. One that is named twice is acquired once, in
        the stronger mode; the permits of a semaphore add up. The other options are those of `lock`,
        for names.
        """
        return LockAll(
            self,
            self._core.lock_all(
                locks,
                timeout,
                lease=lease,
                renew=renew,
                reentrant=True,
                protocol=protocol,
                label=label,
                max_hold=max_hold,
                on_outage=on_outage,
                outage_timeout=outage_timeout,
                **unknown,
            ),
        )

    def once(
        self,
        name: str,
        *,
        every: float,
        times: int = 1,
        align: bool = False,
        on_error: Literal["keep", "retry"] = "keep",
        lease: float = 30.0,
        protocol: str | None = None,
        label: str | None = None,
        max_hold: float | None = None,
        on_outage: OnOutage = "fail",
        outage_timeout: float | None = None,
    ) -> Lease | None:
        """Return a lease at most *times* times per period in the whole fleet, otherwise None.

        After a grant the next one is at least *every* seconds later, by the store's clock, even if
        the lease is released or its holder dies. With *align* the periods are those of the store's
        clock, such as quarters of an hour for 900. All callers must state the same *times*, or get
        LimitMismatch; several need a store with semaphores. The call does not wait.

        With *on_error* "keep" a grant uses up the turn. With "retry" only the body of a `with` does
        that ends without an exception: an exception, `release`, a lost lease, and the death of the
        process when the lease ends give the turn back. If the store does not confirm the end of the
        work, LeaseLost is raised, and the work may be done again.

        A run that takes longer than a period keeps its lease, at most for *max_hold* seconds.
        *on_outage* and *outage_timeout* are those of `lock`. Raises ValueError where `lock` refuses
        *min_hold*.

        >>> if lease := client.once("report", every=900):
        ...     with lease: report()
        """
        return if_granted(
            self._driver.run(
                self._core.once(
                    name,
                    every,
                    align,
                    times,
                    on_error,
                    lease=lease,
                    protocol=protocol,
                    label=label,
                    max_hold=max_hold,
                    on_outage=on_outage,
                    outage_timeout=outage_timeout,
                )
            ),
            functools.partial(Lease, self),
        )

    def election(
        self,
        name: str,
        *,
        lease: float = 15.0,
        protocol: str | None = None,
        label: str | None = None,
        max_hold: float | None = None,
    ) -> Election:
        """Return the election of that name, in which one client at a time leads. Asks no store.

        The leader holds the lock *name* with a lease of *lease* seconds, which is renewed. *label*
        is a short text shown to users who ask who leads. With *max_hold* a term lasts for that many
        seconds at most: then its lease is lost, and clients campaign for the next one. Raises
        InvalidName, ValueError or TypeError as `lock` does.

        >>> election = client.election("scheduler", label="web-3")
        >>> election.run(schedule)            # calls schedule(lease) while this client leads
        """
        return Election(
            self,
            self._core.election(
                name, lease=lease, protocol=protocol, label=label, max_hold=max_hold
            ),
        )

    def adopt(self, name: str, token: int) -> Lease:
        """Continue a lease that was detached, by its fencing token.

        Return the lease; raise NotHeld if there is none with that *token*. It is not renewed: call
        `extend`. Several clients may adopt it: the first release frees the lock, and the others get
        LeaseLost. Two leases of one client share it, as nested acquisitions do. This method,
        `locks` and `break_lock` see the locks of the client's default protocol.
        """
        return Lease(self, self._driver.run(self._core.adopt(name, token)))

    def locks(self, pattern: str = "*", *, walk: bool = False) -> list[LockInfo]:
        """List the locks that are held or waited for and whose names match the shell *pattern*.

        A Redis store lists the locks in its index: those of leaselock, and those of other programs
        that were found before. With *walk*, all keys of the servers are looked at, which costs them
        about a second for each million. The other stores always list all locks.
        """
        return self._driver.run(self._core.locks(pattern, walk))

    @property
    def indexed(self) -> bool:
        """Whether `locks` reads an index, which the locks of other programs may be missing from.

        >>> client.indexed
        False
        """
        return self._core.indexed

    def break_lock(
        self, name: str, *, token: int | None = None, message: str | None = None
    ) -> Holder | None:
        """End the hold of a lock by force; return its holder, or None if the lock was free.

        With *token*, only the hold with that token is ended, and NotHeld is raised if there is
        another one. The holder learns of it at its next renewal. Until then it works on, and only
        its fencing token can stop it.

        Its loss has the *message* as its reason, where leases can be detached: not on ZooKeeper,
        nor with the protocols "row" and "advisory".
        """
        return self._driver.run(self._core.break_lock(name, token, message))

    def deadlocks(self) -> list[Deadlock]:
        """Return the deadlocks of the store: cycles of owners, each of which waits for the next.

        A deadlock is a tuple of `WaitEdge` objects, with *name*, *waiter* and *holder*. It begins
        with the youngest wait: break the lock that its waiter holds, or end its process. Threads
        and threads of any process and host are found, if their clients use this protocol.
        """
        return self._driver.run(self._core.deadlocks())

    def doctor(self) -> list[Finding]:
        """Examine the configuration of the store; return what was found."""
        return self._driver.run(self._core.doctor())

    def setup(self, *, dry_run: bool = False) -> list[str]:
        """Create what the store needs, such as tables; return the statements that were executed.

        With *dry_run* nothing is executed, and the statements are those that would be. Empty where
        the store needs nothing. Calling it again does no harm.
        """
        return self._driver.run(self._core.setup(dry_run))

    def gc(
        self,
        report: Callable[[int], object] | None = None,
        *,
        kept: Callable[[str], object] | None = None,
    ) -> int:
        """Remove records that are no longer needed; return how many.

        It works in small steps, and leaves the store to others between them. *report* is called
        with the number so far after each step; *kept* with a text for each kind of record that
        stays for a time, such as the token counters of a Redis server.
        """
        return self._driver.run(self._core.gc(report, kept))

    def on_event(self, listener: Callable[[Event], object]) -> None:
        """Call *listener* with each Event of this client: acquire, grant, renewal, loss, release.

        It is called by the thread or task to which the event happens, and must be quick. An
        exception of it is reported and changes nothing.
        """
        self._core.listen(listener)

    def annotate(self, note: Callable[[], str]) -> None:
        """Store what *note* returns with each acquire; `Holder.note` and `Waiter.note` show it.

        It is called before the first request of an acquire, by the same thread or task: to store
        the identity of a trace or a request, for example. At most 255 bytes are kept.
        """
        self._core.annotate(note)

    def close(self) -> None:
        """Release all locks, end all waits, and disconnect from the store."""
        self._driver.end(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        end_forgotten(self)

    def __repr__(self) -> str:
        return f"<leaselock.Client {self._url}{self._core.state()}>"


class Lock:
    """A lock, identified by its name in the store. `Client.lock` makes it.

    The thread that acquires it owns it, or the task where an event loop runs in the thread; a wait
    for another task of the same loop raises WouldDeadlock. As a context manager it is acquired for
    the body:

    >>> with client.lock("order:5", timeout=10) as lease:
    ...     charge(order, fence=lease.token)

    AcquireTimeout is raised if the time passes first, LeaseLost at the end of the body if the lease
    was lost. A decorated function runs under the lock:

    >>> @client.lock("report")
    ... def report(): ...
    """

    def __init__(self, client: Client, mutex: Mutex) -> None:
        self._client = client
        self._driver = client._driver
        self._mutex = mutex
        mutex.kept_by_caller = True
        self._lease = functools.partial(Lease, client)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._mutex.name

    def acquire(self, *positional: Never, timeout: float | None = None, **unknown: Never) -> Lease:
        """Acquire the lock and return a lease; AcquireTimeout when *timeout* seconds have passed.

        0 does not wait. Without *timeout* that of the lock is used. Raises StoreError if the store
        does not answer, LeaseLost if this thread has lost the lock and not released it yet,
        AlreadyHeld if it holds it and *reentrant* is false.

        >>> lease = client.lock("order:5").acquire(timeout=2.5)
        >>> with lease: ...
        """
        return self._driver.run(
            self._mutex.acquire(timeout, positional=positional, **unknown), self._lease
        )

    def try_acquire(
        self, *positional: Never, timeout: float | None = 0.0, **unknown: Never
    ) -> Lease | None:
        """Acquire the lock and return a lease, or None if another owner holds it.

        It waits for *timeout* seconds at most, by default not at all; None waits without limit. The
        lock's own timeout does not apply. Otherwise as `acquire`.

        >>> if lease := client.lock("order:5").try_acquire():
        ...     with lease: ...
        """
        return if_granted(
            self._driver.run(self._mutex.try_acquire(timeout, positional=positional, **unknown)),
            self._lease,
        )

    def cancel(self) -> int:
        """End every `acquire` that waits through this object, and every `upgrade` of its leases,
        with AcquireCancelled; return how many.

        It may be called from any thread or task. The lock can be acquired again afterwards.
        """
        return self._driver.ask(self._mutex.cancel)

    def release(self) -> None:
        """Release what this thread acquired last through this lock; NotHeld if it holds nothing."""
        self._driver.run(self._mutex.release())

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._driver.run(self._mutex.holder()) is not None

    def owned(self) -> bool:
        """Return whether this thread has a valid lease of the lock. The store is not asked."""
        return self._mutex.owned()

    def holder(self) -> Holder | None:
        """Return the holder of the lock, the oldest of several, or None."""
        return self._driver.run(self._mutex.holder())

    def holders(self) -> list[Holder]:
        """Return all holders of the lock, the oldest first."""
        return self._driver.run(self._mutex.holders())

    def waiters(self) -> list[Waiter]:
        """Return the waiters for the lock, in the order in which they will be served."""
        return self._driver.run(self._mutex.waiters())

    def watch(self) -> Changes:
        """Return an iterator over the holders of the lock: the present one, and each change.

        It waits for the next change and ends when the client is closed. Where the store sends
        notifications, it does not poll.

        >>> for change in client.lock("order:5").watch():
        ...     print(change.holder or "free")
        """
        return Changes(self._client, self._mutex.watch())

    def __enter__(self) -> Lease:
        return self._driver.run(self._mutex.enter(sys._getframe(1)), self._lease)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # First of all, in one assignment: whatever interrupts the rest, the lease has ended.
        lease = self._mutex.kept.get(frame := sys._getframe(1), NO_LEASE)
        while lease.reference.left_by and lease.outer:  # an end that was interrupted
            lease = lease.outer
        lease.reference.left_by = weakref.ref(ending := UnderWay())
        leaving = self._mutex.leave(exception, frame, ending)
        del ending  # the traceback of what interrupts this has the frame
        return self._driver.run(leaving)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate *function* to run under the lock; TypeError if its body would run later."""
        checked_body(function, awaited=Threads.awaited, written="@client.lock(...)")

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return under_lock

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name):
            """Say what other libraries call so."""
            no_attribute(self, name)

    def __repr__(self) -> str:
        return f"<leaselock.Lock {self.name!r} on {self._driver.store}{self._mutex.state()}>"


class Election:
    """The election of one leader among all clients that campaign for a name.

    `Client.election` makes it. The leader is the holder of the lock of that name, its fencing token
    is its term. When it resigns, exits or is terminated, the next one leads at once; when it dies,
    at the end of its lease, or as soon as the store notices its death.

    >>> election = client.election("scheduler")
    >>> with election.lead() as lease:
    ...     run_due_jobs(fence=lease.token)
    """

    def __init__(self, client: Client, candidacy: Candidacy) -> None:
        self._client = client
        self._driver = client._driver
        self._candidacy = candidacy

    @property
    def name(self) -> str:
        """The name of the election, and of its lock."""
        return self._candidacy.mutex.name

    def lead(self) -> Campaign:
        """Campaign, and lead to the end of the body: a context manager whose value is the lease.

        It waits without limit. LeaseLost is raised at the end of the body if the lease was lost or
        another thread has resigned, AlreadyHeld at its begin if this thread leads already.
        """
        return Campaign(self._client, self._candidacy.campaign())

    def run(self, function: Callable[[Lease], R]) -> R | None:
        """Call *function* with the lease whenever this client leads; return its result.

        A thread cannot be stopped: the function must end when `lease.lost` is true, or call
        `lease.ensure`. It is then called again when this client leads again. An exception of it
        ends the leadership and is raised. None is returned when the client is closed. A store that
        is out of reach later is waited for without limit; StoreError is raised if it does not
        answer at first, or refuses for another reason. In the main thread, SIGTERM raises
        SystemExit while this runs, unless the program handles the signal itself, so the next leader
        need not wait.

        >>> def schedule(lease):
        ...     while not lease.lost:
        ...         run_due_jobs(fence=lease.token)
        ...         time.sleep(1)
        >>> election.run(schedule)
        """
        return cast(
            "R | None",
            self._driver.run(self._candidacy.run(function, functools.partial(Lease, self._client))),
        )

    def leader(self) -> Holder | None:
        """Return the present leader, or None."""
        return self._driver.run(self._candidacy.leader())

    def resign(self) -> bool:
        """Give up the leadership of this client; return whether it led. The next one leads at once.

        From the thread that leads, the lease is released, and the body goes on without it. From
        another thread, the lease is lost from now on: the body must find that out by `lease.lost`.
        """
        return self._driver.run(self._candidacy.resign())

    def watch(self) -> Changes:
        """Return an iterator over the leaders: the present one, and each change.

        It ends when the client is closed.

        >>> for change in election.watch():
        ...     print(change.holder or "no leader")
        """
        return Changes(self._client, self._candidacy.watch())

    def __repr__(self) -> str:
        return f"<leaselock.Election {self.name!r} on {self._driver.store}>"


class Campaign:
    """One campaign and the term that follows, as a context manager. `Election.lead` makes it.

    >>> with election.lead() as lease:
    ...     run_due_jobs(fence=lease.token)
    """

    def __init__(self, client: Client, term: Term) -> None:
        self._client = client
        self._driver = client._driver
        self._term = term

    def __enter__(self) -> Lease:
        return Lease(self._client, self._driver.run(self._term.begin()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._driver.run(self._term.end(exception))

    def __repr__(self) -> str:
        return (
            f"<leaselock.Campaign for {self._term.candidacy.mutex.name!r} on {self._driver.store}>"
        )


class Changes:
    """The changes of a lock, one after another. `watch` makes it.

    A change that was undone before the next step is not reported: each step reports the present
    state. StoreError is raised when the store is silent for 30 seconds; the iteration may go on.

    >>> for change in client.lock("order:5").watch():
    ...     print(change.holder or "free")
    """

    def __init__(self, client: Client, watcher: Watcher) -> None:
        self._client = client
        self._driver = client._driver
        self._watcher = watcher

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LockChange:
        return or_stop(self._driver.run(self._watcher.next()), StopIteration)

    def __repr__(self) -> str:
        return f"<leaselock.Changes of {self._watcher.name!r} on {self._driver.store}>"


class RWLock:
    """A read/write lock, identified by its name in the store. `Client.rwlock` makes it.

    `read` is shared by any number of readers, `write` is exclusive. `update` is held by one beside
    readers, and can become exclusive: `Lease.upgrade`. Each is a `Lock`. A writer that waits keeps
    later readers waiting. The holder of `write` may acquire `read`, and keeps it when `write` is
    released.

    >>> catalog = client.rwlock("catalog")
    >>> with catalog.read:
    ...     show(load())
    >>> with catalog.write as lease:
    ...     save(change(load()), fence=lease.token)
    """

    def __init__(self, client: Client, mutexes: dict[Mode, Mutex]) -> None:
        self._client = client
        self._driver = client._driver
        self._locks = {mode: Lock(client, mutex) for mode, mutex in mutexes.items()}

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.read.name

    @property
    def read(self) -> Lock:
        """The shared side."""
        return self._locks["shared"]

    @property
    def write(self) -> Lock:
        """The exclusive side."""
        return self._locks["exclusive"]

    @property
    def update(self) -> Lock:
        """The side that can be upgraded; ValueError where the protocol does not have it."""
        return lock_of_mode(self._locks, "update", stores_with)

    def locked(self) -> bool:
        """Return whether the lock is held, on any side."""
        return self.read.locked()

    def holder(self) -> Holder | None:
        """Return the oldest holder, or None."""
        return self.read.holder()

    def holders(self) -> list[Holder]:
        """Return all holders, the oldest first."""
        return self.read.holders()

    def waiters(self) -> list[Waiter]:
        """Return the waiters, in the order of their arrival."""
        return self.read.waiters()

    def watch(self) -> Changes:
        """Return an iterator over the holders in all modes, as `Lock.watch` does."""
        return self.read.watch()

    def __repr__(self) -> str:
        return f"<leaselock.RWLock {self.name!r} on {self._driver.store}>"


class Semaphore(Lock):
    """A semaphore: a number of permits, of which each holder has one or more.
    `Client.semaphore` makes it.

    A thread may acquire permits several times; each grant is a lease of its own. The token of a
    lease identifies it, but does not fence. A claim for many permits is not overtaken by later ones
    for few.

    >>> gpus = client.semaphore("gpus", permits=4, numbered=True)
    >>> with gpus as lease:
    ...     train(device=lease.slot)
    >>> if lease := gpus.try_acquire(2, timeout=60):
    ...     with lease: ...
    """

    def acquire(  # type: ignore[override]  # its number of permits has a position
        self, permits: int = 1, *, timeout: float | None = None, **unknown: Never
    ) -> Lease:
        """Acquire *permits* at once and return a lease; AcquireTimeout after *timeout* seconds.

        Raises ValueError for more permits than there are, LimitMismatch if the semaphore in the
        store has another number of them. Otherwise as `Lock.acquire`.
        """
        return self._driver.run(self._mutex.acquire(timeout, permits, **unknown), self._lease)

    def try_acquire(  # type: ignore[override]  # as above
        self, permits: int = 1, *, timeout: float | None = 0.0, **unknown: Never
    ) -> Lease | None:
        """Acquire *permits* at once and return a lease, or None if they are not free.

        It waits for *timeout* seconds at most, by default not at all. Otherwise as `acquire`.
        """
        return if_granted(
            self._driver.run(self._mutex.try_acquire(timeout, permits, **unknown)),
            self._lease,
        )

    def locked(self) -> bool:
        """Return whether no permit is free."""
        return self.available() == 0

    def available(self) -> int:
        """Return how many permits are not held."""
        return self._driver.run(self._mutex.available())

    def resize(self, permits: int) -> None:
        """Change the number of permits. No holder loses any; none is granted until the sum fits.

        Waiters for more than that fail with LimitMismatch. Other clients must state the new number.
        """
        self._driver.run(self._mutex.resize(permits))

    def __repr__(self) -> str:
        return f"<leaselock.Semaphore {self.name!r} on {self._driver.store}{self._mutex.state()}>"


class LockAll:
    """Several locks that are acquired together, all or none. `Client.lock_all` makes it.

    >>> with client.lock_all(["account:1", "account:2"], timeout=5) as leases:
    ...     transfer()
    """

    def __init__(self, client: Client, together: Together) -> None:
        self._client = client
        self._driver = client._driver
        self._together = together
        together.keep_by_caller()
        self._leases = functools.partial(Leases, client)

    def acquire(self, *positional: Never, timeout: float | None = None, **unknown: Never) -> Leases:
        """Acquire all locks and return their leases; AcquireTimeout after *timeout* seconds.

        Raises as `Lock.acquire` does. If it raises, nothing is held.
        """
        return self._driver.run(
            self._together.acquire(timeout, positional=positional, **unknown), self._leases
        )

    def try_acquire(
        self, *positional: Never, timeout: float | None = 0.0, **unknown: Never
    ) -> Leases | None:
        """Acquire all locks and return their leases, or None if one of them is not free.

        It waits for *timeout* seconds at most, by default not at all. If it raises or returns None,
        nothing is held.
        """
        return if_granted(
            self._driver.run(self._together.try_acquire(timeout, positional=positional, **unknown)),
            self._leases,
        )

    # These two are the same for threads as those of `Lock`.

    def __enter__(self) -> Leases:
        return self._driver.run(self._together.enter(sys._getframe(1)), self._leases)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leases = self._together.kept.get(frame := sys._getframe(1), NO_LEASE)
        while leases.group.left_by and leases.outer:  # as in `Lock`
            leases = leases.outer
        leases.group.left_by = weakref.ref(ending := UnderWay())
        leaving = self._together.leave(exception, frame, ending)
        del ending
        return self._driver.run(leaving)

    def __repr__(self) -> str:
        return f"<leaselock.LockAll {self._together.names()} on {self._driver.store}>"


class Leases:
    """The leases of several locks, which end together. `LockAll.acquire` returns it.

    >>> leases = client.lock_all(["a", "b"]).acquire()
    >>> leases.ensure()                     # raises LeaseLost if any of them is lost
    >>> leases.release()
    """

    def __init__(self, client: Client, handle: TogetherHandle) -> None:
        self._client = client
        self._driver = client._driver
        self._handle = handle
        handle.keep()

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The lease of each lock, in the order in which they were acquired."""
        return tuple(Lease(self._client, handle) for handle in self._handle.handles)

    @property
    def remaining(self) -> float:
        """Seconds for which all leases stay valid without another renewal."""
        return self._handle.remaining()

    @property
    def lost(self) -> bool:
        """Whether any of the leases is not valid any more although it was not released."""
        return self._handle.lost()

    def ensure(self) -> None:
        """Raise LeaseLost unless all leases are valid, NotHeld after the release."""
        self._handle.ensure()

    def extend(self, seconds: float | None = None) -> None:
        """Make every lease end no sooner than *seconds* from now, by default the length of its
        lease; LeaseLost if one was lost.
        """
        self._driver.run(self._handle.extend(seconds))

    def release(self) -> None:
        """Release all locks, the last one first; LeaseLost if any lease was lost."""
        self._driver.run(self._handle.release())

    def on_lost(self, callback: Callable[[Leases], object]) -> None:
        """Call *callback* with this object when the first of its leases is lost."""
        self._driver.run_step(
            self._handle.on_lost, callback, self, functools.partial(Leases, self._client)
        )

    def __enter__(self) -> Self:
        return self._driver.run(self._handle.begin_body(self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.group.left_by = weakref.ref(ending := UnderWay())
        leaving = self._handle.leave(exception, ending)
        del ending
        self._driver.run(leaving)

    def __repr__(self) -> str:
        return f"<leaselock.Leases {self._handle.names()} on {self._driver.store}>"


class Lease:
    """One grant of a lock, valid while it is renewed. `Lock.acquire` returns it.

    >>> lease = client.lock("order:5").acquire()
    >>> lease.ensure()                      # raises LeaseLost if it is not valid any more
    >>> charge(order, fence=lease.token)
    >>> lease.release()
    """

    def __init__(self, client: Client, handle: LeaseHandle) -> None:
        self._client = client
        self._driver = client._driver
        self._handle = handle
        handle.keep()

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._handle.hold.claim.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this name."""
        return self._handle.hold.token

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of its permits, in order; empty unless the semaphore is numbered."""
        return self._handle.hold.slots

    @property
    def slot(self) -> int:
        """The number of its permit, from 0 on; of several the lowest.

        No other holder has it while this lease is valid. Raises ValueError unless the semaphore is
        numbered: ``client.semaphore("gpus", permits=4, numbered=True)``.
        """
        return self._handle.slot()

    @property
    def remaining(self) -> float:
        """Seconds for which the lease stays valid without another renewal."""
        return self._handle.remaining()

    @property
    def renewals(self) -> int:
        """How often the lease was renewed or extended since it was granted."""
        return self._handle.hold.renewals

    @property
    def lost(self) -> bool:
        """Whether the lease is not valid any more although it was not released."""
        return self._handle.lost()

    def ensure(self) -> None:
        """Raise LeaseLost unless the lease is valid, NotHeld after its release; ask no store."""
        self._handle.ensure()

    def extend(self, seconds: float | None = None) -> None:
        """Make the lease end no sooner than *seconds* from now, by default its length; LeaseLost if
        it was lost.
        """
        self._driver.run(self._handle.extend(seconds))

    def release(self) -> None:
        """Release the lock; LeaseLost if the lease was lost, NotHeld if it was already released."""
        self._driver.run(self._handle.release())

    def upgrade(self, timeout: float | None = None) -> bool:
        """Make a lease of `RWLock.update` exclusive; return whether that was so in time.

        It waits until the present readers have released; no new ones are let in meanwhile. None
        waits without limit. The token is a new one then. If False is returned, or an error is
        raised, the lease is what it was. Raises WouldDeadlock for a lease of `RWLock.read`,
        ValueError for permits.
        """
        return self._driver.run(self._handle.upgrade(timeout))

    def detach(self) -> None:
        """Leave the lock held until its lease ends; `Client.adopt` continues it by its token.

        It is not renewed any more. Raises NotApplied where a hold ends with a session (ZooKeeper,
        `row`, `advisory`), NotHeld for a nested acquisition.
        """
        self._driver.run(self._handle.detach())

    def make_inheritable(self) -> tuple[int, ...]:
        """Let child processes inherit the lock; return the descriptors that they must inherit.

        From now on the lock is freed when all of these descriptors are closed. Empty, and without
        effect, where the store cannot do that.
        """
        return self._driver.run(self._handle.make_inheritable())

    def on_lost(self, callback: Callable[[Lease], object]) -> None:
        """Call *callback* with this lease when it is lost, in a thread of its own.

        Where the client has to release a lost lock itself, as with a session of ZooKeeper or SQL
        that does not answer, it does so when the callback has returned, or 0.5 s after the loss.
        """
        self._driver.run_step(
            self._handle.on_lost, callback, self, functools.partial(Lease, self._client)
        )

    @property
    def contended(self) -> bool:
        """Whether others wait for the lock, in this client or elsewhere, as far as it knows.

        From the first use on the client follows the queue, until the lease ends: where the store
        notifies it when the first waiter arrives, otherwise as often as the lease is renewed. So it
        is False at first. Reading it asks no store.

        >>> while work and not lease.contended:
        ...     work.pop().run()
        """
        return self._driver.run_step(self._handle.contended)

    def on_contended(self, callback: Callable[[Lease], object]) -> None:
        """Call *callback* with this lease, in a thread of its own, when others begin to wait.

        It is called soon if one waits already; again if all waiters have gone and another one
        comes; and not after the release. The holder decides what to do: go on, pause and release,
        or resign. It is followed as for `contended`.
        """
        self._driver.run_step(
            self._handle.on_contended, callback, self, functools.partial(Lease, self._client)
        )

    def on_danger(self, seconds: float, callback: Callable[[Lease], object]) -> None:
        """Call *callback* once with this lease, when it was not renewed and *seconds* are left.

        Then the store is out of reach or slow, or the lease ends for good: a fixed one, or one at
        its *max_hold*. The callback runs in a thread of its own, while the lock is still held, so
        it can save the work or stop it in order. It is called at once if so little is left already,
        and not at all once the lease is released or lost: a frozen process may miss it. *seconds*
        is at most half of a lease that is renewed; raises ValueError otherwise.

        >>> lease.on_danger(5, lambda lease: job.pause())
        """
        self._driver.run_step(
            self._handle.on_danger,
            seconds,
            callback,
            self,
            functools.partial(Lease, self._client),
        )

    def __enter__(self) -> Self:
        return self._driver.run(self._handle.begin_body(self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.reference.left_by = weakref.ref(ending := UnderWay())
        leaving = self._handle.end_body(exception, ending)
        del ending
        self._driver.run(leaving)

    def __repr__(self) -> str:
        return (
            f"<leaselock.Lease {self.name!r} on {self._driver.store}, "
            f"token {self.token}, {self._handle.state()}>"
        )


def _guarded(guard: Guard[Lock], function: Callable[P, R]) -> Callable[P, R | None]:
    """The function that runs under the lock that *guard* names at each call."""
    checked_body(function, awaited=Threads.awaited, written="@client.guard(...)")
    signature = guard.signature(function)

    @functools.wraps(function)
    def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = guard.lock(guard.name(signature, args, kwargs), **guard.options)
        if guard.skip_after is None:
            lease: Lease | None = lock.acquire()
        else:
            lease = lock.try_acquire(timeout=guard.skip_after)
        if lease is None:
            return None
        with lease:
            return function(*args, **kwargs)

    return under_lock
