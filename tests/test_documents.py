"""Everything that the documents refer to exists: tests, files and links.

The reference pages name every public name, argument and command, and the index every page.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest
from benchmarks import page as benchmark_pages

import leaselock
from leaselock._backends import stores_with
from leaselock._cli.arguments import parser_of
from leaselock._cli.commands import COMMANDS
from leaselock._cli.parameters import options_of

ROOT = Path(__file__).parents[1]
# Until the owner has filled in the project's URLs, the name is not on the package index.
REGISTERED = "leaselock.example" not in (ROOT / "pyproject.toml").read_text("utf-8")
# The build of the site copies the pages of the root to docs/project.
COPIES = ROOT / "docs" / "project"
TEMPLATES = {ROOT / "verification" / "chaos" / "page.md"}
BESIDE_CODE = {
    *(ROOT / name / "README.md" for name in ("src", "tests")),
    *(ROOT / "verification").glob("*/*.md"),
}
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *BESIDE_CODE}.difference(
        COPIES.glob("*.md"), TEMPLATES
    )
)
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix != ".pyc"
)
REFERENCE = ROOT / "docs" / "reference"
TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`")


# A command as a page shows it, up to the end of its own words.
SHOWN = re.compile(rf"\bleaselock ({'|'.join(COMMANDS)})\b((?:(?! -- )[^`\n#;|&)])*)")
OPTION = re.compile(r"(?<=\s)--?[a-zA-Z][a-z-]*")
# The part of a store's URL that a page shows, or its options alone.
URL = re.compile(r"(?:(?<=[`\"'\s])|([a-z]\w+(?:\+\w+)?)://[^\s?`\"']*)\?([a-z_]+=[^\s`\"')]*)")
STORES = (
    *("redis://h", "unix:///redis.sock", "redis+sentinel://h/s", "redis+cluster://h"),
    *("zookeeper://h", "etcds://h"),
    *("postgresql://h/d", "mysql://h/d", "kubernetes://n", "dynamodb://table", "s3://bucket"),
    *("sqlite:////a/b.db", "memory://"),
)
PACKAGE = ROOT / "src" / "leaselock"
# The folders of the repository and of the package, by which the documents name files.
FOLDERS = (
    *("benchmarks", "docs", "examples", "scripts", "src", "testkit", "tests", "verification"),
    *("contrib", r"leaselock/_\w+", "_api", "_backends", "_cli", "_core", "_drivers", "_web"),
    *(r"\.ci", r"\.github"),
)
# Not in a link, which has a test of its own, and not a pattern with `<store>` or `*`.
NAMED_FILE = re.compile(rf"(?<![\w/.:(-])((?:{'|'.join(FOLDERS)})/[\w./-]*[\w/])(?![\w<*…{{])")
MAKE = re.compile(r"(?:^ {4}|`|^\$ )make ([a-z-]+)", re.M)
MODULE = re.compile(rf"\bpython -m ((?:leaselock|{'|'.join(FOLDERS[:8])})(?:\.\w+)*)")
# The program that a line of a crontab starts.
CRON = re.compile(r"^(?:[*\d][*\d/,-]* +){5}(\S+)", re.M)
# An installation of leaselock by its name alone.
FROM_INDEX = re.compile(r"pip install [^\n`]*?(?<![\w/.])leaselock(?!-)\b(?!\S* @ ).*")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
ANCHORED = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


@cache
def headings(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).lower() for text in found]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain}


@cache
def functions(path: Path) -> set[str]:
    """Return the names of the functions in a file."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_references_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for path, name in TEST.findall(text):
        assert (ROOT / path).exists(), path
        assert not name or name in functions(ROOT / path), f"{path}::{name}"
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link


def test_links_of_pages_beside_the_code_lead_to_headings() -> None:
    """`make docs` checks those of the site."""
    lost = {
        f"{page.relative_to(ROOT)}: {link}#{anchor}"
        for page in sorted({*BESIDE_CODE, *ROOT.glob("*.md")})
        for link, anchor in ANCHORED.findall(page.read_text("utf-8"))
        if anchor not in headings((page.parent / link).resolve() if link else page)
    }
    assert lost == set()


def test_files_that_the_documents_name_exist() -> None:
    named = {(page, path) for page in PAGES for path in NAMED_FILE.findall(page.read_text("utf-8"))}
    assert len(named) > 200
    found = ROOT, PACKAGE, PACKAGE.parent
    lost = {
        f"{page.relative_to(ROOT)}: {path}"
        for page, path in named
        if not any((folder / path).exists() for folder in found)
    }
    assert lost == set()


def test_targets_and_modules_that_the_documents_run_exist() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(MAKE.findall(text))
    assert len(targets) > 5
    assert targets - set(re.findall(r"^([a-z-]+):", makefile, re.M)) == set()
    modules = {name.replace(".", "/") for name in MODULE.findall(text)}
    assert len(modules) > 5
    paths = [folder / name for folder in (ROOT, PACKAGE.parent) for name in modules]
    lost = {
        str(path.relative_to(ROOT))
        for path in paths
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists()
    }
    assert {name for name in modules if {name, f"src/{name}"} <= lost} == set()


