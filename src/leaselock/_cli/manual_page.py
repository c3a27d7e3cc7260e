"""The manual page leaselock(1), made from the parsers: `make format`."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from leaselock import __version__
from leaselock._api.connect import OF_PROCESS, built_in
from leaselock._cli import exit_codes
from leaselock._cli.arguments import parser_of, top_parser
from leaselock._cli.commands import COMMANDS, DURATIONS
from leaselock._cli.parameters import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._cli.parameters import Parameter

DESCRIPTION = """\
leaselock runs commands under a distributed lock, and shows and administers the locks of a store:
{stores}. A lock is held by a lease, which ends by itself when its holder dies.
"""
WIDTH = 98
ENVIRONMENT = {
    "LEASELOCK_URL": "the store, unless --url or --url-file names one",
    "LEASELOCK_URL_FILE": "the path of a file with that URL, such as a secret of a container",
    "NO_COLOR": "when it is not empty, no colours and no updated lines are written",
    "COLUMNS, LINES": "the size of a terminal that does not report one",
}
EXAMPLES = (
    ("Run a job on one machine at a time:", "leaselock run nightly -- ./backup.sh"),
    ("Skip it while another run is active:", "leaselock run -n --skip-ok nightly -- ./backup.sh"),
    ("Show the holder and the waiters:", "leaselock show nightly"),
    ("Hold a lock between two commands:", "TOKEN=$(leaselock acquire --lease 1h deploy)"),
    ("", "leaselock release deploy $TOKEN"),
)


def manual_page() -> str:
    """Return the manual page, for man(1)."""
    return "\n".join([*_head(), *_commands(), *_tail()]) + "\n"


def _head() -> Iterator[str]:
    yield f'.TH LEASELOCK 1 "" "leaselock {_escaped(__version__)}" "User Commands"'
    yield from (".SH NAME", r"leaselock \- hold a distributed lock")
    yield from (".SH SYNOPSIS", r"\fBleaselock\fR [\fIOPTIONS\fR] \fICOMMAND\fR ...")
    yield from (".SH DESCRIPTION", *_lines(fill(DESCRIPTION.format(stores=_stores()), WIDTH)))
    yield ".SH OPTIONS"
    yield from _lines(f"Every command has them. {DURATIONS}")
    yield from _options(_common())


def _stores() -> str:
    *others, last = [
        store.title or store.name
        for store, schemes in built_in()
        if not set(schemes) <= set(OF_PROCESS)
    ]
    return f"{', '.join(others)}, or {last}"


def _common() -> list[Parameter]:
    return [param for param in parameters_of(top_parser()) if param.names]


def _commands() -> Iterator[str]:
    yield ".SH COMMANDS"
    common = {param.names for param in _common()}
    for name, command in COMMANDS.items():
        params = parameters_of(parser_of(name))
        positional = [param for param in params if not param.names]
        arguments = [
            f"[{param.metavar}]" if param.optional else param.metavar for param in positional
        ]
        specific = [param for param in params if param.names and param.names not in common]
        synopsis = " ".join([name, *(["[OPTIONS]"] if specific else []), *arguments])
        yield f'.SS "{_escaped(f"leaselock {synopsis}")}"'
        yield from _lines(command.summary)
        yield from _options([*(param for param in positional if param.help), *specific])
        if command.epilog:
            yield from (".PP", ".nf", *_lines(command.epilog), ".fi")


def _options(params: list[Parameter]) -> Iterator[str]:
    for param in params:
        names = ", ".join(rf"\fB{_escaped(name)}\fR" for name in param.names)
        value = rf"\fI{_escaped(param.metavar)}\fR" if param.metavar else ""
        yield from (".TP", " ".join(filter(None, (names, value))), *_lines(param.help))


def _tail() -> Iterator[str]:
    yield from (".SH EXIT STATUS", ".nf", *_lines(exit_codes.TABLE.partition("\n")[2]), ".fi")
    yield ".SH ENVIRONMENT"
    for name, text in ENVIRONMENT.items():
        yield from (".TP", rf"\fB{name}\fR", *_lines(text))
    yield ".SH EXAMPLES"
    for text, command in EXAMPLES:
        yield from (".PP", *_lines(text)) if text else ()
        yield from (".PP", ".nf", rf"\fB{_escaped(command)}\fR", ".fi")
    yield from (".SH SEE ALSO", r"\fBflock\fR(1), \fBtimeout\fR(1)")


def _lines(text: str) -> list[str]:
    return [_escaped(line) or ".sp" for line in text.rstrip("\n").split("\n")]


def _escaped(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    # A dot or an apostrophe at the beginning of a line would begin a request.
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
