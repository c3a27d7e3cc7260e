"""Rules for the source: imports, docstrings, the public names, the methods of the API.

Nothing here acquires a lock. The rules are checked on the text or the signatures, and a failure
names the file and the line.
"""

from __future__ import annotations

import ast
import collections.abc
import inspect
import pickle
import re
import subprocess
import sys
import types
import typing
from inspect import formatannotation
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints
from typing import NamedTuple as TypingNamedTuple

import pytest

import leaselock
from leaselock._core.contract.backend import Claim
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.no_cover

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "leaselock"
MODULES = sorted(SOURCE.rglob("*.py"))
STORES = re.compile("redis|valkey|sqlite|postgres|mysql|mariadb|zookeeper|etcd|dynamo|kube", re.I)
PUBLIC_NAMES = [
    *("Client", "Lock", "Lease", "AsyncClient", "AsyncLock", "AsyncLease", "Holder", "LockInfo"),
    *("Waiter", "Finding", "Changes", "AsyncChanges", "LockChange", "LimitMismatch"),
    *("RWLock", "Semaphore", "LockAll", "Leases", "WouldDeadlock"),
    *("AsyncRWLock", "AsyncSemaphore", "AsyncLockAll", "AsyncLeases", "LockArguments"),
    *("Election", "AsyncElection", "Campaign", "AsyncCampaign"),
    *("LeaselockError", "AcquireTimeout", "NotHeld", "AlreadyHeld"),
    *("LeaseLost", "InvalidName", "ClientClosed", "Event", "DeadlockDetected"),
    *("StoreError", "NotApplied", "StoreUnreachable", "OutcomeUnknown"),
    *("UnsafeProtocolWarning", "__version__"),
    *("StaleVersion", "FenceRejected", "RowNotFound", "AcquireCancelled"),
    *("WaitEdge", "Deadlock", "EventKind", "ErrorReason"),
    *("Store", "RedisClient", "ZooKeeperClient", "SqlEngine", "AwsClient", "IfBusy"),
    *("OnOutage", "exit_on_sigterm"),
]


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Function(NamedTuple):
    """One function of the source, and where it is."""

    where: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def lines(self) -> int:
        """From `def` to the last line, docstring included."""
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def functions() -> Iterator[Function]:
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, FUNCTION):
                yield Function(f"{name_of(path)}:{node.lineno} {node.name}", node)


def imported(path: Path) -> set[str]:
    """The modules that are imported anywhere in the file, functions included."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            found.add(node.module or "")
    return found


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports: when it is loaded, when a function is
    called, or for its types only.
    """
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules) or ({node.module} & modules)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    return found


