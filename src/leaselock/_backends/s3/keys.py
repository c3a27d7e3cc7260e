"""The keys of objects: the name of a lock, so that it can be read, in parts that a file may have.

Letters and digits of all scripts stay as they are; other characters are in percent-encoding. A
gateway to a file system makes files of the keys, so a long name is divided by ``+/``, which no name
has then, and no part begins with a dot.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

PLAIN = frozenset("-_:@=,~!")
# Four bytes a character are fewer than the 255 that a file system takes.
PART = 60
MARK = "+/"


def key_of(name: str) -> str:
    """The key of a lock, behind the prefix."""
    text = "".join(map(_character, name))
    parts = [text[i : i + PART] for i in range(0, len(text), PART)]
    return MARK.join(f"%2E{part[1:]}" if part.startswith(".") else part for part in parts)


def name_of(key: str) -> str:
    """The name of the lock that has this key."""
    return unquote(key.replace(MARK, ""))


def _character(character: str) -> str:
    if character.isalnum() or character == "." or character in PLAIN:
        return character
    return quote(character, safe="")
