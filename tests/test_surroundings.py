"""The tests do not depend on the folder, the user and the way in which the run is started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.surroundings import UMASK, reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


# Replaces itself by the command after its settings: like nohup, setsid, cron and a service manager
# that all took part.
HOSTILE = """
import json, os, resource, signal, sys
settings = json.loads(sys.argv[1])
for number in (1, 2, 3, 13, 15):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.umask(0o077)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.setsid()
environment = os.environ | settings
del environment["HOME"]
os.execve(sys.argv[2], sys.argv[2:], environment)
"""
# Where a .pth file names a folder that the locale cannot express, Python 3.11.2 does not start.
LOCALE = "C" if str(ROOT).isascii() else "C.UTF-8"
SETTINGS = {
    "LANG": LOCALE,
    "LC_ALL": LOCALE,
    "TZ": "Asia/Tokyo",
    "LEASELOCK_URL": "redis://nowhere",
    "PGOPTIONS": "-c nonsense=1",
    "PGHOST": "nowhere",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# What a child process of a test finds.
LOOK = """
import json, os, resource, signal, sys
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
with open("/proc/self/status") as file:
    masks = dict(line.split(":") for line in file if line.startswith(("SigIgn", "SigBlk")))
umask = os.umask(0)
print(json.dumps({
    "ignored": int(masks["SigIgn"], 16),
    "blocked": int(masks["SigBlk"], 16),
    "umask": umask,
    "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
    "personal": [n for n in os.environ if n in ("LEASELOCK_URL", "PGOPTIONS", "PGHOST")],
    "home": os.environ["HOME"],
    "compiles again": sys.dont_write_bytecode,
}))
"""


def found_by_a_child() -> Any:
    # A shell in between: Python itself ignores SIGPIPE and SIGXFSZ.
    look = ["sh", "-c", 'cat /proc/self/status; "$0" -c "$1"', sys.executable, LOOK]
    done = subprocess.run(look, check=True, capture_output=True, text=True)
    status, _, looked = done.stdout.rpartition("\n{")
    found = json.loads("{" + looked)
    masks = dict(line.split(":", 1) for line in status.splitlines())
    # The C library keeps the first real-time signals; a parent may have left them ignored.
    standard = (1 << signal.SIGSYS) - 1
    return found | {"ignored": int(masks["SigIgn"], 16) & standard}


def test_a_child_of_a_test_finds_what_the_tests_expect() -> None:
    found = found_by_a_child()
    assert not found["ignored"]
    assert not found["blocked"]
    assert found["umask"] == UMASK
    soft, hard = found["descriptors"]
    assert soft == -1 or soft >= 1200 or soft == hard
    assert not found["personal"]
    assert not found["compiles again"]
    assert Path(found["home"]).is_dir()


@pytest.fixture
def odd() -> Iterator[Path]:
    """A folder with a blank and a letter that is not ASCII, where other users can write, too."""
    folder = Path(tempfile.mkdtemp(dir=reachable(), prefix="a space and é "))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def run_in_hostile_surroundings(odd: Path, *tests: str) -> str:
    """What pytest says when something hostile starts it, TMPDIR being an odd folder."""
    settings = json.dumps(SETTINGS | {"TMPDIR": str(odd)})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, settings, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hostile_surroundings_are_undone(odd: Path) -> None:
    name = test_a_child_of_a_test_finds_what_the_tests_expect.__name__
    said = run_in_hostile_surroundings(odd, f"tests/{Path(__file__).name}::{name}")
    assert "1 passed" in said
