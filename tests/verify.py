"""The second and the third tier: `make verify` and `make release-checks` run this.

It is about real time and chance. So a test that fails together with others is repeated once, alone;
when it passes then, it is reported as flaky. What is broken fails again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
PYTEST = [sys.executable, "-m", "pytest", "-rfE"]
TESTS_FAILED = 1
# More than these are no accident.
MOST = 20


def main(options: list[str]) -> int:
    """Run, and repeat what failed; the exit code of pytest."""
    FAILED.unlink(missing_ok=True)
    code = subprocess.run([*PYTEST, *options], cwd=ROOT).returncode
    failed = names()
    if code != TESTS_FAILED or not 0 < len(failed) <= MOST:
        return code
    print(f"\nrepeated once, alone: {len(failed)} failed together with others", flush=True)
    tier = options[options.index("--tier") :][:2]
    alone = ["-p", "tests.skips", "--last-failed", "--last-failed-no-failures", "none"]
    again = [*PYTEST, *tier, *alone]
    code = subprocess.run(again, cwd=ROOT).returncode
    still = names() if code else []
    for name in failed:
        if name not in still:
            print(f"flaky: {name}")
    return code


def names() -> list[str]:
    """The tests that failed when they were run last."""
    return list(json.loads(FAILED.read_text("utf-8"))) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
