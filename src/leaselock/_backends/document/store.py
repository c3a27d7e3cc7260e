"""Opening a store that keeps documents."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from leaselock._backends import Opened, StoreType, chance
from leaselock._backends.document.backend import CAPABILITIES, DocumentBackend
from leaselock._backends.url import seconds, token_ttl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.document.adapter import DocumentStore
    from leaselock._backends.url import StoreURL
    from leaselock._core.contract.lifecycle import BlockingNode

# The options that the URL of each such store has.
COMMON_OPTIONS = ("poll", "token_ttl")
LONGEST_POLL = 60.0


def document_store(
    name: str,
    open_store: Callable[..., Opened],
    options: Sequence[str] = (),
    *,
    listens: bool = False,
    title: str = "",
) -> StoreType:
    """The description of such a store. *options* are those of its URL besides COMMON_OPTIONS;
    *listens* says whether it has a listener.
    """
    protocols = {"document": CAPABILITIES._replace(notifies_changes=listens)}
    return StoreType(name, protocols, open_store, (*options, *COMMON_OPTIONS), title=title)


def opened(
    kind: StoreType,
    url: StoreURL,
    store: DocumentStore,
    listener: BlockingNode | None,
    now: Callable[[], float],
    *,
    shown: str,
) -> Opened:
    """The store that *url* names. *now* is the clock that `StoreType.open` was given, *shown* the
    URL without its secrets. ValueError for an option that is not valid.
    """
    default, ttl = kind.protocol_of(url), token_ttl(url)
    soonest = store.traits.soonest_poll
    soonest = url.option("poll", seconds(store.traits.least_poll, LONGEST_POLL), soonest)
    latest = max(soonest, store.traits.latest_poll)
    traits = store.traits._replace(soonest_poll=soonest, latest_poll=latest)

    def backend(protocol: str | None) -> DocumentBackend:
        kind.check_protocol(protocol)
        return DocumentBackend(
            store,
            listener,
            traits,
            describe=store.describe,
            now=now,
            wall=time.time,
            random=chance,
            random_id=_random_id,
            token_ttl=ttl,
        )

    parts = (store,) if listener is None else (store, listener)
    return Opened(backend, default, shown, parts=parts)


def _random_id() -> str:
    return os.urandom(8).hex()
