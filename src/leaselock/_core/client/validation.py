"""Checks of the arguments of the public interface: names, times, sizes. No store is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leaselock.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Never

    from leaselock._core.client.timing import OnOutage
    from leaselock._core.contract.backend import Mode

L = TypeVar("L")

LONGEST_NAME = 255
MOST_PERMITS = 1_000_000
WAITS = "timeout=None waits without limit, timeout=0 does not wait"
TRIES = f"try_acquire() does not wait; {WAITS}"
LENGTH = "lease= is the length of the lease in seconds, which is renewed unless renew=False"
POLLS = "waiters are notified, they do not poll"
# What the arguments of other libraries are here.
ARGUMENTS_OF_OTHERS = {
    "blocking": TRIES,
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "retry_timeout"), WAITS),
    **dict.fromkeys(("retry_count", "retry_times", "max_retries"), WAITS),
    **dict.fromkeys(("expire", "expiration", "ttl", "lease_time", "auto_release_time"), LENGTH),
    **dict.fromkeys(("lock_timeout", "lease_duration", "lifetime", "expiry"), LENGTH),
    **dict.fromkeys(("sleep", "poll_interval", "poll_intervall", "check_interval"), POLLS),
    **dict.fromkeys(("retry_interval", "retry_delay"), POLLS),
    "namespace": 'begin the name with it, "app:order:5", or use prefix= of Client',
    "shared": "client.rwlock(name).read is shared, client.rwlock(name).write is exclusive",
    "max_leases": "client.semaphore(name, permits=) has that many permits",
    "xact": "leaselock.sql.lock(connection, name) lasts until the end of the transaction",
    "thread_local": 'owner="lock" makes the lock object the owner instead of the thread or task',
    "auto_renewal": "renew=False turns the renewal off",
    "renewal": "renew=False turns the renewal off",
    "url": "the first argument of Client names the store, by its URL",
    "id": "label= is shown to people who inspect the lock; client.adopt(name, token) continues "
    "a lease that another process has detached",
}
# The arguments of the methods that refuse others with a hint.
OF_CLIENT = ("protocol", "prefix", "label", "op_timeout", "deadlock_timeout", "label_from")
OF_LOCK = (
    *("lease", "renew", "timeout", "reentrant", "protocol", "label", "owner", "min_hold"),
    *("max_hold", "on_outage", "outage_timeout"),
)
ARGUMENTS = {
    "Client": OF_CLIENT,
    "lock": OF_LOCK,
    "guard": (*OF_LOCK, "busy"),
    "acquire": ("timeout", "permits"),
    "try_acquire": ("timeout", "permits"),
}
# What wraps a function in an object that calls it without what is above: the first part of the
# module of its type, and how its decorator is written.
FRAMEWORKS = {
    "celery": ("a task of Celery", "@app.task"),
    "dramatiq": ("an actor of dramatiq", "@dramatiq.actor"),
    "huey": ("a task of Huey", "@huey.task()"),
    "taskiq": ("a task of taskiq", "@broker.task"),
    "rq": ("a job of RQ", "@job(...)"),
    "_pytest": ("a fixture of pytest", "@pytest.fixture"),
    "click": ("a command of Click", "@click.command()"),
}
SHORTEST_LEASE = 0.05
LONGEST_LEASE = 365 * 86400.0


def checked_name(name: object) -> str:
    """*name*, if it can be the name of a lock; InvalidName otherwise."""
    if not isinstance(name, str):
        raise InvalidName(f"the name of a lock is a str, not {type(name).__name__}: {name!r:.80}")
    if not name:
        raise InvalidName("the name of a lock cannot be empty")
    if not name.isprintable():
        _refuse_unprintable(name)
    if len(name.encode()) > LONGEST_NAME:
        raise InvalidName(
            f"the name of a lock has at most {LONGEST_NAME} bytes of UTF-8, "
            f"not {len(name.encode())}: {name!r:.80}"
        )
    return name


def _refuse_unprintable(name: str) -> None:
    # isprintable() also says no to harmless spaces of other scripts; only these can forge
    # a log line, end a C string, or fail to encode.
    for char in name:
        if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or char in "\u2028\u2029":
            raise InvalidName(f"the name of a lock has no control characters: {name!r:.80}")
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise InvalidName(f"the name of a lock has no lone surrogates: {name!r:.80}")


def checked_seconds(value: object, what: str, *, least: float, most: float) -> float:
    """*value* as a number of seconds from *least* to *most*; TypeError or ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}: {value!r:.80}")
    try:
        seconds = float(value)
    except OverflowError:  # an int may be too large to become a float at all
        seconds = float("inf") if value > 0 else float("-inf")
    if not least <= seconds <= most:  # also false for NaN
        # A year in digits, not as 3.1536e+07.
        raise ValueError(f"{what} is from {least:g} to {most:.12g} seconds, not {seconds!r}")
    return seconds


