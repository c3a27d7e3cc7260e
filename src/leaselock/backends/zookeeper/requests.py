"""What is asked of ZooKeeper: a flight of operations, sent together, answered in their order.

A session is first in, first out: what follows in a flight is done after what precedes it, and so
is all of a later flight. No answer may be lost but the last ones; then the flight is Unknown.
"""

from __future__ import annotations

from typing import NamedTuple


class Create(NamedTuple):
    """An ephemeral node with ZooKeeper's number after its path. → Node; None without a parent"""

    path: str
    data: bytes


class Put(NamedTuple):
    """An ephemeral node of exactly that path. → Node; None without a parent; TAKEN"""

    path: str
    data: bytes


class Ensure(NamedTuple):
    """Lasting nodes along a path, as far as there are none. → None"""

    path: str


class Children(NamedTuple):
    """The names below a path. → tuple[str, ...]; None where there is no such node"""

    path: str


class Read(NamedTuple):
    """One node. With *watch*, the ear says its path when it is changed, and GONE before it when it
    is gone. → Node | None
    """

    path: str
    watch: bool = False


class Delete(NamedTuple):
    """Remove a node. → whether it was there (False, too, if there are nodes below it)"""

    path: str


class Agree(NamedTuple):
    """Let what follows see all that the ensemble has agreed on so far. A majority answers, so it
    also proves that the session lives. → None
    """

    path: str


Operation = Create | Put | Ensure | Children | Read | Delete | Agree


class Node(NamedTuple):
    """A node as the server has it."""

    path: str
    token: int
    """The transaction that created it: greater than that of every earlier node."""
    session: int
    """Whose end is its end; 0 for a lasting one."""
    created: float
    """Unix time, by the server's clock."""
    data: bytes


class Flight(NamedTuple):
    """Operations to be sent together. → Landed"""

    operations: tuple[Operation, ...]
    number: int = 0
    """The place among all flights of its client. A session keeps the order by itself: one that
    was overtaken was lost with its connection, and is never carried out.
    """
    session: int = 0
    """To be done in that session or not at all; 0 in any."""


class Poke(NamedTuple):
    """Asked of the ear: let the `Listen` of that client end with nothing. → None"""

    client: str


class Landed(NamedTuple):
    """Their answers, and the session that asked."""

    session: int
    timeout: float
    """After so many seconds without a sign of life the ensemble ends the session."""
    answers: tuple[object, ...]


TAKEN = "taken"
GONE = "-"
