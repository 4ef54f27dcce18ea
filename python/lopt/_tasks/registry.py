"""Task types: classes under names that configs say."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import TYPE_CHECKING, TypeVar

from lopt import _core
from lopt._core import Error

from .family import Family
from .methods import check_methods, has
from .options import options_of
from .torch_loss import import_torch
from .turn import turn
from .values import kind_of

if TYPE_CHECKING:  # type checkers have it; Python does from 3.11 on
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda function: function


Task = TypeVar("Task")

# type -> (class, what the extension has of it)
_registered: dict[str, tuple[type, _core.TaskType]] = {}


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field,))
def task(cls: type[Task]) -> type[Task]:
    """Registers a class as a task type under its own name (see `register_task`): a decorator."""
    return register_task(cls.__name__, cls)


def register_task(type: str, cls: type[Task]) -> type[Task]:
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

    An instance, Regression(dim=6), may stand in configs in place of {"type": "Regression", "dim": 6}.
    A class of the same module and name takes the place of the one before, as in a notebook cell
    that is run again. Returns the class. Raises Error if the class is no task, or if there is
    another type of that name.
    """
    who = f"task {type}"
    if not inspect.isclass(cls):
        raise Error(f"{who}: register_task takes a class, got {kind_of(cls)}")
    summary = (inspect.getdoc(cls) if "__doc__" in vars(cls) else None) or "A task in Python."
    if "__dataclass_fields__" not in vars(cls):
        if "__init__" in vars(cls):
            raise Error(
                f"{who}: the class has an __init__; options are annotated attributes "
                "('dim: int = 8'), and what is made from them is made in __post_init__"
            )
        cls = dataclasses.dataclass(eq=False)(cls)
    check_methods(who, cls)
    if has(cls, "loss"):
        # Here, on a thread that lives on: torch 1.13 keeps the Python thread state of its import.
        import_torch(who)
    options = options_of(who, cls)
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
    cls.__lopt_config__ = _config_of
    return cls


def _config_of(task) -> dict:
    """What a config says of an instance of a class, by the first of its names."""
    cls = task.__class__
    for type, (known, _) in _registered.items():
        if known is cls:
            options = {field.name: getattr(task, field.name) for field in dataclasses.fields(cls)}
            if hasattr(cls, "__post_init__"):
                _check_kept(f"task {type}", options, cls(**copy.deepcopy(options)))
            return {"type": type} | options
    raise Error(
        f"{kind_of(task)} is no task type, or is one no longer: register_task makes a class one, and "
        "one of the same name takes its place"
    )


def _check_kept(who: str, options: dict, again) -> None:
    """Error if an instance that was made of these options has others: so would each that a config
    makes."""
    for name, value in options.items():
        changed = getattr(again, name)
        if repr(changed) != repr(value):
            raise Error(
                f"{who}: __post_init__ changes option '{name}', again where a config makes an "
                f"instance of it: it makes {changed!r} of {value!r}; put what is made from options "
                "into attributes of other names"
            )


def make_family(type: str, options: dict) -> Family:
    """What the extension makes a task family of: a new instance of the class."""
    who, cls = f"task {type}", _registered[type][0]
    torch = import_torch(who) if has(cls, "loss") else None
    with turn(torch):
        return Family(who, cls(**options), torch)