def checked_lease(value: object) -> float:
    """The length of a lease in seconds."""
    return checked_seconds(value, "lease", least=SHORTEST_LEASE, most=LONGEST_LEASE)


def checked_max_hold(value: object) -> float:
    """For how many seconds a hold is renewed at most; None sets no bound."""
    if value is None:
        return float("inf")
    return checked_seconds(value, "max_hold", least=SHORTEST_LEASE, most=float("inf"))


def checked_timeout(value: object) -> float | None:
    """A time to wait in seconds: None waits without limit, 0 does not wait."""
    if value is None:
        return None
    try:
        return checked_seconds(value, "timeout", least=0.0, most=float("inf"))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} ({WAITS})") from None


def checked_outage(policy: object, seconds: object) -> tuple[OnOutage, float]:
    """What to do while the store is out of reach, and for how many seconds."""
    known: tuple[OnOutage, ...] = ("fail", "wait")
    for choice in known:
        if choice == policy:
            break
    else:
        raise ValueError(f"on_outage is one of {known}, not {policy!r:.80}")
    if seconds is None:
        if choice == "wait":
            raise ValueError(
                'on_outage="wait" needs outage_timeout=, in seconds: float("inf") is no limit'
            )
        return choice, 0.0
    if choice == "fail":
        raise ValueError('outage_timeout= needs on_outage="wait"')
    return choice, checked_seconds(seconds, "outage_timeout", least=0.0, most=float("inf"))


def checked_switch(value: object, what: str) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is a bool, not {value!r:.80}")
    return value


def checked_owner(value: object) -> bool:
    """Whether the lock object itself is the owner."""
    if value is not None and value != "lock":
        raise ValueError(f'owner is None (the thread or task) or owner="lock", not {value!r:.80}')
    return value is not None


# What objects of other libraries have, and what it is here.
OF_OTHERS = {
    **dict.fromkeys(("is_locked", "is_acquired", "acquired", "is_held"), "locked(), or owned()"),
    **dict.fromkeys(("contenders", "queue"), "waiters()"),
    **dict.fromkeys(
        ("extend", "renew", "reacquire", "refresh", "heartbeat"),
        "the lease: lease = lock.acquire(), which is renewed by itself; lease.extend()",
    ),
    **dict.fromkeys(
        ("break_", "reset", "force_release", "steal"), "client.break_lock(name, token=...)"
    ),
}


def no_attribute(of: object, name: str) -> Never:
    """Raise AttributeError, with what other libraries call so."""
    kind = type(of).__name__
    advice = f": here it is {OF_OTHERS[name]}" if name in OF_OTHERS else ""
    raise AttributeError(f"{kind!r} object has no attribute {name!r}{advice}", name=name, obj=of)


def refuse_positional(method: str, given: tuple[object, ...]) -> None:
    """TypeError for a positional argument, which other libraries take."""
    if given:
        value = f"{given[0]!r:.80}"
        said = TRIES if isinstance(given[0], bool) else f"write timeout={value}; {WAITS}"
        raise TypeError(f"{method}() takes its arguments by name, not {value}: {said}")