def cycle_in(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle; empty if there are none."""
    done: set[str] = set()

    def visit(module: str, trail: list[str]) -> list[str]:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module not in done:
            for other in sorted(imports[module]):
                if circle := visit(other, [*trail, module]):
                    return circle
            done.add(module)
        return []

    return next((circle for module in sorted(imports) if (circle := visit(module, []))), [])


# --- imports ------------------------------------------------------------------------------------


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports within functions and for types only are counted, too. The public package itself is
    left out: it names the modules that are loaded when a public name is first used.
    """
    modules = {module_of(path): path for path in MODULES if path != SOURCE / "__init__.py"}
    imports = {module: imports_of(path, set(modules)) for module, path in modules.items()}
    assert cycle_in(imports) == []


def test_every_folder_is_a_package() -> None:
    # import-linter does not see a folder without __init__.py, so nothing in it would be checked.
    assert not [str(folder) for folder in {path.parent for path in MODULES} if lone(folder)]


def lone(folder: Path) -> bool:
    return not (folder / "__init__.py").exists()


# What the core may import in addition to itself: all is without side effects.
PURE = {
    *("__future__", "abc", "collections", "contextlib", "difflib", "enum", "fnmatch", "functools"),
    *("inspect", "itertools", "json", "re", "types", "typing", "warnings", "weakref"),
}


@pytest.mark.parametrize("path", sorted((SOURCE / "_core").rglob("*.py")), ids=name_of)
def test_core_imports_only_itself_the_errors_and_pure_modules(path: Path) -> None:
    ours = {name for name in imported(path) if name.split(".")[0] == "leaselock"}
    assert {name.split(".")[0] for name in imported(path) - ours} <= PURE
    known = ("leaselock._core", "leaselock._named_tuple", "leaselock.errors", "leaselock.version")
    # The public names are for type checkers only.
    assert all(name == "leaselock" or name.startswith(known) for name in ours), ours


# The tests of the core, the drivers and the protocols may look into the core. All others use the
# public names and the contract of a store, and besides only these modules, for the named reason.
INSIDE = (
    *("tests/core/", "tests/drivers/"),
    *("verification/models/", "verification/simulation/", "verification/tla/"),
)
FOR_OTHERS = {
    "client.attempts": "after which wait it is logged",
    "client.claim_registry": "the time of a try; whose requests are still under way",
    "client.client_core": "the deadline of maintenance",
    "client.events": "after which wait it is logged",
    "client.hold": "the reason of a loss on a machine that is too slow",
    "client.inspection": "records that others have written",
    "client.validation": "the limits of names and numbers",
    "client.watching": "how often it looks without notifications",
    "rows.rules": "the times of a queue; rules to be broken on purpose",
}


def test_tests_use_few_private_modules_of_the_core() -> None:
    inside = re.compile(r"leaselock\._core\.(client|rows)(?: import |\.)(\w+)")
    used = {
        (".".join(found), path.relative_to(ROOT).as_posix())
        for folder in ("tests", "testkit", "verification", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if not path.relative_to(ROOT).as_posix().startswith(INSIDE)
        for found in inside.findall(path.read_text("utf-8"))
    }
    assert {(module, path) for module, path in used if module not in FOR_OTHERS} == set()
    assert FOR_OTHERS.keys() == {module for module, _ in used}


@pytest.mark.parametrize("folder", ["_core", "_drivers", "_cli", "_web"])
def test_only_a_store_names_a_store(folder: str) -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in (SOURCE / folder).rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if STORES.search(line)
    ]
    assert found == []


def test_errors_and_version_import_nothing() -> None:
    # The public types of what exceptions carry, for type checkers only.
    assert imported(SOURCE / "errors.py") == {"leaselock", "typing"}
    ours = {name for name in loaded_by("import leaselock.errors") if "leaselock" in name}
    assert ours == {"leaselock", "leaselock.errors", "leaselock.version"}
    assert "typing" not in loaded_by("import leaselock.errors")
    assert not imported(SOURCE / "version.py")


# Slow to load, or at home in one colour only.
HEAVY = {
    *("argparse", "asyncio", "concurrent", "dataclasses", "inspect", "json", "logging"),
    *("multiprocessing", "random", "select", "selectors", "socket", "sqlite3", "ssl"),
    *("subprocess", "tempfile", "threading"),
}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after *statement* and had not before."""
    program = f"import sys; bare = set(sys.modules)\n{statement}\nprint(*set(sys.modules) - bare)"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


def test_importing_leaselock_loads_nothing_else() -> None:
    loaded = loaded_by("import leaselock")
    ours = {name for name in loaded if name.startswith("leaselock")}
    assert ours == {"leaselock", "leaselock.version"}
    assert HEAVY.isdisjoint(loaded)


def test_threads_do_without_the_event_loop() -> None:
    loaded = loaded_by("import leaselock\nwith leaselock.Client('memory://').lock('a'): pass")
    assert "leaselock._drivers.threads" in loaded
    assert {"asyncio", "dataclasses", "sqlite3", "ssl"}.isdisjoint(loaded)


# What `leaselock run` needs in other cases only: a busy lock, --json, another store.
NOT_FOR_A_FREE_LOCK = {
    *("asyncio", "concurrent", "dataclasses", "fnmatch", "inspect", "ipaddress", "json"),
    *("logging", "random", "selectors", "shutil", "socket", "ssl", "subprocess", "tempfile"),
    *("urllib.parse", "importlib.metadata", "leaselock.documents", "leaselock.live"),
    *(f"leaselock._core.{name}" for name in ("deadlocks", "election")),
}


def test_run_loads_only_what_a_free_lock_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules are most of the time of `run x -- true`."""
    monkeypatch.setenv("LEASELOCK_URL", f"sqlite:///{tmp_path}/locks.db")
    command = ["run", "x", "--", "true"]
    loaded = loaded_by(f"from leaselock._cli import main; assert main({command}) == 0")
    assert "leaselock._backends.sqlite.store" in loaded
    assert not loaded & NOT_FOR_A_FREE_LOCK
    ours = {name for name in loaded if name.startswith("leaselock")}
    stores = {name.split(".")[2] for name in ours if name.startswith("leaselock._backends.")}
    assert stores == {"libraries", "sqlite", "url"}
    commands = {"acquire", "check", "lead", "ls", "show", "top", "wait", "watch", "web"}
    assert not ours & {f"leaselock._cli.{name}" for name in commands}


def test_what_run_loads_has_no_tuples_of_typing() -> None:
    """They take three times as long to make as those of `_named_tuple`."""
    loaded = loaded_by(
        "import typing; typing.NamedTuple = None\n"
        "import leaselock._cli.arguments, leaselock._cli.run, leaselock._backends.sqlite.store"
    )
    assert "leaselock._named_tuple" in loaded


def test_named_tuples_are_as_those_of_typing() -> None:
    class Expected(TypingNamedTuple):
        """Text."""

        name: str
        limit: float | None = None

        @property
        def limited(self) -> bool:
            return self.limit is not None

    class Made(NamedTuple):
        """Text."""

        name: str
        limit: float | None = None

        @property
        def limited(self) -> bool:
            return self.limit is not None

    assert tuple(Made("a")) == tuple(Expected("a"))
    assert Made("a", 1.0).limited
    assert not Made("a").limited
    assert repr(Made("a")).endswith("Made(name='a', limit=None)")
    for attribute in ("__doc__", "__module__", "_fields", "_field_defaults", "__slots__"):
        assert getattr(Made, attribute) == getattr(Expected, attribute)
    assert get_type_hints(Made) == get_type_hints(Expected)
    assert pickle.loads(pickle.dumps(Claim("n", "i", "c", 1.0, "", 0.0))).name == "n"
    assert not hasattr(Made("a"), "__dict__")


def test_writes_and_locks_in_transactions_load_no_driver_and_no_event_loop() -> None:
    loaded = loaded_by("import leaselock.optimistic, leaselock.sql")
    assert {"leaselock.optimistic.write", "leaselock.sql"} <= loaded
    assert {"asyncio", "sqlalchemy", "psycopg", "pymysql", "sqlite3"}.isdisjoint(loaded)


# --- sizes and names ----------------------------------------------------------------------------


def test_a_module_opens_with_a_docstring() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def is_overload(node: ast.stmt) -> bool:
    """Whether it is types only, for a function whose docstring follows."""
    marks = node.decorator_list if isinstance(node, FUNCTION) else []
    return any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in marks)


