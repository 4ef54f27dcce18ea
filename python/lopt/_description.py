"""What configs may say, as text to be read."""

from __future__ import annotations

from . import _core


class Description(str):
    """Markdown: a notebook sets it, and Python's prompt shows it as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


def describe(type: str = "") -> Description:
    """Every type and key of a config, with defaults and meanings, as Markdown; or those of one type.

    Raises Error, with the types, if there is none of this name.
    """
    return Description(_core.describe(type))
