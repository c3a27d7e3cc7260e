"""Tables of checks: what `leaselock doctor` says of a store, by the facts that it has probed.

The doctor of a store asks its servers, and collects what they say, by name. A table of checks says
what to report of these facts. To add a check, add a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.contract.backend import Finding
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal, TypeAlias

    Facts: TypeAlias = Mapping[str, Any]
    # A row of a table: one case, or several, of which the first that is true is reported. Where a
    # text has to be put together, the row is a function.
    Check: TypeAlias = "Case | tuple[Case, ...] | Callable[[Facts], Finding | None]"


class Case(NamedTuple):
    """A finding, and when it is reported. In its texts, `{name}` stands for the fact with this
    name.
    """

    level: Literal["ok", "warn", "fail", "skip"]
    when: Callable[[Facts], object]
    """Whether it is true of the facts."""
    what: str
    advice: str = ""
    server: str = ""

    def finding(self, facts: Facts) -> Finding:
        """The finding about these facts."""
        texts = (self.what, self.advice, self.server)
        return Finding(self.level, *(text.format_map(facts) for text in texts))


def report(checks: Iterable[Check], facts: Facts) -> list[Finding]:
    """What a table says of these facts, in the order of its rows."""
    findings = (_result(check, facts) for check in checks)
    return [finding for finding in findings if finding is not None]


def _result(check: Check, facts: Facts) -> Finding | None:
    if callable(check):
        return check(facts)
    cases = (check,) if isinstance(check, Case) else check
    return next((case.finding(facts) for case in cases if case.when(facts)), None)


def otherwise(facts: Facts) -> bool:
    """True: for the last case of a check."""
    return True
