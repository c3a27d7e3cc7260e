"""The options of each command, as its parser stores them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes

if TYPE_CHECKING:
    from leaselock import OnOutage


class Options(argparse.Namespace):
    """What every command has."""

    command: str = ""
    backend: str | None = None
    url_file: str | None = None
    op_timeout: float | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    store: str | None = None
    """The URL of the store, without its secrets, once a client is open."""


class NameOptions(Options):
    """Of a command on one lock."""

    name: str


class WaitOptions(Options):
    """How long to wait, and what follows when the lock stays busy."""

    wait: float | None = None
    nonblock: bool = False
    conflict: int = exit_codes.BUSY
    skip_ok: bool = False

    @property
    def timeout(self) -> float | None:
        """Seconds: 0 for --nonblock, None for no limit."""
        return 0.0 if self.nonblock else self.wait


class LeaseOptions(WaitOptions):
    """How a lock is acquired."""

    lease: float
    label: str | None


class CommandOptions(LeaseOptions):
    """Of a command that runs another one; here with the values that `lead` always has."""

    shared: bool = False
    slots: int | None = None
    others: list[str] | None = None
    no_renew: bool = False
    min_hold: float = 0.0
    max_hold: float | None = None
    on_outage: OnOutage = "fail"
    outage_timeout: float | None = None
    shell: str | None
    on_lost: str
    kill_after: float
    pdeathsig: str
    no_tty: bool
    name_from_command: bool
    argv: list[str]


class RunOptions(CommandOptions):
    """Of `run`."""

    once_per: float | None

    def with_period(self) -> RunOptions:
        """These options, where --once-per is given with what that means: another run in the
        period is no error, and nothing to wait for.
        """
        if self.once_per is None:
            return self
        implied = {"nonblock": True, "skip_ok": True, "min_hold": self.once_per}
        return RunOptions(**(vars(self) | implied))


class LeadOptions(CommandOptions):
    """Of `lead`. A store that is out of reach must not end every candidate."""

    on_outage: OnOutage = "wait"
    outage_timeout: float | None = float("inf")
    once: bool


class AcquireOptions(LeaseOptions, NameOptions):
    """Of `acquire`."""


class LockWaitOptions(WaitOptions, NameOptions):
    """Of `wait`."""

    until: str


class TokenOptions(NameOptions):
    """Of `release` and `check`."""

    given: int | None
    token: int | None


class ExtendOptions(TokenOptions):
    """Of `extend`."""

    lease: float


class BreakOptions(NameOptions):
    """Of `break`."""

    token: int | None
    yes: bool
    message: str | None


class WatchOptions(Options):
    """Of `watch`."""

    pattern: str


class TopOptions(WatchOptions):
    """Of `top`."""

    sort: str
    interval: float


class ListOptions(TopOptions):
    """Of `ls`."""

    all: bool
    exit_code: bool
    stale: bool
    watch: bool


class DoctorOptions(Options):
    """Of `doctor`."""

    strict: bool


class SetupOptions(Options):
    """Of `setup`."""

    dry: bool


class WebOptions(Options):
    """Of `web`."""

    host: str
    port: int
    allow_host: list[str]
    allow_break: bool
    break_token_file: str | None
    interval: float


class CompletionOptions(Options):
    """Of `completion`."""

    shell: str


class HelpOptions(Options):
    """Of `help`."""

    topic: str | None
    man: bool
