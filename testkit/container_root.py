"""The program that becomes process 1 of a container of a test, in its new namespaces.

It builds the root directory of the container and gives up what the deployment file says, and then
is replaced by the command. It needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# What an image takes from this machine.
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc")
DEVICES = ("null", "zero", "random", "urandom")
# The programs of an image, and its libraries.
PROGRAMS, LIBRARIES = "opt/bin", "opt/lib"


class Confinement(NamedTuple):
    """What a deployment file says of a container, besides its command."""

    user: str
    """The numbers of the user and of the group, as in "10001:10001"."""
    groups: tuple[int, ...] = ()
    read_only: bool = False
    drops_capabilities: bool = False
    no_new_privileges: bool = False
    env: Mapping[str, str] = {}
    folder: str = "/app"
    """The working directory."""
    temporary: tuple[str, ...] = ()
    """Empty writable directories."""
    files: Mapping[str, str] = {}
    """Files of the machine that are seen in the container, read-only, by their path in it."""
    volumes: Mapping[str, str] = {}
    """The same of writable directories."""


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _bind(source: str, target: str, *, writable: bool = False) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    _mount("--bind", source, target)
    if not writable:
        _mount("-o", "remount,bind,ro", target)


def enter(spec: dict[str, object]) -> None:
    """Build the root directory, and become the command."""
    how = Confinement(**{key: spec[key] for key in Confinement._fields})  # type: ignore[arg-type]
    root = str(spec["root"])
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "image", root)
    for name in SYSTEM:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            _bind(f"/{name}", f"{root}/{name}")
    python = os.path.realpath(sys.base_prefix)
    if not python.startswith("/usr"):
        _bind(python, f"{root}{python}")
    subprocess.run(["cp", "-a", f"{spec['image']}/.", root], check=True)
    _bind(str(spec["hosts"]), f"{root}/etc/hosts")
    os.makedirs(f"{root}/dev")
    for device in DEVICES:
        _bind(f"/dev/{device}", f"{root}/dev/{device}", writable=True)
    os.makedirs(f"{root}/proc")
    _mount("-t", "proc", "proc", f"{root}/proc")
    for path in how.temporary:
        os.makedirs(f"{root}{path}", exist_ok=True)
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}{path}")
    for target, source in how.files.items():
        _bind(source, f"{root}{target}")
    for target, source in how.volumes.items():
        _bind(source, f"{root}{target}", writable=True)
    if how.read_only:
        _mount("-o", "remount,ro", root)
    os.chroot(root)
    os.chdir(how.folder)
    user, _, group = how.user.partition(":")
    words = ["/usr/bin/setpriv", "--reuid", user, "--regid", group]
    words += ["--groups", ",".join(map(str, how.groups))] if how.groups else ["--clear-groups"]
    if how.drops_capabilities:
        words += ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    if how.no_new_privileges:
        words += ["--no-new-privs"]
    env = {"PATH": f"/{PROGRAMS}:/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8", **how.env}
    os.execve(words[0], [*words, "--", *map(str, spec["command"])], env)  # type: ignore[call-overload]


if __name__ == "__main__":
    enter(json.loads(sys.argv[1]))
