"""Count text that exists twice, once blocking and once for asyncio.

    python scripts/colours.py [SOURCE ...] [--least LINES] [--similar RATIO]

For each package below a source tree (default: src), functions and methods of the same name are
compared after `async`, `await`, "Async" and "Aio" are removed, with docstrings and comments left
out. One of them must be asyncio code, the other not. Two count as a pair if they are similar, and
the lines that are equal, in order, count as duplicated. Several trees can be given.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

# Parts of names that tell the two kinds apart.
COLOUR = re.compile(r"async_?|_?async|aio_?|_?aio|blocking_?|asynchronous_?|task|thread", re.I)
CALLS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


class Function(NamedTuple):
    """A function or method without its colour."""

    module: str
    owner: str
    name: str
    lines: tuple[str, ...]
    is_async: bool

    @property
    def key(self) -> str:
        """The name by which two functions are compared."""
        return COLOUR.sub("", CALLS.get(self.name, self.name)).lower()

    def __str__(self) -> str:
        return f"{self.module}:{self.owner + '.' if self.owner else ''}{self.name}"


class Pair(NamedTuple):
    """Two functions that differ by colour, and the number of their equal lines."""

    blocking: Function
    asynchronous: Function
    equal: int


class Strip(ast.NodeTransformer):
    """Removes async, await and docstrings."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Make it a plain function."""
        plain = ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})
        return self.visit_FunctionDef(ast.copy_location(plain, node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Remove its docstring."""
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """Keep what is awaited."""
        awaited: ast.AST = self.visit(node.value)
        return awaited

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """Make it a plain with."""
        plain = ast.With(items=node.items, body=node.body)
        return self.generic_visit(ast.copy_location(plain, node))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """Make it a plain loop."""
        plain = ast.For(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse)
        return self.generic_visit(ast.copy_location(plain, node))


def functions_in(path: Path, module: str) -> list[Function]:
    """Return the functions and methods of a module, without nested ones."""
    tree = ast.parse(path.read_text("utf-8"))
    found = _functions(tree.body, module, "", "aio" in path.stem or "async" in path.stem)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            of_async = any(isinstance(part, ast.AsyncFunctionDef) for part in ast.walk(node))
            found += _functions(node.body, module, node.name, of_async)
    return found


def _functions(body: list[ast.stmt], module: str, owner: str, of_async: bool) -> list[Function]:
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_async = of_async or isinstance(node, ast.AsyncFunctionDef)
            plain = ast.unparse(ast.fix_missing_locations(Strip().visit(node)))
            lines = tuple(COLOUR.sub("", line) for line in plain.splitlines())
            found.append(Function(module, owner, node.name, lines, is_async))
    return found


def pairs_of(functions: list[Function], least: int, similar: float) -> list[Pair]:
    """Return the pairs among the functions of a package; each function is in one pair at most."""
    by_key: dict[str, tuple[list[Function], list[Function]]] = defaultdict(lambda: ([], []))
    for function in functions:
        if len(function.lines) >= least:
            by_key[function.key][function.is_async].append(function)
    found: list[Pair] = []
    for blocking, asynchronous in by_key.values():
        candidates = sorted(
            ((_equal_lines(a, b), a, b) for a in blocking for b in asynchronous),
            key=lambda candidate: -candidate[0],
        )
        used: set[Function] = set()
        for equal, a, b in candidates:
            if {a, b} & used or equal / max(len(a.lines), len(b.lines)) < similar:
                continue
            used |= {a, b}
            found.append(Pair(a, b, equal))
    return found


def _equal_lines(one: Function, other: Function) -> int:
    matcher = SequenceMatcher(None, one.lines, other.lines, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks())


def package_of(path: Path, source: Path) -> str:
    """Return the package that a module counts for: backends/redis, api, core and so on."""
    parts = path.relative_to(source).parts[1:-1]
    return "/".join(parts[:2]) if parts[:1] == ("backends",) else "/".join(parts[:1]) or "."


def report(source: Path, least: int, similar: float) -> None:
    """Print the pairs of each package and the totals."""
    packages: dict[str, list[Function]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        module = str(path.relative_to(source).with_suffix(""))
        packages[package_of(path, source)] += functions_in(path, module)
    print(f"# {source}")
    total = 0
    for package, functions in sorted(packages.items()):
        pairs = pairs_of(functions, least, similar)
        if not pairs:
            continue
        equal = sum(pair.equal for pair in pairs)
        total += equal
        print(f"\n{package}: {equal} lines in {len(pairs)} pairs")
        for pair in sorted(pairs, key=lambda pair: -pair.equal):
            print(f"  {pair.equal:4}  {pair.blocking}  {pair.asynchronous}")
    print(f"\ntotal: {total} lines")


def main() -> None:
    """Report each tree that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, default=[Path("src")], metavar="SOURCE")
    parser.add_argument("--least", type=int, default=2, help="lines of a function (2)")
    parser.add_argument("--similar", type=float, default=0.5, help="part of equal lines (0.5)")
    options = parser.parse_args()
    for source in options.sources:
        report(source, options.least, options.similar)


if __name__ == "__main__":
    main()
