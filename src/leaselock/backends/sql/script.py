"""What a conversation with a database consists of: scripts of statements, and their results.

A conversation is a generator: it yields scripts and is sent their results, so its text is one
for threads and for asyncio. Each script is sent in one piece and answered in one, so it costs
one round trip, however many statements it has.

Values are written into the text by the functions here, and by nothing else. They are numbers or
texts: a text becomes a literal that no setting of the session changes the meaning of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Container

T = TypeVar("T")
Value = str | int | None
Words = Mapping[str, Value]
Row = tuple[Any, ...]
# Each part is the name of a statement, or its name and the words for it.
Part = str | tuple[str, Words]
# A statement of the schema, as it stands in its file.
RAW = "raw"
# Which words are numbers; the others are texts.
NUMBERS = frozenset(
    ("backend", "before", "beside", "expires", "key", "lease", "now", "polls", "sign", "since")
) | {"ticket", "token"}
_HERE = os.path.dirname(__file__)
# Not the second colon of a cast, and not ":=".
_WORD = re.compile(r"(?<!:):([a-z]+)")


class Result(NamedTuple):
    """What one statement brought."""

    rows: list[Row]
    amount: int
    """How many rows it changed, or returned."""
    number: int = 0
    """MySQL: what LAST_INSERT_ID() was set to."""

    def one(self) -> Row | None:
        """The only row, if there is one."""
        return self.rows[0] if self.rows else None


class SqlError(Exception):
    """The server refused a statement: *state* is its SQLSTATE, or the number of MySQL's error."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


# What reading rows that make no sense ends in: a word for a number, say, or too few columns.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def senseless(line: Any, error: Exception) -> OutcomeUnknown:
    """The database has answered in a way that cannot be understood: what was asked may have been
    done, and what the session of that line, if it was one, keeps is not known.
    """
    if line is not None:
        forget(line)
    return OutcomeUnknown(
        f"an answer of the database makes no sense: {type(error).__name__}: {error}"
    )


Script = tuple[Part, ...]
Steps = Generator[Script, list[Result], T]


class Kept(NamedTuple):
    """A statement that PostgreSQL keeps for a session, under a name."""

    name: str
    prepare: str
    order: tuple[str, ...]

    def execute(self, literal: Callable[[Value], str], words: Words) -> str:
        """Have it carried out."""
        values = ", ".join([literal(words[word]) for word in self.order])
        return f"EXECUTE {self.name} ({values})"


class Dialect(NamedTuple):
    """How one kind of database is spoken to."""

    name: str
    statements: Mapping[str, str]
    sizes: Mapping[str, int]
    """Of how many statements in truth each consists."""
    schema: tuple[str, ...]
    quote: Callable[[str], str]
    contended: frozenset[str]
    """Errors that mean: nothing was done, for others were in the way; try again."""
    missing: frozenset[str]
    """Errors that mean: there is no such table."""
    taken: frozenset[str]
    """Errors that mean: the lock is somebody else's, and the time to wait for it is over."""
    rings: bool
    """Whether a waiting connection is woken by interrupting its query."""
    kept: Mapping[str, Kept]
    """What a session may keep, parsed and planned, instead of being told it each time."""

    def text(self, script: Script, kept: set[str] | None = None) -> tuple[str, list[str]]:
        """The script as it is sent, and what it adds to the statements *kept* by the server."""
        added: list[str] = []
        if kept is not None:
            wanted = {part[0] for part in script if not isinstance(part, str)}
            added = [title for title in wanted - kept if title in self.kept]
            kept = kept | set(added)
        lines = [self.kept[title].prepare for title in added]
        lines += [self._statement(part, kept or ()) for part in script]
        return ";\n".join(lines), added

    def grouped(self, script: Script, results: list[Result]) -> list[Result]:
        """One result for each part: that of its last statement."""
        grouped, end = [], 0
        for part in script:
            end += self.sizes[part if isinstance(part, str) else part[0]]
            grouped.append(results[end - 1])
        return grouped

    def _statement(self, part: Part, kept: Container[str]) -> str:
        name, words = (part, None) if isinstance(part, str) else part
        if words and name in kept:
            return self.kept[name].execute(self.literal, words)
        if words and name == RAW:
            return str(words["text"])
        return self.fill(self.statements[name], words) if words else self.statements[name]

    def fill(self, statement: str, words: Words) -> str:
        """A statement with its words as literals."""
        return _WORD.sub(lambda match: self.literal(words[match[1]]), statement)

    def literal(self, value: Value) -> str:
        """A number, a text or NULL."""
        if value is None:
            return "NULL"
        return str(int(value)) if isinstance(value, int) else self.quote(value)