def undocumented(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """The public functions and classes of a module or class that have no docstring."""
    for node in body:
        if not isinstance(node, (ast.ClassDef, *FUNCTION)):
            continue
        if node.name.startswith("_") or is_overload(node):
            continue
        if not ast.get_docstring(node):
            yield f"{prefix}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, prefix)


def test_public_names_have_a_docstring() -> None:
    assert [
        name for path in MODULES for name in undocumented(tree_of(path).body, name_of(path))
    ] == []


# --- the public face ----------------------------------------------------------------------------


def test_the_public_names_are_these() -> None:
    assert sorted(leaselock.__all__) == sorted(PUBLIC_NAMES)
    assert set(PUBLIC_NAMES) <= set(dir(leaselock))


# What annotations may name besides what is public: the standard library, and type variables.
KNOWN_TYPES = {
    **{name: getattr(module, name) for module in (typing, collections.abc) for name in dir(module)},
    **{"TracebackType": types.TracebackType, "P": typing.ParamSpec("P"), "R": typing.TypeVar("R")},
}
# What users call without naming it.
CALLED = {
    *("__enter__", "__aenter__", "__iter__", "__aiter__", "__next__", "__anext__", "__call__"),
    *("__exit__", "__aexit__"),
}
# Whose instances users make. Methods make the others, from parts that are not public.
MADE_BY_USERS = (leaselock.Client, leaselock.AsyncClient, BaseException, tuple)


def annotated(cls: type) -> Iterator[tuple[str, str]]:
    """Each part of a class that users see, and its annotation."""
    seen = [(cls.__name__, vars(cls).get("__annotations__", {}))]
    called = CALLED | ({"__init__"} if issubclass(cls, MADE_BY_USERS) else set())
    for name, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function) and (name in called or not name.startswith("_")):
            seen.append((f"{cls.__name__}.{name}", function.__annotations__))
    for where, parts in seen:
        for part, annotation in parts.items():
            text = getattr(annotation, "__forward_arg__", annotation)
            yield f"{where}, {part}", text if isinstance(text, str) else formatannotation(text)


def not_public(cls: type) -> list[str]:
    """What annotations of a class name, and users cannot import."""
    known = KNOWN_TYPES | {name: getattr(leaselock, name) for name in PUBLIC_NAMES}
    found = []
    for where, annotation in annotated(cls):
        try:
            eval(annotation, known)
        except NameError as error:
            found.append(f"{where}: {error}")
    return found


def test_what_public_names_take_return_and_have_is_public() -> None:
    values = [getattr(leaselock, name) for name in PUBLIC_NAMES]
    assert [each for value in values if isinstance(value, type) for each in not_public(value)] == []


# --- the interface -------------------------------------------------------------------------------

# What takes more than one statement: putting the parts together, making a decorated function, and
# ending a lease before anything can interrupt that.
EXEMPT = {"__init__", "__call__", "__aexit__"}


def simple(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body is a docstring, if any, and one statement that holds no others."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return len(body) <= 1 and not any(hasattr(statement, "body") for statement in body)


def busy_methods(shell: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in shell.body:
        if isinstance(node, FUNCTION) and node.name not in EXEMPT and not simple(node):
            yield node


def test_a_method_of_the_api_is_one_statement() -> None:
    shells = [
        node for node in tree_of(SOURCE / "_api/aio.py").body if isinstance(node, ast.ClassDef)
    ]
    assert len(shells) == 10
    busy = [f"{shell.name}.{node.name}" for shell in shells for node in busy_methods(shell)]
    assert not busy
