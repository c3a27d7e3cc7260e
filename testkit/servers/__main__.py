"""python -m testkit.servers [NAME… | all] [-- WORDS FOR PYTEST]: run tests on servers by version.

Each NAME is one of `testkit.servers.versions`; without one they are listed. For each version the
conformance suite (a share of it), the faults and the tests of its kind of server are run, and at
the end a table says how many passed, failed and were skipped. A version that cannot be had here
counts as skipped, never as passed. The exit code is 1 if a test failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from testkit.servers import versions

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "build" / "versions"
OWN = "verification/versions"
SQL = ("tests/conformance/test_sql.py", "tests/backends/sql/test_*.py", "tests/sql/test_*.py")
# A share of the conformance suite is in the first tier, more of it in the second as a variant.
SHARE = ("-m", "not nightly and not heavy and not timing and not statistical")
# The tests of each kind of server.
TESTS = {
    "redis": (
        ("tests/conformance/test_redis*.py", "tests/backends/redis/test_*.py"),
        SHARE,
    ),
    "etcd": (("tests/conformance/test_etcd*.py", "tests/backends/etcd/test_*.py"), SHARE),
    "zookeeper": (
        ("tests/conformance/test_zookeeper*.py", "tests/backends/zookeeper/test_*.py"),
        SHARE,
    ),
    # The server of its tests counts as nightly.
    "kubernetes": (
        ("tests/conformance/test_kubernetes*.py", "tests/backends/kubernetes/test_*.py"),
        ("-m", "not heavy and not timing and not statistical"),
    ),
    "postgres": (SQL, (*SHARE, "-k", "not mariadb")),
    # The server of its tests counts as heavy.
    "mariadb": (SQL, ("-m", "not nightly", "-k", "mariadb")),
}


class Result(NamedTuple):
    """What came of one version."""

    passed: float = 0
    failed: float = 0
    skipped: float = 0
    seconds: float = 0.0


def run(name: str, words: list[str]) -> Result:
    """Run the tests of one version."""
    began = time.monotonic()
    try:
        versions.folder(name)
    except pytest.skip.Exception as error:
        print(f"{name}: {error}", file=sys.stderr)
        return Result(skipped=1, seconds=time.monotonic() - began)
    globs, selection = TESTS[versions.VERSIONS[name].kind]
    paths = [str(path) for glob in globs for path in sorted(ROOT.glob(glob))]
    shared = _pytest(name, "shared", [*selection, *words, *dict.fromkeys(paths)])
    own = _pytest(name, "own", ["-k", name, *words, OWN])
    passed, failed, skipped, _ = (sum(pair) for pair in zip(shared, own, strict=True))
    return Result(passed, failed, skipped, time.monotonic() - began)


def _pytest(name: str, part: str, words: list[str]) -> Result:
    """Run pytest, and count by its report."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name}-{part}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *words]
    ran = subprocess.run(command, cwd=ROOT, check=False, env=os.environ | {versions.SETTING: name})
    if ran.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        # An error before the first test; that there are no tests of its own is none.
        return Result(failed=int(ran.returncode != pytest.ExitCode.NO_TESTS_COLLECTED))
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return Result(total - skipped - failed, failed, skipped)


def main(words: list[str]) -> int:
    """Run the versions that the words name, and print the table."""
    end = words.index("--") if "--" in words else len(words)
    names, rest = words[:end], words[end + 1 :]
    if names == ["all"]:
        names = list(versions.VERSIONS)
    if not names or not set(names) <= versions.VERSIONS.keys():
        print(__doc__, *versions.VERSIONS, sep="\n", file=sys.stderr)
        return 64 if names else 0
    results = {name: run(name, rest) for name in names}
    print("| version | passed | failed | skipped | seconds |\n|---|---|---|---|---|")
    for name, result in results.items():
        print(f"| {name} | {' | '.join(f'{figure:.0f}' for figure in result)} |", flush=True)
    return int(any(result.failed for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
