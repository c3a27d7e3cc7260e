"""The base class of the named tuples that every client needs.

typing.NamedTuple makes an object of each annotation, for which it compiles the text. That was an
eighth of the instructions of `leaselock run x -- true`. Here annotations remain text, which
`typing.get_type_hints` evaluates; everything else is the same.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    def _new(name, annotations, attributes):
        defaults = [attributes[field] for field in annotations if field in attributes]
        made = namedtuple(name, annotations, defaults=defaults)  # noqa: PYI024
        made.__annotations__ = made.__new__.__annotations__ = annotations
        for key, value in attributes.items():
            if key not in annotations:
                setattr(made, key, value)
        return made

    class _Meta(type):
        """Replaces a class by a named tuple as soon as its body is complete."""

        def __new__(cls, name, bases, attributes):
            return _new(name, attributes.pop("__annotations__", {}), attributes)

        def __call__(cls, name, fields):
            return _new(name, dict(fields), {})

    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})
