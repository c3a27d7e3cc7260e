"""The conformance suite on an ensemble of three servers.

Clients of `queue` log in as a user with only the rights that the store's page lists, and `world`
has none; those of `single` do not log in.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.ensembles import RestrictedEnsemble, fresh
from testkit.servers.zookeeper import TICK_MS, Ensemble
from tests.conformance.matrix import name, protocol, run

pytestmark = pytest.mark.no_cover

SESSION = 3.0
# Names may begin with a slash, although that is probably a mistake.
SLASH = "ignore:the lock '/:UserWarning"
# The ensemble expires sessions at ticks.
SILENCE = SESSION + 2 * TICK_MS / 1000


# Modules that apply to `single`, too; it shows no waiters, and is slow with many of them.
MODES = ("sharing", "updates", "permits")
THEMES = ("owners", "reentrancy", "tokens")
SIMPLE = [each for each in protocol("single") if str(each.values[0]).partition(".")[0] in THEMES]


def _store(url: Callable[..., str], *protocols: str) -> Store:
    return Store(
        "zookeeper",
        lambda folder: url(timeout=SESSION, protocol=protocols[0]),
        protocols=protocols,
        fair=protocols[0] == "queue",
        notifies_holder=False,
        detachable=False,
        confirm_within=SILENCE,
        session_timeout=SESSION,
        max_waiters=100,
        **dict.fromkeys(MODES if protocols[0] == "queue" else (), True),
    )


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning", SLASH)
@pytest.mark.parametrize(("scenario", "driver"), protocol("zookeeper"), ids=name)
def test_zookeeper(
    scenario: Scenario,
    driver: str,
    restricted: RestrictedEnsemble,
    max_waiters: int | None,
    tmp_path: Path,
) -> None:
    run(scenario, _store(restricted.fresh, "queue", "single"), driver, tmp_path, max_waiters)


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning", SLASH)
@pytest.mark.parametrize(("scenario", "driver"), SIMPLE, ids=name)
def test_single(scenario: Scenario, driver: str, ensemble: Ensemble, tmp_path: Path) -> None:
    run(scenario, _store(partial(fresh, ensemble), "single", "queue"), driver, tmp_path)
