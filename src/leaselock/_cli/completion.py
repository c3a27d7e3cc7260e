"""completion: scripts that complete the words of the command in a shell, made from the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.answer import answer
from leaselock._cli.arguments import parser_of, top_parser
from leaselock._cli.commands import COMMANDS
from leaselock._cli.parameters import options_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._cli.options import CompletionOptions
    from leaselock._cli.parameters import Parameter

BASH = """\
# bash completion of leaselock. Load it: source <(leaselock completion bash)
_leaselock() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command= words i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            {valued}) ((i++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    case $command in
{cases}
        *) return ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _leaselock leaselock
"""
ZSH = """\
#compdef leaselock
# zsh completion of leaselock. Load it: source <(leaselock completion zsh)
_leaselock() {{
    local -a commands
    local line state
    commands=(
{commands}
    )
    _arguments -C \\
{common} \\
        '1: :->command' '*:: :->words'
    case $state in
        command) _describe command commands ;;
        words)
            case $line[1] in
{cases}
            esac ;;
    esac
}}
if [ "$funcstack[1]" = _leaselock ]; then _leaselock "$@"; else compdef _leaselock leaselock; fi
"""
FISH = """\
# fish completion of leaselock. Load it: leaselock completion fish | source
# Before each command: {common}
complete -c leaselock -f
"""


def do_completion(options: CompletionOptions) -> int:
    """Print a script that completes the words of the command."""
    text = SCRIPTS[options.shell]()
    if options.json:
        answer(options, {"text": text})
    else:
        print(text, end="")
    return 0


def _bash() -> str:
    top = options_of(top_parser())
    valued = "|".join(name for param in top if param.metavar for name in param.names)
    cases = [_bash_case('""', [*COMMANDS, *(name for param in top for name in param.names)])]
    for command in COMMANDS:
        params = parameters_of(parser_of(command))
        known = [text for param in params for text in (*param.names, *param.choices)]
        cases.append(_bash_case(command, known))
    return BASH.format(valued=valued, cases="\n".join(cases))


def _bash_case(pattern: str, words: list[str]) -> str:
    return f'        {pattern}) words="{" ".join(words)}" ;;'


def _zsh() -> str:
    commands = [f"        {_quoted(f'{name}:{row.summary}')}" for name, row in COMMANDS.items()]
    cases = []
    for command in COMMANDS:
        params = parameters_of(parser_of(command))
        arguments = [_zsh_parameter(param) for param in params]
        joined = " \\\n                    ".join(filter(None, arguments))
        cases.append(f"                {command}) _arguments {joined} ;;")
    common = [f"        {_zsh_parameter(param)}" for param in options_of(top_parser())]
    return ZSH.format(
        commands="\n".join(commands), common=" \\\n".join(common), cases="\n".join(cases)
    )


def _zsh_parameter(param: Parameter) -> str:
    about = param.help.replace("[", "(").replace("]", ")").replace(":", r"\:")
    choices = f"({' '.join(param.choices)})" if param.choices else "_files" * (not param.names)
    if not param.names:
        # Of a command to run, its words are completed as files.
        target = "*" if param.metavar.endswith("...") else ("::" if param.optional else ":")
        head = "*:" if target == "*" else target
        return _quoted(f"{head}{param.metavar.lower()}:{choices}")
    value = f":{param.metavar.lower()}:{choices}" if param.metavar else ""
    names = "{" + ",".join(param.names) + "}" if len(param.names) > 1 else param.names[0]
    return f"{names}{_quoted(f'[{about}]{value}')}"


def _fish() -> str:
    common = options_of(top_parser())
    lines = [FISH.format(common=", ".join(name for param in common for name in param.names))]
    lines += [_fish_line("__fish_use_subcommand", param) for param in common]
    for name, row in COMMANDS.items():
        summary = _quoted(row.summary)
        lines.append(f"complete -c leaselock -n __fish_use_subcommand -a {name} -d {summary}\n")
        condition = f"'__fish_seen_subcommand_from {name}'"
        lines += [_fish_line(condition, param) for param in parameters_of(parser_of(name))]
    return "".join(lines)


def _fish_line(condition: str, param: Parameter) -> str:
    names = "".join(
        f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in param.names
    )
    value = " -x" if param.names and param.metavar else ""
    choices = f" -a {_quoted(' '.join(param.choices))}" if param.choices else ""
    if not names and not choices:
        return ""
    about = _quoted(param.help)
    return f"complete -c leaselock -n {condition}{names}{value}{choices} -d {about}\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


SCRIPTS: dict[str, Callable[[], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
