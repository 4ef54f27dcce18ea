"""Tasks of one's own in Python: what a class has to have, and what the extension calls."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
import typing

import numpy as np

from lopt import _core
from lopt._core import Error

# What each method of a task may ask for, by the names of its parameters.
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
_OPTION_TYPES = (
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
_SPLITS = ("train", "inner_valid", "outer_valid", "test")

# Held around every call of a user's code: a task need not be thread-safe, and no two of them are in
# a BLAS at once.
_one_at_a_time = threading.RLock()

# type -> (class, what the extension has of it)
_registered: dict[str, tuple[type, _core.TaskType]] = {}


def option(default, meaning: str = "", *, min=None, max=None, above=None, below=None):
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


def task(cls: type) -> type:
    """Registers a class as a task type under its own name (see `register_task`): a decorator."""
    return register_task(cls.__name__, cls)


def register_task(type: str, cls: type) -> type:
    """Makes a class the task type `type` of this process: configs may say {"type": type}.

    The class becomes a dataclass whose fields are the options of the type; a method has parameters
    by these names, as many of them as it needs:

    - init(key, config) returns the initial params of one inner training: a dict of names and
      float arrays (NumPy or torch). Names and shapes must be the same for every key.
    - loss(params, batch, config, split), in torch: the loss of one inner training, a tensor with
      one number. It is called under `torch.func.vmap` for all trainings at once, and gradients are
      autograd's. Where the class says `per_replica = True`, it is called for one after the other.
    - or loss_and_grad(params, batch, config, split), with NumPy: arrays have the n trainings as
      their first axis. Returns losses [n] and a dict of gradients, each [n, shape]. Where
      the class says `per_replica = True`, it gets one training, without that axis.
    - batch(keys, config, split), if any: what `loss` gets as `batch`, for all n trainings: arrays
      [n, ...], or a dict, tuple or list of such, made from `keys` (a lopt.Keys of n keys).
    - or data(), if any: the rows of a data set: an array [rows, ...], or a dict, tuple or list of
      arrays of as many rows. `batch` is then `batch_size` rows of it, which lopt draws
      ([batch_size, ...] for each training), with replacement or, where the class says
      `sampling = "epoch"`, epoch after epoch. 70, 10, 10 and 10 % of the rows are the splits train,
      inner_valid, outer_valid and test; with a test_data() it is 80, 10 and 10 % and those rows.
    - sample(key), if any: a dict of float arrays that tells one task of the family from another:
      `config` of the other methods.
    - normalizer(loss), if any: the meta-loss of a loss, both float.

    and, as attributes, normalizer_maximum (float: meta-losses are cut to [0, this]) and aux (a
    tuple of names: `loss` returns a second value, a dict of these with a number each; `lopt eval`
    shows "accuracy").

    A class of the same module and name takes the place of the one before, as in a notebook cell
    that is run again. Returns the class. Raises Error if the class is no task, or if there is
    another type of that name.
    """
    who = f"task {type}"
    if not inspect.isclass(cls):
        raise Error(f"{who}: register_task takes a class, got {_kind_of(cls)}")
    summary = (inspect.getdoc(cls) if "__doc__" in vars(cls) else None) or "A task in Python."
    if "__dataclass_fields__" not in vars(cls):
        if "__init__" in vars(cls):
            raise Error(
                f"{who}: the class has an __init__; options are annotated attributes "
                "('dim: int = 8'), and what is made from them is made in __post_init__"
            )
        cls = dataclasses.dataclass(eq=False)(cls)
    _check_methods(who, cls)
    if _has(cls, "loss"):
        # Here, on a thread that lives on: torch 1.13 keeps the Python thread state of its import.
        _import_torch(who)
    options = _options_of(who, cls)
    if type in _registered:
        known, entry = _registered[type]
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise Error(
                f"{who}: this type is {known.__module__}.{known.__qualname__} already; choose "
                "another name"
            )
        entry.replace(options)
    else:
        entry = _core.TaskType(type, summary.splitlines()[0], options)
    _registered[type] = (cls, entry)
    return cls


def make_family(type: str, options: dict) -> Family:
    """What the extension makes a task family of: a new instance of the class."""
    who, cls = f"task {type}", _registered[type][0]
    torch = _import_torch(who) if _has(cls, "loss") else None
    with _turn(torch):
        return Family(who, cls(**options), torch)


def _kind_of(value) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _words(names) -> str:
    return ", ".join(names) or "none"


def _has(task, name: str) -> bool:
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
                f"those of {name} are: {_words(valid)}"
            )
    return tuple(taken)


def _check_methods(who: str, cls: type) -> None:
    if not _has(cls, "init"):
        raise Error(f"{who}: the class has no init(key)")
    losses = [name for name in ("loss", "loss_and_grad") if _has(cls, name)]
    if len(losses) != 1:
        raise Error(
            f"{who}: the class must have one of loss(params, batch), in torch, and "
            f"loss_and_grad(params, batch), with NumPy; it has {'both' if losses else 'neither'}"
        )
    if _has(cls, "batch") and _has(cls, "data"):
        raise Error(
            f"{who}: the class has both batch and data; the batches are those of one of them")
    if _has(cls, "test_data") and not _has(cls, "data"):
        raise Error(f"{who}: the class has test_data, but no data")
    for name in _ARGUMENTS:
        if not _has(cls, name):
            continue
        is_plain = inspect.isfunction(inspect.getattr_static(cls, name))
        taken = _takes(who, getattr(cls, name), name, own_class=is_plain)
        if "config" in taken and not _has(cls, "sample"):
            raise Error(f"{who}: {name} takes 'config', but the class has no sample(key)")
        if "batch" in taken and not (_has(cls, "batch") or _has(cls, "data")):
            raise Error(f"{who}: {name} takes 'batch', but the class has neither batch nor data")


def _options_of(who: str, cls: type) -> list[tuple]:
    """(name, kind, default, range, meaning) of every field."""
    hints = typing.get_type_hints(cls)
    options = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        kind = next((kind for valid, kind in _OPTION_TYPES if hint == valid), None)
        if kind is None:
            annotation = getattr(hint, "__name__", hint)
            raise Error(
                f"{who}: option '{field.name}' is annotated with {annotation}; "
                f"valid types are {_words(kind for _, kind in _OPTION_TYPES)}"
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


def _map(tree, leaf, path: str):
    """The same tree of dicts, tuples and lists with leaf(value, path) in place of every value."""
    if isinstance(tree, dict):
        return {key: _map(value, leaf, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        values = [_map(value, leaf, f"{path}[{i}]") for i, value in enumerate(tree)]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return leaf(tree, path)


def _is_tensor(value) -> bool:
    return hasattr(value, "detach") and hasattr(value, "is_floating_point")


def _numpy(value) -> np.ndarray:
    return value.detach().cpu().numpy() if _is_tensor(value) else np.asarray(value)


class Family:
    """A task family as the extension calls it: lists of float32 arrays in the order of layouts.

    `torch` is None for a task in NumPy; `n` is the number of inner trainings of one call. What the
    user's methods get is theirs: arrays of their own, which stay as they are for as long as
    somebody keeps them.
    """

    def __init__(self, who: str, task, torch):
        self._who = who
        self._task = task
        self._methods = {}  # name -> (bound method, its arguments)
        for name in _ARGUMENTS:
            if _has(task, name):
                method = getattr(task, name)
                self._methods[name] = method, _takes(who, method, name, own_class=False)
        self._torch = torch
        self._per_replica = self._attribute("per_replica", False, bool)
        aux = self._attribute("aux", (), (tuple, list))
        self._aux = tuple(aux)
        self._data, splits = self._read_data()
        key = _core.Key(0)
        self._config_shapes = {}
        if "sample" in self._methods:
            self._config_shapes = self._layout("sample", self._call("sample", key=key))
        config = self._named(self._config_shapes, self.sample(key), ())
        self._params_shapes = self._layout("init", self._call("init", key=key, config=config))
        if not self._params_shapes:
            raise Error(f"{who}: init returned no params")
        self.parts = {
            "config": list(self._config_shapes.items()),
            "params": list(self._params_shapes.items()),
            "aux": list(self._aux),
            "splits": splits,
            "batch_size": self._attribute("batch_size", 0, int) if self._data is not None else 0,
            "sampling": self._attribute("sampling", "replacement", str),
            "normalizer_maximum": self._attribute("normalizer_maximum", None, (int, float)),
            "has_normalizer": "normalizer" in self._methods,
        }
        if self._data is not None and self.parts["batch_size"] < 1:
            raise Error(
                f"{who}: a class with data needs a batch_size of at least 1, "
                f"got {self.parts['batch_size']}"
            )

    def sample(self, key) -> list[np.ndarray]:
        """The config of the task that the key names."""
        if not self._config_shapes:
            return []
        with _turn(self._torch):
            return self._arrays("sample", self._call("sample", key=key), self._config_shapes, ())

    def init(self, key, config: list[np.ndarray]) -> list[np.ndarray]:
        """The params of one inner training."""
        with _turn(self._torch):
            config = self._named(self._config_shapes, config, ())
            drawn = self._call("init", key=key, config=config)
            return self._arrays("init", drawn, self._params_shapes, ())

    def normalize(self, loss: float) -> float:
        """The meta-loss of a loss."""
        with _turn(self._torch):
            value = self._call("normalizer", loss=loss)
        array = _numpy(value)
        if array.size != 1 or array.dtype.kind not in "fiu":
            raise Error(f"{self._who}: normalizer returned {_kind_of(value)}, wanted a float")
        return float(array.reshape(()))

    def evaluate(self, params, config, keys, rows, split: str, gradients: bool):
        """Losses [n], gradients ([n, shape] each; None if not wanted) and aux outputs ([n] each).

        params and config: [n, shape] each. keys: n of them. rows: int64 [n, E], of the data set, or
        None.
        """
        n = params[0].shape[0]
        with _turn(self._torch):
            given = {"params": self._named(self._params_shapes, params, (n,)), "split": split}
            if self._config_shapes:
                given["config"] = self._named(self._config_shapes, config, (n,))
            if self._data is not None:
                given["batch"] = _map(self._data, functools.partial(_take, rows=rows), "data")
            elif "batch" in self._methods:
                given["batch"] = self._call("batch", keys=keys, **given)
            if "batch" in given:
                leaf = functools.partial(self._batch_leaf, n)
                given["batch"] = _map(given["batch"], leaf, "batch")
            if self._torch is not None:
                losses, found, aux = self._evaluate_torch(given, n, gradients)
            else:
                losses, found, aux = self._evaluate_numpy(given, n)
        name = "loss" if self._torch is not None else "loss_and_grad"
        arrays = self._arrays(name, found, self._params_shapes, (n,), "the gradient of ") if (
            gradients) else None
        return (
            self._array(name, "losses", losses, (n,)),
            arrays,
            [self._array(name, f"the aux output '{key}'", aux[key], (n,)) for key in self._aux],
        )

    def _attribute(self, name: str, default, kind):
        value = getattr(self._task, name, default)
        if value is not default and not isinstance(value, kind):
            raise Error(f"{self._who}: {name} is {value!r}, wanted {_kinds(kind)}")
        return value

    def _call(self, name: str, **given):
        method, taken = self._methods[name]
        return method(**{key: given[key] for key in taken})

    def _read_data(self):
        """The rows of the data set, test rows last, and the range of rows of each split."""
        if "data" not in self._methods:
            return None, []
        sets = [self._call(name) for name in ("data", "test_data") if name in self._methods]
        counts = []
        for rows in sets:
            lengths = []
            _map(rows, lambda leaf, path: lengths.append(self._length(leaf, path)), "data")
            if len(set(lengths)) != 1:
                raise Error(
                    f"{self._who}: the arrays of data have {_words(map(str, lengths))} rows; "
                    "wanted as many of all"
                )
            counts.append(lengths[0])
        if counts[0] < 10:
            raise Error(
                f"{self._who}: {counts[0]} rows of data are too few to be split, wanted at least 10"
            )
        ends = [counts[0] * percent // 100 for percent in (0, 70, 80, 90, 100)]
        joined = sets[0]
        if len(sets) == 2:
            ends = [counts[0] * percent // 100 for percent in (0, 80, 90, 100)] + [sum(counts)]
            leaves = []
            _map(sets[1], lambda leaf, path: leaves.append(leaf), "data")
            following = iter(leaves)
            joined = _map(
                sets[0], lambda leaf, path: self._join(leaf, next(following, None)), "data")
            if next(following, None) is not None:
                raise Error(f"{self._who}: test_data has more arrays than data")
        if self._torch is not None:
            joined = _map(joined, lambda leaf, path: self._torch.as_tensor(leaf), "data")
        return joined, list(zip(ends, ends[1:]))

    def _length(self, leaf, path: str) -> int:
        if len(getattr(leaf, "shape", ())) == 0:
            raise Error(f"{self._who}: {path} is {_kind_of(leaf)}, wanted an array of rows")
        return leaf.shape[0]

    def _join(self, rows, test_rows):
        if test_rows is None or rows.shape[1:] != test_rows.shape[1:]:
            raise Error(f"{self._who}: data and test_data have rows of different shapes")
        if self._torch is not None:
            return self._torch.cat([self._torch.as_tensor(rows), self._torch.as_tensor(test_rows)])
        return np.concatenate([rows, test_rows])

    def _layout(self, name: str, drawn) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what sample or init returned."""
        if not isinstance(drawn, dict) or not all(isinstance(key, str) for key in drawn):
            raise Error(
                f"{self._who}: {name} returned {_kind_of(drawn)}, wanted a dict of names and arrays"
            )
        shapes = {key: tuple(_numpy(value).shape) for key, value in drawn.items()}
        self._arrays(name, drawn, shapes, ())
        return shapes

    def _named(self, shapes: dict, arrays: list[np.ndarray], lead: tuple[int, ...]) -> dict:
        """What the user's methods get of a layout: arrays, or tensors over the same memory."""
        if self._torch is not None and lead:
            arrays = map(self._torch.from_numpy, arrays)
        return dict(zip(shapes, arrays))

    def _arrays(self, name: str, found, shapes: dict, lead: tuple[int, ...], of: str = ""):
        """What a method returned for a layout, as float32 arrays in C order."""
        if not isinstance(found, dict):
            raise Error(
                f"{self._who}: {name} returned {_kind_of(found)} where a dict was wanted, of: "
                f"{_words(shapes)}"
            )
        if found.keys() != shapes.keys():
            raise Error(
                f"{self._who}: {name} returned {of or 'arrays called '}{_words(found)}; wanted "
                f"{_words(shapes)}"
            )
        return [
            self._array(name, f"{of}'{key}'", found[key], lead + shape)
            for key, shape in shapes.items()
        ]

    def _array(self, name: str, what: str, value, shape: tuple[int, ...]) -> np.ndarray:
        array = _numpy(value)
        if array.shape != shape or array.dtype.kind != "f":
            raise Error(
                f"{self._who}: {name} returned {what} of shape {list(array.shape)} and type "
                f"{array.dtype}, wanted shape {list(shape)} and type float32"
            )
        return np.ascontiguousarray(array, np.float32).reshape(shape)

    def _batch_leaf(self, n: int, leaf, path: str):
        if not (_is_tensor(leaf) or isinstance(leaf, np.ndarray)):
            raise Error(f"{self._who}: {path} is {_kind_of(leaf)}, wanted an array")
        if len(leaf.shape) == 0 or leaf.shape[0] != n:
            raise Error(
                f"{self._who}: {path} has shape {list(leaf.shape)}, wanted [{n}, ...]: a row for "
                "each of the keys"
            )
        if self._torch is None or _is_tensor(leaf):
            return leaf
        return self._torch.from_numpy(np.require(leaf, requirements=["C", "W"]))

    def _evaluate_numpy(self, given: dict, n: int):
        _, taken = self._methods["loss_and_grad"]
        if not self._per_replica:
            return self._unpacked("loss_and_grad", self._call("loss_and_grad", **given), 2)
        found = []
        for i in range(n):
            row = {key: _row(given[key], i) for key in taken}
            losses, gradients, aux = self._unpacked(
                "loss_and_grad", self._call("loss_and_grad", **row), 2)
            found.append((
                self._array("loss_and_grad", "a loss", losses, ()),
                self._arrays("loss_and_grad", gradients, self._params_shapes, (),
                             "the gradient of "),
                aux,
            ))
        return (
            np.stack([losses for losses, _, _ in found]),
            {key: np.stack([gradients[i] for _, gradients, _ in found])
             for i, key in enumerate(self._params_shapes)},
            {key: np.stack([_numpy(aux[key]) for _, _, aux in found]) for key in self._aux},
        )

    def _evaluate_torch(self, given: dict, n: int, gradients: bool):
        torch = self._torch
        _, taken = self._methods["loss"]
        batched = [key for key in taken if key not in ("params", "split")]
        split = given["split"]

        def loss(params, *rest):
            row = dict(zip(batched, rest), params=params, split=split)
            value, _, aux = self._unpacked("loss", self._call("loss", **row), 1)
            value = self._scalar("loss", value)
            return value, {key: self._scalar(f"aux['{key}']", aux[key]).detach() for key in aux}

        arguments = (given["params"], *(given[key] for key in batched))
        if self._per_replica:
            return _replica_by_replica(torch, loss, arguments, n, gradients)
        vmap, grad_and_value = _transforms(torch)
        if gradients:
            found, (losses, aux) = vmap(grad_and_value(loss, has_aux=True))(*arguments)
            return losses, found, aux
        losses, aux = vmap(loss)(*arguments)
        return losses, None, aux

    def _scalar(self, what: str, value):
        """A tensor with one number, as float32."""
        if not _is_tensor(value):
            raise Error(
                f"{self._who}: {what} is {_kind_of(value)}, wanted a torch tensor with one number")
        if value.dim() != 0 or not value.is_floating_point():
            raise Error(
                f"{self._who}: {what} has shape {list(value.shape)} and type {value.dtype}, wanted "
                "one number (shape [], a floating type) for one inner training; take a mean or "
                "a sum"
            )
        return value.to(self._torch.float32)

    def _unpacked(self, name: str, result, values: int):
        """(loss, gradients or None, aux outputs) of what a method returned."""
        wanted = ["a loss", "a dict of gradients"][:values]
        if self._aux:
            wanted.append(f"a dict of {_words(self._aux)}")
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) != len(wanted):
            got = f"a tuple of {len(parts)}" if isinstance(result, tuple) else _kind_of(result)
            raise Error(f"{self._who}: {name} returned {got}, wanted {' and '.join(wanted)}")
        aux = parts[-1] if self._aux else {}
        if not isinstance(aux, dict) or set(aux) != set(self._aux):
            raise Error(
                f"{self._who}: {name} returned the aux outputs "
                f"{_words(aux) if isinstance(aux, dict) else _kind_of(aux)}, wanted "
                f"{_words(self._aux)}"
            )
        return parts[0], parts[1] if values == 2 else None, aux


