"""help: of a command or on the exit codes; the manual page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.arguments import parser_of, top_parser
from leaselock._cli.commands import ALIASES, COMMANDS
from leaselock._cli.exit_codes import Usage

if TYPE_CHECKING:
    from leaselock._cli.options import HelpOptions

EXIT_CODES = "exit-codes"


def do_help(options: HelpOptions) -> int:
    """Print help: of a command, of the exit codes, of everything; or the manual page."""
    text = _help(options)
    if options.json:
        answer(options, {"text": text})
    else:
        print(text, end="")
    return 0


def _help(options: HelpOptions) -> str:
    if options.man:
        from leaselock._cli.manual_page import manual_page

        return manual_page()
    if options.topic is None:
        return top_parser().format_help()
    topic = ALIASES.get(options.topic, options.topic)
    if topic == EXIT_CODES:
        return exit_codes.TABLE
    if topic not in COMMANDS:
        raise Usage(f"there is no help on {topic!r}: name a command, or {EXIT_CODES}")
    return parser_of(topic).format_help()
