"""A task family as the extension calls it."""

from __future__ import annotations

import math

import numpy as np

from lopt import _core
from lopt._core import Error

from .data import DataSet, check_batch
from .methods import methods_of
from .numpy_loss import NumpyLoss
from .torch_loss import TorchLoss
from .turn import turn
from .values import kind_of, to_numpy


class Family:
    """A user's task, with lists of float32 arrays in the order of layouts.

    `torch` is None for a task in NumPy; `n` is the number of inner trainings of one call. What the
    user's methods get is theirs: arrays of their own, which stay as they are for as long as
    somebody keeps them.
    """

    def __init__(self, who: str, task, torch):
        self._who, self._task, self._torch = who, task, torch
        self._methods = methods_of(who, task)
        self._aux = tuple(self._attribute("aux", (), (tuple, list)))
        per_replica = self._attribute("per_replica", False, bool)
        if torch is not None:
            self._loss = self._methods["loss"]
            self._evaluated = TorchLoss(who, self._loss, self._aux, per_replica, torch)
        else:
            self._loss = self._methods["loss_and_grad"]
            self._evaluated = NumpyLoss(self._loss, self._aux, per_replica)
        self._data = DataSet(who, self._methods, torch) if "data" in self._methods else None
        key = _core.Key(0)
        self._config_shapes = {}
        if "sample" in self._methods:
            sample = self._methods["sample"]
            self._config_shapes = sample.layout(sample(key=key))
        init = self._methods["init"]
        config = self._named(self._config_shapes, self.sample(key), ())
        self._params_shapes = init.layout(init(key=key, config=config))
        if not self._params_shapes:
            raise Error(f"{who}: init returned no params")
        self.parts = {
            "config": list(self._config_shapes.items()),
            "params": list(self._params_shapes.items()),
            "aux": list(self._aux),
            "splits": self._data.splits if self._data else [],
            "checksum": self._data.checksum if self._data else None,
            "batch_size": self._attribute("batch_size", 0, int) if self._data else 0,
            "sampling": self._attribute("sampling", "replacement", str),
            "normalizer_maximum": self._attribute("normalizer_maximum", None, (int, float)),
            "has_normalizer": "normalizer" in self._methods,
        }
        if self._data and self.parts["batch_size"] < 1:
            raise Error(
                f"{who}: a class with data needs a batch_size of at least 1, "
                f"got {self.parts['batch_size']}"
            )

    def sample(self, key) -> list[np.ndarray]:
        """The config of the task that the key names."""
        if not self._config_shapes:
            return []
        with turn(self._torch):
            sample = self._methods["sample"]
            return sample.arrays(sample(key=key), self._config_shapes, ())

    def init(self, key, config: list[np.ndarray]) -> list[np.ndarray]:
        """The params of one inner training."""
        with turn(self._torch):
            init = self._methods["init"]
            config = self._named(self._config_shapes, config, ())
            return init.arrays(init(key=key, config=config), self._params_shapes, ())

    def normalize(self, loss: float) -> float:
        """The meta-loss of a loss."""
        with turn(self._torch):
            value = self._methods["normalizer"](loss=loss)
        array = to_numpy(value)
        if array.size != 1 or array.dtype.kind not in "fiu":
            raise Error(f"{self._who}: normalizer returned {kind_of(value)}, wanted a float")
        normalized = float(array.reshape(()))
        maximum = self.parts["normalizer_maximum"]
        low, high = (-math.inf, math.inf) if maximum is None else (0, maximum)
        if not math.isfinite(normalized) or not low <= normalized <= high:
            wanted = "a finite number" if maximum is None else f"a number in [0, {maximum}]"
            raise Error(
                f"{self._who}: normalizer made {normalized} of the loss {loss}, wanted {wanted}")
        return normalized

    def evaluate(self, params, config, keys, rows, split: str, gradients: bool):
        """Losses [n], gradients ([n, shape] each; None if not wanted) and aux outputs ([n] each).

        params and config: [n, shape] each. keys: n of them. rows: int64 [n, E], of the data set, or
        None.
        """
        n = params[0].shape[0]
        with turn(self._torch):
            given = {"params": self._named(self._params_shapes, params, (n,)), "split": split}
            if self._config_shapes:
                given["config"] = self._named(self._config_shapes, config, (n,))
            if self._data is not None:
                given["batch"] = check_batch(self._who, self._data.take(rows), n, self._torch)
            elif "batch" in self._methods:
                batch = self._methods["batch"](keys=keys, **given)
                given["batch"] = check_batch(self._who, batch, n, self._torch)
            losses, found, aux = self._evaluated.evaluate(
                given, self._params_shapes, n, gradients)
        return (
            self._loss.array("losses", losses, (n,)),
            self._loss.arrays(found, self._params_shapes, (n,), "the gradient of ")
            if gradients else None,
            [self._loss.array(f"the aux output '{key}'", aux[key], (n,)) for key in self._aux],
        )

    def _attribute(self, name: str, default, kind):
        value = getattr(self._task, name, default)
        if value is not default and not isinstance(value, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(each.__name__ for each in kinds)
            raise Error(f"{self._who}: {name} is {value!r}, wanted {wanted}")
        return value

    def _named(self, shapes: dict, arrays: list[np.ndarray], lead: tuple[int, ...]) -> dict:
        """What the user's methods get of a layout: arrays, or tensors over the same memory."""
        if self._torch is not None and lead:
            arrays = map(self._torch.from_numpy, arrays)
        return dict(zip(shapes, arrays))
