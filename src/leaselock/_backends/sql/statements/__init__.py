"""Scripts of SQL statements: how they are written, sent and answered.

The statements are in the files of this folder, each under a name: in `shared.sql` and `schema.sql`
those that the dialects have in common but for `MACROS`, the others in a folder for each dialect. A
script is a tuple of names, with the values of their parameters. It is sent in one piece and
answered in one, so it takes one round trip, however many statements it has.

Parameter values are written into the text by the functions here, and by nothing else. They are
numbers or texts. A text becomes a literal that means the same under every session setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container

Value = str | int | None
Values = Mapping[str, Value]
Row = tuple[Any, ...]
# The name of a statement, or its name and the values of its parameters.
Part = str | tuple[str, Values]
Script = tuple[Part, ...]
# The name of a statement whose text is given by its parameter.
RAW = "raw"
# Parameters that PostgreSQL is told to be numbers, when it prepares. The others are texts there.
NUMBERS = frozenset(
    (
        *("backend", "before", "exclusives", "expires", "free_from", "key"),
        *("lapsed_offer", "lease", "liveness_key", "locked", "most", "now", "offered"),
        *("pending", "permits", "polls", "recent", "since", "step"),
        *("ticket", "token"),
    )
)
# Statements after "begin snapshot". They are not prepared: PostgreSQL refuses another isolation
# level after a PREPARE in the same message.
IN_SNAPSHOT = frozenset(("one", "one holds", "queue"))
# What stands in braces in a statement: the server's clock in microseconds of UTC, which neither
# stands still during a transaction nor moves with a time zone; the first column of leaselock_fact;
# what makes a renewal a change, for MySQL counts changed rows, not matching rows; the key that
# shows that the session of a row of leaselock_session is alive, which follows from the id of the
# row; and whether the row has another key, or another backend than the one that names its session.
# {text N} is the type of a text of up to N bytes. {upsert KEY: COLUMNS} ends an INSERT that changes
# these columns of the row, if there is one with that key.
POSTGRES_KEY = (
    "('x' || left(encode(sha256(convert_to('holder:' || id, 'UTF8')), 'hex'), 16))::bit(64)::bigint"
)
MYSQL_KEY = "CONCAT('leaselock.', LEFT(SHA2(CONCAT('holder:', id), 256), 48))"
MACROS = {
    "postgres": {
        "{now}": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        "{fact}": "key",
        "{change}": "",
        "{insert}": "INSERT",
        "{unless there}": "\nON CONFLICT DO NOTHING",
        "{number}": "bigint",
        "{digits}": "text",
        "{:polls}": "(:polls = 1)",
        "{take liveness key}": "pg_try_advisory_lock(:liveness_key)",
        "{name}": 'text COLLATE "C"',
        "{long text}": "text",
        "{yes or no}": "boolean",
        "{liveness key}": "bigint",
        "{options}": "",
        "{options of updated rows}": " WITH (fillfactor = 50)",
        "{index in the table}": "",
        "{index of its own}": (
            "CREATE INDEX IF NOT EXISTS leaselock_session_name\n"
            "ON leaselock_session (protocol, name)"
        ),
        "{holder key}": POSTGRES_KEY,
        "{damaged}": f"(liveness_key <> {POSTGRES_KEY}"
        " OR split_part(session, ':', 3) NOT IN ('', backend::text))",
    },
    "mysql": {
        "{now}": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        "{fact}": "fact",
        "{change}": "1 + ",
        "{insert}": "INSERT IGNORE",
        "{unless there}": "",
        "{number}": "SIGNED",
        "{digits}": "CHAR",
        "{:polls}": ":polls",
        "{take liveness key}": "GET_LOCK(:liveness_key, 0)",
        "{name}": "VARBINARY(255)",
        "{long text}": "BLOB",
        "{yes or no}": "integer",
        "{liveness key}": "VARBINARY(64)",
        "{options}": " ENGINE = InnoDB",
        "{options of updated rows}": " ENGINE = InnoDB",
        "{index in the table}": ",\n    KEY (protocol, name)",
        "{index of its own}": "",
        "{holder key}": MYSQL_KEY,
        "{damaged}": f"(liveness_key <> {MYSQL_KEY} OR session LIKE '%:%:%'"
        " AND SUBSTRING_INDEX(session, ':', -1) <> CAST(backend AS CHAR))",
    },
}
_HERE = os.path.dirname(__file__)
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+) \(")
_COLUMN = re.compile(r"^    ([a-z_]+) ", re.MULTILINE)
# Neither the second colon of a cast nor ":=".
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Result(NamedTuple):
    """What one statement returned."""

    rows: list[Row]
    amount: int
    """How many rows it changed or returned."""
    number: int = 0
    """MySQL: what LAST_INSERT_ID() was set to."""

    def one(self) -> Row | None:
        """The only row, if there is one."""
        return self.rows[0] if self.rows else None


class SqlError(Exception):
    """The server refused a statement: *state* is its SQLSTATE, or the error number of MySQL."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


