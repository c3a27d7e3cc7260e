"""A small network of the tests' own: places in network namespaces, one router between all of them.

Law: what is cut vanishes. The router takes a packet and sends nothing, so that no end hears more
than silence: no reset, no "unreachable", and both ends' lines stay up. One way may be cut alone.
Names are random; nothing is left when it is closed. Where the kernel or the user's rights do not
allow it, that is a skip in plain words.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from typing import Self

import pytest
from tests.servers.process import Place, program

# 198.18.0.0/15 is set aside for networks that are none: each has 256 addresses of it.
ADDRESSES = "198.{}.{}.{}"


class Net:
    """The router, this machine's own place in it, and those that are asked for."""

    def __init__(self) -> None:
        self.ip = program("ip", "/usr/sbin")
        self.name = f"leaselock-{secrets.token_hex(4)}"
        self.prefix = 18 + secrets.randbelow(2), secrets.randbelow(256)
        self.links = 0
        self.spaces: list[str] = []
        self.rules: list[tuple[str, ...]] = []
        try:
            self.router = self._space()
            self._exec(self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            self.near = Place(self._link(""))
        except subprocess.CalledProcessError as error:
            self.close()
            pytest.skip(f"not permitted here: network namespaces ({error.stderr.strip()})")

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)

    def _exec(self, space: str, *command: str) -> None:
        self._run(self.ip, "netns", "exec", space, *command)

    def _space(self) -> str:
        name = f"{self.name}-{len(self.spaces)}"
        self._run(self.ip, "netns", "add", name)
        self.spaces.append(name)
        self._in(name, "link", "set", "lo", "up")
        return name

    def _in(self, space: str, *words: str) -> None:
        self._run(self.ip, *(("-n", space) if space else ()), *words)

    def _link(self, space: str) -> str:
        """A line from there to the router, and the way to everywhere; the address there."""
        theirs, ours = f"hf{secrets.token_hex(5)}", f"line{self.links}"
        at, gate = (ADDRESSES.format(*self.prefix, 4 * self.links + n) for n in (1, 2))
        self.links += 1
        self._in(self.router, "link", "add", ours, "type", "veth", "peer", "name", theirs)
        self._in(self.router, "link", "set", theirs, "netns", space or str(os.getpid()))
        for place, line, address in ((space, theirs, at), (self.router, ours, gate)):
            self._in(place, "addr", "add", f"{address}/30", "dev", line)
            self._in(place, "link", "set", line, "up")
        everywhere = ADDRESSES.format(*self.prefix, 0) + "/24"
        self._in(space, "route", "add", everywhere, "via", gate)
        return at

    def place(self) -> Place:
        """A new one."""
        space = self._space()
        return Place(self._link(space), (self.ip, "netns", "exec", space))

    # --- partitions -----------------------------------------------------------------------------

    def mute(self, sender: Place, receiver: Place) -> None:
        """Nothing from the one reaches the other any more."""
        rule = ("from", sender.host, "to", receiver.host, "blackhole")
        self._in(self.router, "rule", "add", *rule)
        self.rules.append(rule)

    def part(self, one: Place, other: Place) -> None:
        """Nothing passes between them."""
        self.mute(one, other)
        self.mute(other, one)

    def heal(self) -> None:
        """Everything passes again."""
        while self.rules:
            self._in(self.router, "rule", "del", *self.rules.pop())

    def close(self) -> None:
        """Remove all of it; a line goes with either of its ends."""
        while self.spaces:
            self._run(self.ip, "netns", "del", self.spaces.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
