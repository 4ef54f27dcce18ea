"""Losses and gradients of a task in NumPy."""

from __future__ import annotations

import numpy as np

from .methods import Method
from .values import row_of, to_numpy

_WANTED = ["a loss", "a dict of gradients"]


class NumpyLoss:
    """A loss_and_grad(params, batch, config, split)."""

    def __init__(self, method: Method, aux: tuple[str, ...], per_replica: bool):
        self._method, self._aux, self._per_replica = method, aux, per_replica

    def evaluate(self, given: dict, shapes: dict, n: int, gradients: bool):
        """Losses, a dict of gradients and a dict of aux outputs, all of n inner trainings; what
        shapes and types they have is up to the caller to check."""
        if not self._per_replica:
            return self._method.results(self._method(**given), _WANTED, self._aux)
        found = []
        for i in range(n):
            row = {name: row_of(given[name], i) for name in self._method.takes}
            loss, slopes, aux = self._method.results(self._method(**row), _WANTED, self._aux)
            found.append((
                self._method.array("a loss", loss, ()),
                self._method.arrays(slopes, shapes, (), "the gradient of "),
                aux,
            ))
        return (
            np.stack([loss for loss, _, _ in found]),
            {key: np.stack([slopes[i] for _, slopes, _ in found]) for i, key in enumerate(shapes)},
            {key: np.stack([to_numpy(aux[key]) for _, _, aux in found]) for key in self._aux},
        )