def refuse(method: str, unknown: Iterable[str]) -> None:
    """TypeError for arguments of other libraries, with ours for the same."""
    for word in unknown:
        advice = ARGUMENTS_OF_OTHERS.get(word) or _similar(word, ARGUMENTS[method])
        raise TypeError(f"{method}() has no argument {word!r}: {advice}")


def _similar(word: str, arguments: Iterable[str]) -> str:
    import difflib  # loaded where it is used

    found = difflib.get_close_matches(word, arguments, 1)
    return f"did you mean {found[0]}=?" if found else "there is no such argument"


def checked_label(value: object) -> str | None:
    """A short text that is stored with the hold and shown; longer ones are truncated."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"label is a str, not {type(value).__name__}")
    return shortened(value)


def checked_label_from(value: object) -> bool:
    """Whether labels say which line of the program acquires a lock."""
    if value is not None and value != "caller":
        raise ValueError(f'label_from is None or "caller", not {value!r:.80}')
    return value is not None


def shortened(text: str) -> str:
    """*text*, truncated to the length that every store can hold."""
    return text.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")


def refuse_wrapped(function: object, written: str) -> None:
    """TypeError for what a framework has made of a function: its worker calls the function inside,
    without the lock. *written* is how our decorator is written.
    """
    # Not by attributes: a proxy of Celery makes its task when it is asked for one.
    modules = [kind.__module__ for kind in type(function).__mro__]
    if type(function) is type(refuse_wrapped):  # what its decorator has noted there
        delay = vars(function).get("delay")
        modules.append(getattr(delay, "__globals__", {}).get("__name__", ""))
        modules += ["_pytest"] * ("_pytestfixturefunction" in vars(function))
    for module in modules:
        if (known := FRAMEWORKS.get(module.partition(".")[0])) is not None:
            what, above = known
            raise TypeError(
                f"this is {what}, which would run without the lock: write {above} first, and "
                f"{written} below it, directly above the function"
            )


def checked_body(function: object, *, awaited: bool, written: str) -> None:
    """TypeError for a function whose body runs after its call has returned (or was *awaited*): the
    lock would be released before. And for one that is wrapped already (`refuse_wrapped`).
    """
    refuse_wrapped(function, written)
    import inspect  # loaded here, for it takes its time

    begun = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if begun or (not awaited and inspect.iscoroutinefunction(function)):
        raise TypeError(
            f"the body of {function!r:.80} runs after its call has returned, and would not be "
            "under the lock: acquire the lock inside it, with `with` or `async with`"
        )


def checked_permits(value: object, limit: int = 0, what: str = "permits") -> int:
    """A number of permits: at most *limit*, where that is known."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {type(value).__name__}: {value!r:.80}")
    if not 0 < value <= (limit or MOST_PERMITS):
        most = f"{limit}, which is all that there are" if limit else MOST_PERMITS
        raise ValueError(f"{what} is from 1 to {most}, not {value!r:.80}")
    return value


def lock_of_mode(locks: dict[Mode, L], mode: Mode, able: Callable[[str], str]) -> L:
    """One lock of a read/write lock; ValueError where the protocol does not have it. *able* says
    which stores do.
    """
    if mode not in locks:
        text = f"this protocol has read/write locks without {mode!r}"
        raise ValueError(f"{text} (stores that can: {able(mode)})")
    return locks[mode]


def checked_token(value: object) -> int:
    """A fencing token."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a fencing token is an int, not {type(value).__name__}: {value!r:.80}")
    if not 0 < value < 2**63:
        # Python itself refuses to write the digits of a huge one.
        described = value if abs(value) < 2**256 else "one that long"
        raise ValueError(f"a fencing token is from 1 to 2**63 - 1, not {described}")
    return value