# Rights of a user or a role, and servers that only read.
POSTGRES_DENIED = frozenset(("42501", "28000", "28P01", "25006"))
MYSQL_DENIED = frozenset(("1044", "1045", "1130", "1142", "1143", "1227", "1290", "1370", "1698"))
# Errors that malformed rows cause: text in place of a number, for example, or too few columns.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Prepared(NamedTuple):
    """A statement that PostgreSQL can prepare, under a name."""

    name: str
    prepare: str
    order: tuple[str, ...]

    def execute(self, literal: Callable[[Value], str], values: Values) -> str:
        """The text that executes it."""
        arguments = ", ".join([literal(values[name]) for name in self.order])
        return f"EXECUTE {self.name} ({arguments})"


class Dialect(NamedTuple):
    """How one kind of database is addressed."""

    name: str
    statements: Mapping[str, str]
    sizes: Mapping[str, int]
    """Of how many statements each consists."""
    schema: tuple[str, ...]
    quote: Callable[[str], str]
    contended: frozenset[str]
    """Errors that mean: nothing was done because of a conflict with others; try again."""
    missing: frozenset[str]
    """Errors that mean: there is no such table."""
    other: frozenset[str]
    """Errors that mean: a table has other columns."""
    denied: frozenset[str]
    """Errors that mean: this user may not do that, or the server is read-only."""
    taken: frozenset[str]
    """Errors that mean: the wait for a lock has timed out."""
    interrupts: bool
    """A listener is woken by interrupting its statement; else by a notification."""
    preparable: Mapping[str, Prepared]
    """The statements that are prepared once per session."""

    def text(self, script: Script, prepared: set[str] | None) -> tuple[Any, list[str]]:
        """The text of a script, and the statements that it prepares and are not in *prepared*."""
        added: list[str] = []
        if prepared is not None:
            wanted = {part[0] for part in script if not isinstance(part, str)}
            added = [name for name in wanted - prepared if name in self.preparable]
            prepared = prepared | set(added)
        lines = [self.preparable[name].prepare for name in added]
        lines += [self._statement(part, prepared or ()) for part in script]
        return ";\n".join(lines), added

    def grouped(self, script: Script, results: list[Result]) -> list[Result]:
        """One result for each part: that of its last statement."""
        grouped, end = [], 0
        for part in script:
            end += self.sizes[part if isinstance(part, str) else part[0]]
            grouped.append(results[end - 1])
        return grouped

    def _statement(self, part: Part, prepared: Container[str]) -> str:
        name, values = (part, None) if isinstance(part, str) else part
        if values and name in prepared:
            return self.preparable[name].execute(self.literal, values)
        if values and name == RAW:
            return str(values["text"])
        return self.fill(self.statements[name], values) if values else self.statements[name]

    def fill(self, statement: str, values: Values) -> str:
        """A statement with its parameters as literals."""
        return _PARAMETER.sub(lambda match: self.literal(values[match[1]]), statement)

    def literal(self, value: Value) -> str:
        """A number, a text or NULL."""
        if value is None:
            return "NULL"
        return str(int(value)) if isinstance(value, int) else self.quote(value)


