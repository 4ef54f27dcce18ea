"""The options of a task: the fields of its class."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np

from lopt._core import Error

from .values import words

_TYPES = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (str, "str"),
    (typing.Optional[int], "int or None"),
    (typing.Optional[float], "float or None"),
    (list[int], "list[int]"),
    (list[float], "list[float]"),
    (list[str], "list[str]"),
)


# What `option` returns is a dataclass' field, but type checkers are to see its default there.
Default = typing.TypeVar("Default")


def option(default: Default, meaning: str = "", *, min: float | None = None,
           max: float | None = None, above: float | None = None,
           below: float | None = None) -> Default:
    """An option of a task with its meaning, for `lopt.describe`, and its range, for the messages.

        dim: int = lopt.option(8, "Inputs.", min=1)

    `min` and `max` are valid themselves, `above` and `below` are not. Raises Error where the range
    has two ends on one side.
    """
    if (min is not None and above is not None) or (max is not None and below is not None):
        raise Error("lopt.option: min and above, and max and below, exclude each other")
    bounds = {
        "min": above if above is not None else -np.inf if min is None else min,
        "max": below if below is not None else np.inf if max is None else max,
        "open_min": above is not None,
        "open_max": below is not None,
    }
    metadata = {"meaning": meaning, "range": bounds}
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(who: str, cls: type) -> list[tuple]:
    """(name, kind, default, range, meaning) of every field."""
    hints = typing.get_type_hints(cls)
    options = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        kind = next((kind for valid, kind in _TYPES if hint == valid), None)
        if kind is None:
            annotation = getattr(hint, "__name__", hint)
            raise Error(
                f"{who}: option '{field.name}' is annotated with {annotation}; "
                f"valid types are {words(kind for _, kind in _TYPES)}"
            )
        if field.name == "type":
            raise Error(f"{who}: no option may be called 'type'")
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            raise Error(f"{who}: option '{field.name}' has no default")
        bounds = field.metadata.get("range", option(None).metadata["range"])
        options.append((field.name, kind, default, bounds, field.metadata.get("meaning", "")))
    return options
