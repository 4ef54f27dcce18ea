"""Prints _types.pyi, which tells type checkers of lopt's classes of types (lopt/_types.py).

    PYTHONPATH=DIRECTORY_OF_THE_EXTENSION python type_stubs.py >_types.pyi

It needs the extension alone, so that nothing else need be importable where it is built.
"""

import keyword

import _core

BEGIN = '''\
from collections.abc import Sequence
from typing import Any

from ._component import Component as Component

'''


def stub_of(name: str, keys: list) -> str:
    """The class of a type."""
    parameters = [
        f"{key}: {annotation}" + (" = ..." if default else "")
        for key, annotation, default, _, _ in keys
    ]
    members = [f"    {key}: {annotation}" for key, annotation, *_ in keys]
    arguments = ", ".join(["self", *(["*"] if parameters else []), *parameters])
    return "\n".join(
        [f"class {name}(Component):", *members, f"    def __init__({arguments}) -> None: ...", "", ""])


types = {
    name: keys
    for _, name, _, keys in _core.component_types()
    if name.isidentifier() and not keyword.iskeyword(name)
}
print(BEGIN, end="")
for name, keys in types.items():
    print(stub_of(name, keys))
print(f"__all__ = {['Component', *types]!r}")
