"""A private network for tests: locations in network namespaces, and one router between them.

A partition discards packets: the router forwards nothing and sends no reset and no "unreachable",
and both ends' links stay up. One direction may be cut alone. Names are random, and `close` removes
everything. Where namespaces are not permitted, the test is skipped with a reason.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from typing import Self

import pytest
from testkit.servers.process import Location, program

# 198.18.0.0/15 is reserved for tests: each network has 256 addresses of it.
ADDRESSES = "198.{}.{}.{}"


class Net:
    """The router, the location of this machine, and the locations added by a test."""

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
            self.near = Location(self._link(""))
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
        """Add a link from a namespace to the router, with a route; return the address."""
        theirs, ours = f"hf{secrets.token_hex(5)}", f"link{self.links}"
        at, gate = (ADDRESSES.format(*self.prefix, 4 * self.links + n) for n in (1, 2))
        self.links += 1
        self._in(self.router, "link", "add", ours, "type", "veth", "peer", "name", theirs)
        self._in(self.router, "link", "set", theirs, "netns", space or str(os.getpid()))
        for name, link, address in ((space, theirs, at), (self.router, ours, gate)):
            self._in(name, "addr", "add", f"{address}/30", "dev", link)
            self._in(name, "link", "set", link, "up")
        everywhere = ADDRESSES.format(*self.prefix, 0) + "/24"
        self._in(space, "route", "add", everywhere, "via", gate)
        return at

    def add_location(self) -> Location:
        """Add a namespace."""
        space = self._space()
        return Location(self._link(space), (self.ip, "netns", "exec", space))

    # --- partitions -----------------------------------------------------------------------------

    def mute(self, sender: Location, receiver: Location) -> None:
        """Discard all packets from the sender to the receiver."""
        rule = ("from", sender.host, "to", receiver.host, "blackhole")
        self._in(self.router, "rule", "add", *rule)
        self.rules.append(rule)

    def part(self, one: Location, other: Location) -> None:
        """Discard all packets between two locations."""
        self.mute(one, other)
        self.mute(other, one)

    def heal(self) -> None:
        """Forward all packets again."""
        while self.rules:
            self._in(self.router, "rule", "del", *self.rules.pop())

    def close(self) -> None:
        """Remove all namespaces; a link is removed with either end."""
        while self.spaces:
            self._run(self.ip, "netns", "del", self.spaces.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
