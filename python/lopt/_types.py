"""A class for each type that a config may name, made from what the extension says of the type.

type_stubs.py writes the same for type checkers, _types.pyi.
"""

from __future__ import annotations

import inspect
import json
import keyword
from collections.abc import Sequence
from typing import Any

from . import _core
from ._component import OTHER_NAMES, Component

# Key, its Python type, its default as JSON (empty: required), its valid values, and its meaning.
Row = tuple[str, str, str, str, str]

# What the types of keys are made of.
_NAMES = {"Sequence": Sequence, "Component": Component, "Any": Any}


def _parameter(row: Row) -> inspect.Parameter:
    name, annotation, default, _, _ = row
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=eval(annotation, _NAMES),
        default=json.loads(default) if default else inspect.Parameter.empty,
    )


def _said_of(row: Row) -> str:
    name, _, default, values, meaning = row
    other = "".join(f" Or {known}." for known, own in OTHER_NAMES.items() if own == name)
    default = f"default {default}" if default else "required"
    return f"    {name}: {meaning} ({values.replace('`', '')}; {default}){other}"


def _class_of(kind: str, name: str, summary: str, keys: list[Row]) -> type[Component]:
    members = {
        "__doc__": "\n".join([summary, *(["", "Args:"] if keys else []), *map(_said_of, keys)]),
        "__module__": "lopt",
        "__slots__": (),
        "__signature__": inspect.Signature(list(map(_parameter, keys))),
        "type": name,
        "_kind": kind,
        "_keys": tuple(name for name, *_ in keys),
    }
    return type(name, (Component,), members)


# A type that is called as Python calls something else, such as None, is named by a dictionary.
_classes = {
    name: _class_of(kind, name, summary, keys)
    for kind, name, summary, keys in _core.component_types()
    if name.isidentifier() and not keyword.iskeyword(name)
}
globals().update(_classes)

__all__ = ["Component", *_classes]
