"""The layout marker of a Redis store: one key for each prefix, beside the keys of the locks.

Each connection reads it when it is opened, before the first request, and writes it if it is
missing. In a cluster each master has markers of its own: there are `MARKERS` of them, spread over
the slots, and a connection reads those that its server has. A slot that moves to another server
takes its marker along. docs/decisions/0018-layout-marker.md has the reasons.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.keys import SLOTS, our, slot_of
from leaselock._backends.redis.messages import OtherLayout, Send, Unreachable
from leaselock._core.contract.backend import Finding
from leaselock._core.contract.layout import Layout, layout_problem

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Address
    from leaselock._backends.redis.settings import Settings

# To be raised with every change of the keys beside a lock, or of what is in them.
LAYOUT = Layout(1, 1)
KIND = "layout"
# How many a cluster has.
MARKERS = 16
# With this many candidates, a part of the slots without a marker is unlikely for any prefix.
CANDIDATES = 500
OTHER_TYPE = "a value of another type"
# The server may have a marker, and cannot read it now.
NOT_YET = ("LOADING", "MASTERDOWN", "BUSY", "TRYAGAIN", "CLUSTERDOWN")
# A server that the URL names, and that another one might serve for, is none to wait for.
OF_MANY = ("MASTERDOWN", "CLUSTERDOWN")
# No server of the cluster has the slot. It may serve the others (cluster-require-full-coverage).
NOT_SERVED = "CLUSTERDOWN Hash slot not served"


@lru_cache(maxsize=64)
def marker_keys(prefix: str, divided: bool) -> tuple[str, ...]:
    """The keys of the markers for locks with this prefix.

    In a cluster, which is *divided*, the slots are parted into `MARKERS` ranges, and each range has
    one. All locks of a prefix with a hash tag of its own are in one slot, and so is its marker.
    """
    if not divided:
        return (our(KIND, prefix),)
    keys: dict[int, str] = {}
    for number in range(CANDIDATES):
        key = our(KIND, f"{prefix}{number}")
        keys.setdefault(slot_of(key) * MARKERS // SLOTS, key)
        if len(keys) == MARKERS:
            break
    return tuple(keys.values())


def reading(settings: Settings, address: Address) -> Generator[Send, list[Any], None]:
    """Check the markers of a server, and write those that it should have and has not.

    Yields messages for a new connection, and is sent the replies. Raises OtherLayout if this
    program must not use the store.
    """
    if address.sentinel:
        return
    keys = marker_keys(settings.prefix, settings.topology == "cluster")
    replies = yield _message([("GET", key) for key in keys])
    missing = [key for key, reply in zip(keys, replies, strict=True) if reply is None]
    if missing:
        # Another client may write it meanwhile: the second reply of each pair decides.
        pairs = (_pair(key) for key in missing)
        replies += (yield _message([command for pair in pairs for command in pair]))[1::2]
    answers = [*zip((*keys, *missing), replies, strict=True)]
    # The markers of the slots that are served decide, if there are any.
    served = [(key, reply) for key, reply in answers if not str(reply).startswith(NOT_SERVED)]
    for key, reply in served or answers:
        _check(settings, address, key, reply)


def _message(commands: Sequence[Command]) -> Send:
    return Send(packed(commands), len(commands), ())


def _pair(key: str) -> tuple[Command, Command]:
    return ("SET", key, str(LAYOUT), "NX"), ("GET", key)


def _check(settings: Settings, address: Address, key: str, reply: Any) -> None:
    """Other errors are no matter of the layout: the first request reports them, or the slot of the
    marker belongs to another server, or the user may not read it, of which `doctor` warns.
    """
    if isinstance(reply, Exception):
        code = str(reply).partition(" ")[0]
        if code in NOT_YET and not (settings.topology == "single" and code in OF_MANY):
            raise Unreachable(f"{address}: {reply}")
        if code != "WRONGTYPE":
            return
    if reply is None:
        return
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else OTHER_TYPE
    problem = layout_problem(text, LAYOUT, _replace(settings, key))
    if problem is not None:
        raise OtherLayout(f"{address} cannot be used for locks: {problem}")


def _replace(settings: Settings, key: str) -> str:
    delete = f"`redis-cli DEL '{key}'`"
    if settings.topology == "cluster":
        # That of each slot has a number behind the prefix.
        beginning = our(KIND, settings.prefix)
        if "{" not in settings.prefix:
            beginning = beginning.removesuffix("}")
        delete = f"the keys '{beginning}[0-9]*' on each master"
    return f"end the programs that lock with this prefix, and delete the marker: {delete}"


def marker_finding(address: Address, replies: Sequence[Any]) -> Finding:
    """What `doctor` says of a server whose markers could be used, by the replies to GET."""
    markers = {reply.decode("utf-8", "replace") for reply in replies if isinstance(reply, bytes)}
    if markers:
        words = ", ".join(sorted(markers))
        return Finding("ok", f"{address}: the layout of the locks is {words}")
    refused = [reply for reply in replies if str(reply).startswith("NOPERM")]
    if refused:
        what = f"{address}: the layout marker may not be read ({refused[0]})"
        return Finding("warn", what, "grant +get +set on ~leaselock:*")
    what = f"{address}: there is no layout marker, and it could not be written"
    return Finding("warn", what, "open the store once as a user who may: +set on ~leaselock:*")
