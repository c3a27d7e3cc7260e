"""Each planted flaw of a model has a check that must find it."""

from __future__ import annotations

import re

import pytest
from verification.tla.checks import CHECKS
from verification.tla.tlc import MODELS

pytestmark = pytest.mark.nightly

# The rules are part of the models that extend them.
PARTS = {"lease": ("lease", "rules"), "document": ("document", "rules")}
NAME = re.compile(r'Flaw (?:=|#) "(\w+)"|Flaw \\in \{([^}]*)\}')


def flaws(module: str) -> set[str]:
    """The flaws that a module knows."""
    found = NAME.findall((MODELS / f"{module}.tla").read_text("utf-8"))
    return {name for one, several in found for name in (one, *re.findall(r"\w+", several)) if name}


def test_each_planted_flaw_is_checked() -> None:
    checked = {(check.model, check.constants.get("Flaw", "none")) for check in CHECKS}
    planted = {(model, flaw) for model, flaw in checked if flaw != "none"}
    for model, flaw in planted:
        assert any(flaw in flaws(part) for part in PARTS.get(model, (model,))), (model, flaw)
    for module in ("lease", "document", "redlock", "sessions"):
        assert flaws(module) == {flaw for model, flaw in planted if model == module} & flaws(module)
    assert flaws("rules") <= {flaw for _, flaw in planted}


def test_no_two_checks_have_one_name() -> None:
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))