def _escaped(text: str) -> str:
    """E'' means the same whatever standard_conforming_strings is; the encoding is UTF-8."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _hexadecimal(text: str) -> str:
    """Bytes, which no sql_mode and no character set reads otherwise."""
    return f"X'{text.encode().hex()}'"


def _file(dialect: str, file: str) -> list[str]:
    path = os.path.join(_HERE, "statements", dialect, file)
    with open(path, encoding="utf-8") as source:
        return [block for block in source.read().split("\n\n") if block.strip()]


def _named(blocks: list[str]) -> dict[str, str]:
    """Statements by the name in the comment line that opens each; other comments fall away."""
    named = {}
    for block in blocks:
        title, *lines = block.strip().splitlines()
        body = "\n".join(line for line in lines if not line.startswith("--"))
        named[title.removeprefix("-- ")] = body
    return named


def _kept(statements: Mapping[str, str]) -> dict[str, Kept]:
    """Of each statement that is but one, and has words."""
    made = {}
    for title, body in statements.items():
        if ";" not in body and title != RAW and _WORD.search(body):
            made[title] = _keeping(title, body)
    return made


def _keeping(title: str, body: str) -> Kept:
    order = tuple(dict.fromkeys(_WORD.findall(body)))
    types = ", ".join("bigint" if word in NUMBERS else "text" for word in order)
    numbered = _WORD.sub(lambda match: f"${order.index(match[1]) + 1}", body)
    name = "leaselock_" + title.replace(" ", "_")
    return Kept(name, f"PREPARE {name} ({types}) AS {numbered}", order)


def asked(line: Any, dialect: Dialect, script: Script, until: float) -> list[Result]:
    """Have a line carry out a script; one result for each part."""
    text, added = dialect.text(script, line.kept)
    try:
        results = line.run(text, until)
    except SqlError:
        forget(line)
        raise
    return dialect.grouped(script, remember(line, added, results))


def forget(line: Any) -> None:
    """Nobody knows what the session keeps, after an error: from now on it is told everything."""
    line.kept = None


def remember(line: Any, added: list[str], results: list[Result]) -> list[Result]:
    """The session keeps what was *added*; the results of all the rest."""
    if added:
        line.kept.update(added)
    return results[len(added) :]


@lru_cache(2)
def dialect_of(name: str) -> Dialect:
    """The dialect of that name."""
    statements = {**_named(_file(name, "lease.sql")), **_named(_file(name, "session.sql"))}
    postgres = name == "postgres"
    return Dialect(
        name,
        statements,
        sizes={title: body.count(";") + 1 for title, body in statements.items()},
        schema=tuple(block.strip().rstrip(";") for block in _file(name, "schema.sql")),
        quote=_escaped if postgres else _hexadecimal,
        contended=frozenset(("40001", "40P01", "55P03") if postgres else ("1213", "1205")),
        missing=frozenset(("42P01", "42703") if postgres else ("1146", "1054")),
        taken=frozenset(("55P03", "57014") if postgres else ("1205", "3572", "1317", "1969")),
        rings=not postgres,
        kept=_kept(statements) if postgres else {},
    )