def _escaped(text: str) -> str:
    """E'' does not depend on standard_conforming_strings; the encoding is UTF-8."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _hexadecimal(text: str) -> str:
    """Bytes, which do not depend on sql_mode and the character set."""
    return f"X'{text.encode('utf-8', 'surrogateescape').hex()}'"


def _blocks(dialect: str, *file: str) -> list[str]:
    """The parts of a file between empty lines, in a dialect."""
    with open(os.path.join(_HERE, *file), encoding="utf-8") as source:
        text = source.read()
    for macro, meant in MACROS[dialect].items():
        text = text.replace(macro, meant)
    postgres = dialect == "postgres"
    text = re.sub(r"{text (\d+)}", "text" if postgres else r"VARBINARY(\1)", text)
    text = re.sub(r"{upsert ([\w, ]+): ([\w, ]+)}", partial(_upsert, postgres), text)
    return [statement for block in text.split("\n\n") if (statement := block.strip().rstrip(";"))]


def _upsert(postgres: bool, macro: re.Match[str]) -> str:
    key, columns = macro[1], macro[2].split(", ")
    if postgres:
        changes = ", ".join([f"{column} = excluded.{column}" for column in columns])
        return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    changes = ", ".join([f"{column} = VALUES({column})" for column in columns])
    return f"ON DUPLICATE KEY UPDATE {changes}"


def _named(dialect: str) -> dict[str, str]:
    """Statements by the name in their first line, without comments."""
    files = (("shared.sql",), (dialect, "lease.sql"), (dialect, "session.sql"))
    named = {}
    for block in (block for file in files for block in _blocks(dialect, *file)):
        title, *lines = block.splitlines()
        body = "\n".join(line for line in lines if not line.startswith("--"))
        named[title.removeprefix("-- ")] = body
    return named


def _preparable(statements: Mapping[str, str]) -> dict[str, Prepared]:
    """All single statements with parameters, except those of a snapshot."""
    made = {}
    for title, body in statements.items():
        single = ";" not in body and title != RAW and title not in IN_SNAPSHOT
        if single and _PARAMETER.search(body):
            made[title] = _prepared(title, body)
    return made


def _prepared(title: str, body: str) -> Prepared:
    order = tuple(dict.fromkeys(_PARAMETER.findall(body)))
    types = ", ".join("bigint" if name in NUMBERS else "text" for name in order)
    numbered = _PARAMETER.sub(lambda match: f"${order.index(match[1]) + 1}", body)
    name = "leaselock_" + title.replace(" ", "_")
    return Prepared(name, f"PREPARE {name} ({types}) AS {numbered}", order)


def columns_of(dialect: Dialect) -> dict[str, list[str]]:
    """The columns of each table, as the statements that create them name them."""
    return {
        table[1]: _COLUMN.findall(statement)
        for statement in dialect.schema
        if (table := _TABLE.search(statement))
    }


@lru_cache(2)
def dialect_of(name: str) -> Dialect:
    """The dialect of that name."""
    statements = _named(name)
    postgres = name == "postgres"
    return Dialect(
        name,
        statements,
        sizes={title: body.count(";") + 1 for title, body in statements.items()},
        schema=tuple(_blocks(name, "schema.sql")),
        quote=_escaped if postgres else _hexadecimal,
        contended=frozenset(
            ("40001", "40P01", "55P03") if postgres else ("1213", "1205", "1969", "3024")
        ),
        missing=frozenset(("42P01",) if postgres else ("1146",)),
        other=frozenset(("42703",) if postgres else ("1054",)),
        denied=POSTGRES_DENIED if postgres else MYSQL_DENIED,
        taken=frozenset(("55P03", "57014") if postgres else ("1205", "3572", "1317", "1969")),
        interrupts=not postgres,
        preparable=_preparable(statements) if postgres else {},
    )