def _kinds(kind) -> str:
    return " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))


def _take(leaf, path: str, rows: np.ndarray):
    """Rows [n, E] of an array [rows, ...]: [n, E, ...]."""
    if not _is_tensor(leaf):
        return np.take(leaf, rows, axis=0)
    import torch

    taken = leaf.index_select(0, torch.from_numpy(rows.reshape(-1)))
    return taken.reshape(*rows.shape, *leaf.shape[1:])


def _row(value, i: int):
    return value if isinstance(value, str) else _map(value, lambda leaf, path: leaf[i], "")


def _import_torch(who: str):
    try:
        import torch
    except ImportError as error:
        raise Error(
            f"{who}: loss(params, batch) is differentiated by torch, which cannot be imported "
            f"({error}); install it, or write loss_and_grad(params, batch) with NumPy"
        ) from error
    return torch


def _transforms(torch):
    """torch.func's vmap and grad_and_value; in torch 1.13 they are those of its functorch."""
    try:
        from torch.func import grad_and_value, vmap
    except ImportError:
        from functorch import grad_and_value, vmap
    return vmap, grad_and_value


def _replica_by_replica(torch, loss, arguments, n: int, gradients: bool):
    losses, found, auxes = [], [], []
    for i in range(n):
        params, *rest = (_row(argument, i) for argument in arguments)
        with torch.set_grad_enabled(gradients):
            for tensor in params.values():
                tensor.requires_grad_(gradients)
            value, aux = loss(params, *rest)
            if gradients:
                each = torch.autograd.grad(value, list(params.values()), allow_unused=True)
                found.append([
                    torch.zeros_like(p) if g is None else g for p, g in zip(params.values(), each)])
        losses.append(value.detach())
        auxes.append(aux)
    return (
        torch.stack(losses),
        {key: torch.stack([each[k] for each in found]) for k, key in enumerate(arguments[0])}
        if gradients else None,
        {key: torch.stack([aux[key] for aux in auxes]) for key in auxes[0]},
    )


@contextlib.contextmanager
def _turn(torch):
    """A user's code runs, alone; torch, unless it is None, uses the calling thread only, so that
    bits do not depend on the machine's cores."""
    with _one_at_a_time:
        threads = torch.get_num_threads() if torch is not None else 1
        if threads == 1:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
