"""The options of each command: their names and help, and the types with which they are stored.

An option is declared in one place: as an attribute, and in `_declare` of the same class.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.formatting import parse_duration

if TYPE_CHECKING:
    from typing import Literal

    from leaselock import OnOutage

    Parser = argparse.ArgumentParser

SHELLS = ("bash", "zsh", "fish")
SORT_KEYS = ("name", "since", "lease", "waiters", "wait", "token")


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _exit_code(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 255):
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code: 0 to 255")
    return int(text)


def _token(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a token: a whole number")
    return int(text)


def _add(parser: argparse._ActionsContainer, *names: str, **options: object) -> None:
    """Add an option. Other words for the same thing, known from other tools, are understood but
    not shown: those after a "|".
    """
    public = [name for name in names if not name.startswith("|")]
    action = parser.add_argument(*public, **options)  # type: ignore[arg-type]
    hidden = [name[1:] for name in names if name.startswith("|")]
    if hidden:
        kept = {key: options[key] for key in ("type", "action") if key in options}
        parser.add_argument(
            *hidden,
            dest=action.dest,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
            **kept,  # type: ignore[arg-type]
        )


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

    @staticmethod
    def _declare(parser: Parser) -> None:
        """Add what the command has besides the common options."""


def add_options(options: type[Options], parser: Parser) -> None:
    """Add those of one command, besides the common ones."""
    options._declare(parser)


def add_common_options(parser: Parser) -> None:
    """The options that every command has, also before its name."""
    store = "the store ($LEASELOCK_URL, else embedded)"
    _add(parser, "--url", "|--backend", dest="backend", metavar="URL", help=store)
    inside = "a file with that URL (or $LEASELOCK_URL_FILE)"
    _add(parser, "--url-file", metavar="FILE", help=inside)
    reply = (
        "limit for each reply of the store; -n and --once-per wait as long for a store that is out "
        "of reach, as during a failover (5s)"
    )
    _add(parser, "--op-timeout", metavar="DUR", type=_duration, help=reply)
    _add(parser, "--json", action="store_true", help="answer with one JSON document")
    _add(parser, "-q", "--quiet", action="store_true", help="print errors only")
    _add(parser, "-v", "--verbose", action="store_true", help="say what happens")
    colour = "send no escapes to the terminal (or $NO_COLOR)"
    _add(parser, "--no-color", action="store_true", help=colour)


class NameOptions(Options):
    """Of a command on one lock."""

    name: str

    @staticmethod
    def _declare(parser: Parser) -> None:
        _add(parser, "name", metavar="NAME")


class StoreOptions(Options):
    """Of a command on a whole store."""

    @staticmethod
    def _declare(parser: Parser) -> None:
        store = "the store, as for --url"
        _add(parser, "backend", nargs="?", default=argparse.SUPPRESS, metavar="URL", help=store)


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

    @staticmethod
    def _declare(parser: Parser) -> None:
        group = parser.add_mutually_exclusive_group()
        _add(group, "-n", "--nonblock", action="store_true", help="do not wait")
        _add_wait(group)


def _add_wait(parser: argparse._ActionsContainer) -> None:
    longest = "wait at most this long"
    _add(parser, "-w", "--wait", "|--timeout", metavar="DUR", type=_duration, help=longest)


class LeaseOptions(WaitOptions):
    """How a lock is acquired."""

    lease: float
    label: str | None

    @staticmethod
    def _declare(parser: Parser) -> None:
        WaitOptions._declare(parser)
        _add(
            parser,
            "-E",
            "--conflict-exit-code",
            metavar="N",
            type=_exit_code,
            default=exit_codes.BUSY,
            dest="conflict",
            help="the exit code when it is busy (75)",
        )
        length = "length of the lease (30s)"
        _add(parser, "--lease", "|--ttl", metavar="DUR", type=_duration, default=30.0, help=length)
        _add(
            parser, "--label", "|--reason", metavar="TEXT", help="shown to people who list the lock"
        )


class CommandOptions(LeaseOptions):
    """Of a command that runs another one; here with the values that `lead` always has."""

    shared: bool = False
    slots: int | None = None
    others: list[str] | None = None
    no_renew: bool = False
    min_hold: float = 0.0
    once_per: float | None = None
    on_error: Literal["keep", "retry"] = "keep"
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

    @staticmethod
    def _declare(parser: Parser) -> None:
        _add(parser, "-c", metavar="STR", dest="shell", help="run STR by $SHELL -c")
        lost = "how the command is ended on loss: term, kill, a SIGNAL, or ignore (term)"
        _add(parser, "--on-lost", metavar="ACTION", default="term", help=lost)
        kill = "time from that signal to SIGKILL (5s)"
        _add(parser, "--kill-after", metavar="DUR", type=_duration, default=5.0, help=kill)
        death = "signal for the command if leaselock is killed, or none (TERM; Linux)"
        _add(parser, "--pdeathsig", metavar="SIG", default="TERM", help=death)
        _add(parser, "--no-tty", action="store_true", help="do not give the command the terminal")
        named = "derive NAME from the words of the command"
        _add(parser, "--name-from-command", action="store_true", help=named)
        _add(parser, "argv", nargs=argparse.REMAINDER, metavar="NAME [--] COMMAND...")


class RunOptions(CommandOptions):
    """Of `run`."""

    def with_period(self) -> RunOptions:
        """These options, where --once-per is given with what that means: another run in the
        period is no error, and nothing to wait for.
        """
        if self.on_error == "retry":
            self._check_retry()
        if self.once_per is None:
            return self
        min_hold = 0.0 if self.on_error == "retry" else self.once_per
        implied = {"nonblock": True, "skip_ok": True, "min_hold": min_hold}
        return RunOptions(**(vars(self) | implied))

    def _check_retry(self) -> None:
        if self.once_per is None:
            raise exit_codes.Usage("--on-error says what a failed run of --once-per uses up")
        others = {
            "--slots": self.slots is not None,
            "--with": bool(self.others),
            "--shared": self.shared,
            "--min-hold": self.min_hold > 0.0,
            "--no-renew": self.no_renew,
        }
        if refused := [option for option, given in others.items() if given]:
            raise exit_codes.Usage(f"either --on-error retry or {refused[0]}, not both")

    @staticmethod
    def _declare(parser: Parser) -> None:
        parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
        LeaseOptions._declare(parser)
        _add(parser, "--skip-ok", action="store_true", help="exit 0, silently, when it is busy")
        stays = (
            "keep the lock taken for this long from its grant on, even if the command ends before"
        )
        _add(parser, "--min-hold", metavar="DUR", type=_duration, default=0.0, help=stays)
        once = "run at most once in this time on all hosts; exit 0 if another has run it"
        _add(parser, "--once-per", metavar="DUR", type=_duration, help=once)
        failed = (
            "a run of --once-per that fails, is killed or loses its lease uses up the time (keep), "
            "or is made up for by the next one (retry)"
        )
        failures = ("keep", "retry")
        _add(parser, "--on-error", choices=failures, default="keep", metavar="POLICY", help=failed)
        fixed = "a fixed lease: the command must end within it"
        _add(parser, "--no-renew", action="store_true", help=fixed)
        _add(parser, "--shared", action="store_true", help="hold it beside other commands --shared")
        slots = "hold one of N permits instead, as a semaphore"
        _add(parser, "--slots", metavar="N", type=int, help=slots)
        others = "hold this lock, too: all or none; may be repeated"
        _add(parser, "--with", metavar="NAME", action="append", dest="others", help=others)
        longest = "end a command that runs longer, and exit 124"
        _add(parser, "--max-hold", metavar="DUR", type=_duration, help=longest)
        outage = "store out of reach: fail, or wait (fail)"
        policies = ("fail", "wait")
        _add(parser, "--on-outage", choices=policies, default="fail", metavar="POLICY", help=outage)
        patience = "for how long --on-outage wait repeats the request"
        _add(parser, "--outage-timeout", metavar="DUR", type=_duration, help=patience)
        textfile = (
            "count runs, waits and losses in FILE, for the textfile collector of node exporter"
        )
        _add(parser, "--metrics-file", metavar="FILE", help=textfile)
        CommandOptions._declare(parser)


class LeadOptions(CommandOptions):
    """Of `lead`. A store that is out of reach must not end every candidate."""

    on_outage: OnOutage = "wait"
    outage_timeout: float | None = float("inf")
    once: bool

    @staticmethod
    def _declare(parser: Parser) -> None:
        parser.usage = "%(prog)s [OPTIONS] NAME [--] COMMAND..."
        length = "length of the lease (15s)"
        _add(parser, "--lease", metavar="DUR", type=_duration, default=15.0, help=length)
        _add(parser, "--label", metavar="TEXT", help="shown to people who ask who leads")
        once = "exit when the command ends, with its exit code, or with 76 after a loss"
        _add(parser, "--once", action="store_true", help=once)
        CommandOptions._declare(parser)


class AcquireOptions(LeaseOptions, NameOptions):
    """Of `acquire`."""

    @staticmethod
    def _declare(parser: Parser) -> None:
        LeaseOptions._declare(parser)
        NameOptions._declare(parser)


class LockWaitOptions(WaitOptions, NameOptions):
    """Of `wait`."""

    until: str

    @staticmethod
    def _declare(parser: Parser) -> None:
        _add_wait(parser)
        until = "until it is so (free)"
        _add(parser, "--until", choices=("free", "held"), default="free", help=until)
        NameOptions._declare(parser)


class TokenOptions(NameOptions):
    """Of `release` and `check`."""

    given: int | None
    token: int | None

    @staticmethod
    def _declare(parser: Parser) -> None:
        NameOptions._declare(parser)
        printed = "the one that acquire printed, or that ls shows"
        _add(parser, "given", nargs="?", metavar="TOKEN", type=_token, help=printed)
        same = "TOKEN, as an option"
        _add(parser, "--token", "|--fence", metavar="TOKEN", type=_token, help=same)


class ExtendOptions(TokenOptions):
    """Of `extend`."""

    lease: float

    @staticmethod
    def _declare(parser: Parser) -> None:
        TokenOptions._declare(parser)
        group = parser.add_mutually_exclusive_group(required=True)
        least = "the least time left of it afterwards"
        _add(group, "--lease", "|--ttl", metavar="DUR", type=_duration, help=least)


class BreakOptions(NameOptions):
    """Of `break`."""

    token: int | None
    yes: bool
    message: str | None

    @staticmethod
    def _declare(parser: Parser) -> None:
        NameOptions._declare(parser)
        only = "only the grant with this token; do not ask"
        _add(parser, "--token", "|--fence", metavar="TOKEN", type=_token, help=only)
        _add(parser, "--yes", action="store_true", help="do not ask")
        why = "why; required when stdin is not a terminal"
        _add(parser, "-m", "--message", "|--reason", metavar="TEXT", help=why)


class WatchOptions(Options):
    """Of `watch`."""

    pattern: str

    @staticmethod
    def _declare(parser: Parser) -> None:
        names = "a name, or a pattern as in a shell: 'order:*' (all)"
        _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)


class TopOptions(WatchOptions):
    """Of `top`."""

    sort: str
    interval: float

    @staticmethod
    def _declare(parser: Parser) -> None:
        names = "of names, as in a shell: 'order:*' (all)"
        _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)
        order = f"by {', '.join(SORT_KEYS)} (name)"
        _add(parser, "--sort", choices=SORT_KEYS, default="name", metavar="KEY", help=order)
        pause = "between two reads of the store (1s)"
        _add(parser, "--interval", metavar="DUR", type=_duration, default=1.0, help=pause)


class ListOptions(TopOptions):
    """Of `ls`."""

    all: bool
    exit_code: bool
    stale: bool
    hide_cooling: bool
    watch: bool

    @staticmethod
    def _declare(parser: Parser) -> None:
        names = "of names, as in a shell: 'order:*' (all)"
        _add(parser, "pattern", nargs="?", default="*", metavar="PATTERN", help=names)
        _add(parser, "--exit-code", action="store_true", help="exit 1 when there is none")
        walks = "look for locks of other programs, too, where a store lists its own from an index"
        _add(parser, "--all", action="store_true", help=walks)
        gone = "only those held by a process of this host that has ended"
        _add(parser, "--stale", action="store_true", help=gone)
        periods = "leave out those that only cool down, after --min-hold or --once-per"
        _add(parser, "--hide-cooling", action="store_true", help=periods)
        order = f"by {', '.join(SORT_KEYS)} (name)"
        _add(parser, "--sort", choices=SORT_KEYS, default="name", metavar="KEY", help=order)
        _add(parser, "--watch", action="store_true", help="list again and again, until interrupted")
        pause = "between two lists (2s)"
        _add(parser, "--interval", metavar="DUR", type=_duration, default=2.0, help=pause)


class DoctorOptions(StoreOptions):
    """Of `doctor`."""

    strict: bool

    @staticmethod
    def _declare(parser: Parser) -> None:
        _add(parser, "--strict", action="store_true", help="exit 1 for warnings, too")
        StoreOptions._declare(parser)


class SetupOptions(StoreOptions):
    """Of `setup`."""

    dry: bool

    @staticmethod
    def _declare(parser: Parser) -> None:
        show = "print the statements and do nothing"
        _add(parser, "--print", action="store_true", dest="dry", help=show)
        StoreOptions._declare(parser)


class WebOptions(StoreOptions):
    """Of `web`."""

    host: str
    port: int
    allow_host: list[str]
    allow_break: bool
    break_token_file: str | None
    interval: float

    @staticmethod
    def _declare(parser: Parser) -> None:
        address = "the address to listen on (127.0.0.1)"
        _add(parser, "--host", metavar="ADDRESS", default="127.0.0.1", help=address)
        _add(
            parser, "--port", metavar="N", type=int, default=8470, help="0 takes a free one (8470)"
        )
        name = "a name by which browsers reach it, besides localhost; may be repeated"
        _add(parser, "--allow-host", metavar="NAME", action="append", default=[], help=name)
        force = "let those break locks who have the token that is printed"
        _add(parser, "--allow-break", action="store_true", help=force)
        from_file = "the same, with the token in a file, which is not printed; - is stdin"
        _add(parser, "--break-token-file", metavar="FILE", help=from_file)
        pause = "between two reads of the store (1s)"
        _add(parser, "--interval", metavar="DUR", type=_duration, default=1.0, help=pause)
        StoreOptions._declare(parser)


class CompletionOptions(Options):
    """Of `completion`."""

    shell: str

    @staticmethod
    def _declare(parser: Parser) -> None:
        _add(parser, "shell", choices=SHELLS, help="for which shell")


class HelpOptions(Options):
    """Of `help`."""

    topic: str | None
    man: bool

    @staticmethod
    def _declare(parser: Parser) -> None:
        topic = "a command, or exit-codes"
        _add(parser, "topic", nargs="?", metavar="TOPIC", help=topic)
        _add(parser, "--man", action="store_true", help="print the manual page, as man(1) reads it")
