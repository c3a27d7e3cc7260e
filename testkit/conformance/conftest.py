"""Options of the conformance suite and the adapter suite on a server of your own.

    python -m pytest testkit/conformance --store 'redis://localhost/0?prefix={unique}:' -k waiting
    python -m pytest testkit/conformance --store 's3://bucket/{unique}?region=eu-west-1'
    python -m pytest testkit/conformance --store mystore.conformance:STORE --driver asyncio

--store takes a URL, in which `{folder}` is an empty folder and `{unique}` a new word for each
scenario, so that each scenario begins without locks, and what it leaves can be removed; or
`module:name` of a `Store`, whose `fresh` empties the store. The capabilities of a store of a URL
are those of its backend; --capability replaces one of them, or another field of `Store`:
`--capability fair=false`.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leaselock
from testkit.adapter import CHECKS
from testkit.conformance import DRIVERS, SCENARIOS, Store
from testkit.conformance.cleaning import remove_locks

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIQUE = "{unique}"
# Fields that only the store itself can say.
FIXED = ("name", "fresh")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The store, and what differs from what is known of it."""
    group = parser.getgroup("conformance suite")
    group.addoption("--store", metavar="STORE", help="a URL, or module:name of a Store")
    group.addoption("--driver", choices=DRIVERS, help="only this one")
    group.addoption("--capability", metavar="FIELD=VALUE", action="append", default=[])
    group.addoption(
        "--proxy", metavar="HOST:PORT", help="the server in the URL: checks of outages go through"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each scenario on the store with each driver."""
    config = metafunc.config
    if not (named := config.getoption("--store")):
        raise pytest.UsageError("name the store to test: --store URL or --store module:name")
    found = store_of_url(named) if "://" in named else store_of_name(named)
    store = found._replace(**dict(map(capability, config.getoption("--capability"))))
    if "check" in metafunc.fixturenames:
        metafunc.parametrize("store", [store], ids=[store.name])
        metafunc.parametrize("check", CHECKS, ids=lambda check: check.__name__)
        return
    only = config.getoption("--driver")
    metafunc.parametrize("store", [store], ids=[store.name])
    metafunc.parametrize("scenario", SCENARIOS, ids=repr)
    metafunc.parametrize("driver", [only] if only else DRIVERS)


@pytest.fixture
def emptied(store: Store, request: pytest.FixtureRequest) -> Iterator[Store]:
    """Return the store; afterwards, remove what the test has left in it."""
    template, word = request.config.getoption("--store"), uuid.uuid4().hex
    if "://" not in template or UNIQUE not in template:
        # Other locks than those of the test may be there.
        yield store
        return
    url = template.replace(UNIQUE, word)
    yield store._replace(fresh=lambda folder: url.replace("{folder}", str(folder)))
    remove_locks(url, word)


def store_of_url(template: str) -> Store:
    """Return a store that is found by a URL, with the capabilities of its backend."""

    def fresh(folder: Path) -> str:
        url = template.replace("{folder}", str(folder))
        return url.replace(UNIQUE, uuid.uuid4().hex)

    with tempfile.TemporaryDirectory() as folder, leaselock.Client(fresh(Path(folder))) as client:
        can = client._core.context(None).registry.backend.capabilities
    name = template.partition(":")[0]
    return Store(
        name,
        fresh,
        multiprocess=name != "memory",
        # A watch of ZooKeeper is on the holder's node, and not on its queue.
        notifies_holder=can.notifies_changes and can.holds_expire,
        detects_death=can.detects_death,
        detachable=can.holds_expire,
        min_hold=can.min_hold,
        session_timeout=can.session_timeout,
        sharing="shared" in can.modes,
        updates="update" in can.modes,
        permits="permits" in can.modes,
    )


def store_of_name(name: str) -> Store:
    """Return the store that a module of its author defines."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, Store):
        raise pytest.UsageError(f"{name} is not a testkit.conformance.Store, but {found!r}")
    return found


def capability(text: str) -> tuple[str, Any]:
    """Read `field=value`; the value is in JSON."""
    field, _, value = text.partition("=")
    if field not in Store._fields or field in FIXED:
        raise pytest.UsageError(f"--capability {text}: a store has no capability {field!r}")
    try:
        return field, json.loads(value)
    except ValueError:
        raise pytest.UsageError(f"--capability {text}: write the value in JSON") from None