def test_the_reference_names_every_store_that_has_min_hold() -> None:
    """The other pages link to it."""
    page = (REFERENCE / "python.md").read_text("utf-8")
    (paragraph,) = re.findall(r"^\* \*\*`min_hold`\*\*.*?(?=^\* )", page, re.M | re.S)
    stores = re.findall(r"memory|[A-Z][A-Za-z0-9]+", stores_with("min_hold"))
    assert len(stores) >= 8
    assert [store for store in stores if store not in paragraph] == []


def words_of(page: str) -> set[str]:
    """Return all words on a reference page."""
    return set(re.findall(r"\w+", (REFERENCE / page).read_text("utf-8")))


def test_reference_pages_name_everything_that_is_exported() -> None:
    names = {name for name in leaselock.__all__ if not name.startswith("_")}
    pages = ("python.md", "asyncio-classes.md", "exceptions.md")
    assert names <= set().union(*map(words_of, pages))


@pytest.mark.parametrize("client", [leaselock.Client, leaselock.AsyncClient])
def test_docstrings_explain_every_argument(client: type) -> None:
    described = inspect.getdoc(client), inspect.getdoc(client.lock)  # type: ignore[attr-defined]
    offered = client, client.lock  # type: ignore[attr-defined]
    for function, text in zip(offered, described, strict=True):
        # `unknown` are the arguments of other libraries; the first sentence says what a name is.
        for argument in inspect.signature(function).parameters.keys() - {"self", "name", "unknown"}:
            assert f"*{argument}*" in str(text), argument


def test_commands_in_the_documents_have_the_options_that_are_shown() -> None:
    files = [*PAGES, *EXAMPLES]
    shown = [line for file in files for line in SHOWN.findall(file.read_text("utf-8"))]
    known = {
        command: {name for word in options_of(parser_of(command)) for name in word.names}
        for command in COMMANDS
    }
    used = {(command, option) for command, words in shown for option in OPTION.findall(words)}
    assert len(used) > 20
    assert {pair for pair in used if pair[1] not in known[pair[0]]} == set()


def test_lines_of_crontabs_name_programs_by_their_paths() -> None:
    # cron searches /usr/bin and /bin only.
    files = [*PAGES, *EXAMPLES]
    named = [name for file in files for name in CRON.findall(file.read_text("utf-8"))]
    assert len(named) >= 4
    assert [name for name in named if not name.startswith("/")] == []


def knows(store: str, option: str) -> bool:
    """Return whether the URL of a store may have an option; its value may be refused."""
    try:
        leaselock.Client(f"{store}?{option}=1").close()
    except ValueError as error:
        unknown = rf"(unknown|connection) option ['\"]{option}\b|know {option}\b|not '{option}'"
        return not re.search(unknown, str(error))
    return True


@pytest.mark.filterwarnings("ignore:an object store answers:UserWarning")
def test_options_of_urls_in_the_documents_are_known_to_the_store() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    shown = {
        (scheme, part.partition("=")[0])
        for scheme, options in URL.findall(text)
        for part in options.split("&")
        if not scheme.startswith("http")
    }
    known = {
        (scheme, option): [
            store
            for store in STORES
            if not scheme or store[:5] == scheme[:5] or scheme in store
            if knows(store, option)
        ]
        for scheme, option in shown
    }
    assert len(known) > 30
    assert {pair for pair, stores in known.items() if not stores} == set()


def test_leaselock_is_installed_from_where_it_is() -> None:
    from_index = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in [*PAGES, *EXAMPLES, *(ROOT / "src").rglob("*.py")]
        for found in FROM_INDEX.findall(path.read_text("utf-8"))
    }
    assert REGISTERED or from_index == set()


def test_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index}
    # The index names those that the site publishes.
    pages -= set((ROOT / "docs" / "decisions").glob("*.md"))
    assert {str(page.relative_to(ROOT)) for page in pages if page.resolve() not in linked} == set()


def test_figures_of_the_pages_are_those_of_the_published_run() -> None:
    text = Path(benchmark_pages.PUBLISHED, "results.json").read_text("utf-8")
    for page in benchmark_pages.PAGES:
        shown = page.read_text("utf-8")
        assert benchmark_pages.MARKED.search(shown)
        assert benchmark_pages.filled(shown, json.loads(text)) == shown


def test_pages_are_written_from_a_run_that_lacks_something() -> None:
    document = json.loads(Path(benchmark_pages.PUBLISHED, "results.json").read_text("utf-8"))
    page = "".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in benchmark_pages.TABLES)
    whole = document["results"]
    for name in whole:
        rest = {other: tables for other, tables in whole.items() if other != name}
        alone = {name: whole[name]}
        failed = whole | {name: [{"title": f"{name}: failed", "goals": [], "failed": "OSError"}]}
        for results in (rest, alone, failed):
            assert benchmark_pages.filled(page, document | {"results": results})
