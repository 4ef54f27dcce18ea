"""The data set of a task, and the batches of one that has none."""

from __future__ import annotations

import zlib

import numpy as np

from lopt._core import Error

from .methods import Method
from .values import is_tensor, kind_of, map_tree, words


class DataSet:
    """The rows of data() and test_data(), one after the other.

    Attributes:
        splits: (begin, end) of the rows of train, inner_valid, outer_valid and test.
        checksum: The CRC-32 of the arrays: places, types, shapes and bytes. Of objects their
            bytes are left out, which say nothing in another process.
    """

    def __init__(self, who: str, methods: dict[str, Method], torch):
        """`torch` is None for a task in NumPy."""
        self._who, self._torch = who, torch
        sets = [methods[name]() for name in ("data", "test_data") if name in methods]
        if torch is None:
            sets = [map_tree(rows, _without_tensors, "data") for rows in sets]
        counts = [self._count(rows) for rows in sets]
        if counts[0] < 10:
            raise Error(
                f"{who}: {counts[0]} rows of data are too few to be split, wanted at least 10")
        if counts[-1] < 1:
            raise Error(f"{who}: test_data has no rows, wanted at least 1")
        ends = [counts[0] * percent // 100 for percent in (0, 70, 80, 90, 100)]
        self.checksum = _checksum(sets)
        self._rows = sets[0]
        if len(sets) == 2:
            ends = [counts[0] * percent // 100 for percent in (0, 80, 90, 100)] + [sum(counts)]
            self._rows = self._joined(*sets)
        if torch is not None:
            self._rows = map_tree(self._rows, lambda leaf, path: torch.as_tensor(leaf), "data")
        self.splits = list(zip(ends, ends[1:]))

    def take(self, rows: np.ndarray):
        """Rows int64 [n, E] of every array [rows, ...]: [n, E, ...]."""
        def taken(leaf, path):
            if not is_tensor(leaf):
                return np.take(leaf, rows, axis=0)
            flat = leaf.index_select(0, self._torch.from_numpy(rows.reshape(-1)))
            return flat.reshape(*rows.shape, *leaf.shape[1:])

        return map_tree(self._rows, taken, "data")

    def _count(self, rows) -> int:
        lengths = []

        def count(leaf, path):
            if len(getattr(leaf, "shape", ())) == 0:
                raise Error(f"{self._who}: {path} is {kind_of(leaf)}, wanted an array of rows")
            lengths.append(leaf.shape[0])

        map_tree(rows, count, "data")
        if len(set(lengths)) != 1:
            raise Error(
                f"{self._who}: the arrays of data have {words(map(str, lengths))} rows; wanted as "
                "many of all"
            )
        return lengths[0]

    def _joined(self, rows, test_rows):
        places, others = [], {}  # by their places in the trees
        map_tree(rows, lambda leaf, path: places.append(path), "data")
        map_tree(test_rows, lambda leaf, path: others.__setitem__(path, leaf), "data")
        if len(others) > len(places):
            raise Error(f"{self._who}: test_data has more arrays than data")

        def join(leaf, path):
            other = others.get(path)
            if other is None:
                raise Error(f"{self._who}: data has {path}, test_data has not")
            if leaf.shape[1:] != other.shape[1:]:
                raise Error(f"{self._who}: data and test_data have rows of different shapes")
            if self._torch is not None:
                return self._torch.cat([self._torch.as_tensor(leaf), self._torch.as_tensor(other)])
            return np.concatenate([leaf, other])

        return map_tree(rows, join, "data")


def _without_tensors(leaf, path: str):
    """An array in place of a tensor."""
    if not is_tensor(leaf):
        return leaf
    leaf = leaf.detach().cpu().resolve_conj().resolve_neg()
    if leaf.is_floating_point() and leaf.element_size() < 4:
        leaf = leaf.float()  # NumPy lacks bfloat16, whose numbers float32 has
    return leaf.numpy()


def _checksum(tree) -> int:
    checksum = 0

    def add(leaf, path):
        nonlocal checksum
        kind = str(getattr(leaf, "dtype", ""))
        leaf = _without_tensors(leaf, path)
        content = np.ascontiguousarray(leaf)
        about = f"{path} {kind} {list(content.shape)}"
        checksum = zlib.crc32(about.encode(), checksum)
        if not content.dtype.hasobject:
            checksum = zlib.crc32(content.reshape(-1).view(np.uint8), checksum)

    map_tree(tree, add, "data")
    return checksum


def check_batch(who: str, batch, n: int, torch):
    """A tree of arrays or tensors [n, ...], which are tensors where `torch` is given. Error if it
    is none."""
    def checked(leaf, path):
        if not (is_tensor(leaf) or isinstance(leaf, np.ndarray)):
            raise Error(f"{who}: {path} is {kind_of(leaf)}, wanted an array")
        if len(leaf.shape) == 0 or leaf.shape[0] != n:
            raise Error(
                f"{who}: {path} has shape {list(leaf.shape)}, wanted [{n}, ...]: a row for each of "
                "the keys"
            )
        if torch is None or is_tensor(leaf):
            return leaf
        return torch.from_numpy(np.require(leaf, requirements=["C", "W"]))

    return map_tree(batch, checked, "batch")
