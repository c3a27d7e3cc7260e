"""`python -m testkit.conformance.worker`: the process that `Child` starts."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from testkit.conformance.runner import HARNESSES
from testkit.conformance.store import Store


def main(driver: str, url: str, folder: str, capabilities: str, *call: str) -> None:
    """Run one function of the suite in a harness of its own."""
    module, name, arguments = call
    store = Store(fresh=lambda _: url, **json.loads(capabilities))
    harness = HARNESSES[driver](store, url, Path(folder))
    harness.run(getattr(import_module(module), name)(harness, *json.loads(arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
