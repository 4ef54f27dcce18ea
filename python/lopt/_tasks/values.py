"""Arrays, tensors and trees of them, and words for messages."""

from __future__ import annotations

import numpy as np


def kind_of(value) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def words(names) -> str:
    return ", ".join(names) or "none"


def is_tensor(value) -> bool:
    return hasattr(value, "detach") and hasattr(value, "is_floating_point")


def to_numpy(value) -> np.ndarray:
    return value.detach().cpu().numpy() if is_tensor(value) else np.asarray(value)


def map_tree(tree, leaf, path: str):
    """The same tree of dicts, tuples and lists with leaf(value, path) in place of every value."""
    if isinstance(tree, dict):
        return {key: map_tree(value, leaf, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        values = [map_tree(value, leaf, f"{path}[{i}]") for i, value in enumerate(tree)]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return leaf(tree, path)


def row_of(tree, i: int):
    """Row i of every array of a tree; a text stays."""
    return tree if isinstance(tree, str) else map_tree(tree, lambda leaf, path: leaf[i], "")
