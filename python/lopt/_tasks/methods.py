"""The methods of a task: what they may ask for, how they are called, and what they must return."""

from __future__ import annotations

import inspect

import numpy as np

from lopt._core import Error

from .values import kind_of, to_numpy, words

# What each may ask for, by the names of its parameters.
_ARGUMENTS = {
    "sample": ("key",),
    "init": ("key", "config"),
    "batch": ("keys", "config", "split"),
    "loss": ("params", "batch", "config", "split"),
    "loss_and_grad": ("params", "batch", "config", "split"),
    "data": (),
    "test_data": (),
    "normalizer": ("loss",),
}


def has(task, name: str) -> bool:
    """Whether a class or an instance has this method; None takes an inherited one away."""
    return callable(getattr(task, name, None))


def _takes(who: str, method, name: str, own_class: bool) -> tuple[str, ...]:
    """The names of the arguments that a method of a class, or of an instance, asks for."""
    valid = _ARGUMENTS[name]
    parameters = list(inspect.signature(method).parameters.values())
    if own_class:
        parameters = parameters[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    taken = [p.name for p in named if p.name in valid]
    for parameter in named:
        if parameter.name not in valid and parameter.default is parameter.empty:
            raise Error(
                f"{who}: {name} takes '{parameter.name}'; parameters are known by their names, and "
                f"those of {name} are: {words(valid)}"
            )
    return tuple(taken)


def check_methods(who: str, cls: type) -> None:
    """Throws Error unless the methods of a class make a task."""
    if not has(cls, "init"):
        raise Error(f"{who}: the class has no init(key)")
    losses = [name for name in ("loss", "loss_and_grad") if has(cls, name)]
    if len(losses) != 1:
        raise Error(
            f"{who}: the class must have one of loss(params, batch), in torch, and "
            f"loss_and_grad(params, batch), with NumPy; it has {'both' if losses else 'neither'}"
        )
    if has(cls, "batch") and has(cls, "data"):
        raise Error(
            f"{who}: the class has both batch and data; the batches are those of one of them")
    if has(cls, "test_data") and not has(cls, "data"):
        raise Error(f"{who}: the class has test_data, but no data")
    for name in _ARGUMENTS:
        if not has(cls, name):
            continue
        is_plain = inspect.isfunction(inspect.getattr_static(cls, name))
        taken = _takes(who, getattr(cls, name), name, own_class=is_plain)
        if "config" in taken and not has(cls, "sample"):
            raise Error(f"{who}: {name} takes 'config', but the class has no sample(key)")
        if "batch" in taken and not (has(cls, "batch") or has(cls, "data")):
            raise Error(f"{who}: {name} takes 'batch', but the class has neither batch nor data")


def methods_of(who: str, task) -> dict[str, Method]:
    """Those that an instance has, by their names."""
    return {name: Method(who, task, name) for name in _ARGUMENTS if has(task, name)}


class Method:
    """A method of an instance. The others check what it returned; Error says what is wrong.

    Attributes:
        takes: The names of its arguments.
    """

    def __init__(self, who: str, task, name: str):
        self._who, self._name = who, name
        self._method = getattr(task, name)
        self.takes = _takes(who, self._method, name, own_class=False)

    def __call__(self, **given):
        """Calls it with those of the arguments that it takes."""
        return self._method(**{name: given[name] for name in self.takes})

    def layout(self, drawn) -> dict[str, tuple[int, ...]]:
        """Names and shapes of a dict of arrays."""
        if not isinstance(drawn, dict) or not all(isinstance(key, str) for key in drawn):
            raise Error(
                f"{self._who}: {self._name} returned {kind_of(drawn)}, wanted a dict of names and "
                "arrays"
            )
        shapes = {key: tuple(to_numpy(value).shape) for key, value in drawn.items()}
        self.arrays(drawn, shapes, ())
        return shapes

    def arrays(self, found, shapes: dict, lead: tuple[int, ...], of: str = "") -> list[np.ndarray]:
        """A dict of arrays [lead, shape], as float32 arrays in C order and in that of `shapes`."""
        if not isinstance(found, dict):
            raise Error(
                f"{self._who}: {self._name} returned {kind_of(found)} where a dict was wanted, of: "
                f"{words(shapes)}"
            )
        if found.keys() != shapes.keys():
            raise Error(
                f"{self._who}: {self._name} returned {of or 'arrays called '}{words(found)}; "
                f"wanted {words(shapes)}"
            )
        return [
            self.array(f"{of}'{key}'", found[key], lead + shape) for key, shape in shapes.items()
        ]

    def array(self, what: str, value, shape: tuple[int, ...]) -> np.ndarray:
        """An array of this shape, as float32 in C order."""
        array = to_numpy(value)
        if array.shape != shape or array.dtype.kind != "f":
            raise Error(
                f"{self._who}: {self._name} returned {what} of shape {list(array.shape)} and type "
                f"{array.dtype}, wanted shape {list(shape)} and type float32"
            )
        return np.ascontiguousarray(array, np.float32).reshape(shape)

    def results(self, returned, wanted: list[str], aux: tuple[str, ...]) -> list:
        """The parts of what a loss returned: what is wanted, in words, and the aux outputs."""
        if aux:
            wanted = [*wanted, f"a dict of {words(aux)}"]
        parts = returned if isinstance(returned, tuple) else (returned,)
        if len(parts) != len(wanted):
            got = f"a tuple of {len(parts)}" if isinstance(returned, tuple) else kind_of(returned)
            raise Error(f"{self._who}: {self._name} returned {got}, wanted {' and '.join(wanted)}")
        if not aux:
            return [*parts, {}]
        if not isinstance(parts[-1], dict) or set(parts[-1]) != set(aux):
            got = words(parts[-1]) if isinstance(parts[-1], dict) else kind_of(parts[-1])
            raise Error(
                f"{self._who}: {self._name} returned the aux outputs {got}, wanted {words(aux)}")
        return list(parts)
