"""The trainings as tasks of lopt, so that lopt.fit and lopt.evaluate can train them."""

import contextlib
import functools
import zlib

import torch

import lopt

from . import data, development_half, test_half
from .training import Task

TASKS = {**development_half.TASKS, **test_half.TASKS}
_LARGEST = 2**31 - 1  # of numbers that are drawn to seed torch


def _made(name, seed, numbers):
    """A training whose data is that of `seed`, and whose model is drawn by other numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(numbers)
        return TASKS[name](seed)


def _place_of(model):
    """[(module, name)] for each name of a parameter: several where modules share it."""
    places = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return {name: places[id(parameter)] for name, parameter in model.named_parameters()}


class _NoModel:
    """In place of a model that is not to be asked."""

    def __getattr__(self, name):
        raise lopt.Error(
            "its batches depend on what the model does; batches of a lopt task are drawn by keys")

    def __call__(self, *given):
        self.forward(*given)


def _check(name, task):
    """Raises lopt.Error where a task in Python cannot have what the training needs."""
    normed = [type(module).__name__ for module in task.model.modules()
              if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
              and module.track_running_stats]
    if normed:
        raise lopt.Error(
            f"{name}: {normed[0]} keeps running statistics, a state beside the parameters; tasks "
            "of lopt in Python have none")
    trained = {id(parameter) for parameter in task.parameters()}
    others = trained - {id(parameter) for parameter in task.model.parameters()}
    if others:
        raise lopt.Error(f"{name}: it trains {len(others)} parameters that are not its model's; "
                         "wanted all of them in task.model")
    if type(task).batch is not Task.batch:
        model, task.model = task.model, _NoModel()
        try:
            task.batch()
        except lopt.Error as error:
            raise lopt.Error(f"{name}: {error}") from None
        finally:
            task.model = model


def rows_of(name):
    """Whether a training's batches are rows of a data set; else it draws them anew. Raises
    lopt.Error, with the reason, where it can be no task of lopt in Python."""
    task = _made(name, 0, 0)
    _check(name, task)
    return type(task).batch is Task.batch


class _UserModel:
    """What both kinds of tasks have."""

    per_replica = True  # models may do what vmap cannot

    def __post_init__(self):
        self._task = _made(self.model, self.seed, 0)
        trained = {id(parameter) for parameter in self._task.parameters()}
        named = dict(self._task.model.named_parameters())
        self._places = {name: places for name, places in _place_of(self._task.model).items()
                        if id(named[name]) in trained}
        for places in self._places.values():
            for module, name in places:
                delattr(module, name)  # so that a plain tensor may stand there
        self._start = functools.lru_cache(64)(self._drawn_start)

    def _drawn_start(self, numbers):
        named = dict(_made(self.model, self.seed, numbers).model.named_parameters())
        return {name: named[name].detach() for name in self._places}

    def init(self, key):
        start = self._start(int(key.integers((), 0, _LARGEST)))
        return {name: value.clone() for name, value in start.items()}

    @contextlib.contextmanager
    def _with(self, params, split, numbers):
        """The training with these params, whose model draws random numbers by `numbers`."""
        for name, value in params.items():
            for module, own in self._places[name]:
                setattr(module, own, value)
        self._task.model.train(split == "train")
        torch.manual_seed(numbers)
        yield self._task


@lopt.task
class UserModelOnRows(_UserModel):
    """A training of benchmarks/user_models on rows of a data set."""

    model: str = lopt.option("table-regression", "Name of the training.")
    seed: int = lopt.option(0, "Seed of its data.")
    batch_size: int = lopt.option(32, "Rows of a batch.", min=1)

    def data(self):
        return self._numbered(self._task.data)

    def test_data(self):
        return self._numbered(self._task.test)

    @staticmethod
    def _numbered(parts):
        """With the numbers of the rows, which say what a model draws for a batch of them."""
        return [*parts, torch.arange(len(parts[0]))]

    def loss(self, params, batch, split):
        *parts, rows = batch
        with self._with(params, split, zlib.crc32(rows.numpy().tobytes())) as task:
            return task.loss(*parts)


def _split_rows(count):
    """Of `count` rows those of each split: four fifths are trained on."""
    tenth = torch.arange(count) % 10
    return {"train": tenth < 8, "inner_valid": tenth == 8, "outer_valid": tenth == 9}


@lopt.task
class UserModelOnDraws(_UserModel):
    """A training of benchmarks/user_models that draws its batches anew.

    Where it draws from data, or has the same batch in each step, a tenth of the rows is held out for
    inner_valid and another for outer_valid. The split test is judged by the training's own test
    loss, whatever the batch.
    """

    model: str = lopt.option("poisson", "Name of the training.")
    seed: int = lopt.option(0, "Seed of its data.")

    def __post_init__(self):
        super().__post_init__()
        self._data = getattr(self._task, "data", None)
        first, second = self._drawn(0), self._drawn(1)
        self._is_constant = all(map(torch.equal, first, second))

    def batch(self, keys, split):
        if self._data is not None and split != "test":
            rows = _split_rows(len(self._data[0]))[split]
            self._task.data = [part[rows] for part in self._data]
        drawn = [self._batch(int(numbers), split)
                 for numbers in keys.integers((), 0, _LARGEST)]
        return [torch.stack(parts) for parts in zip(*drawn)]

    def _drawn(self, numbers):
        self._task.draws = data.generator(numbers, "batches")
        return list(self._task.batch())

    def _batch(self, numbers, split):
        parts = self._drawn(numbers)
        if self._is_constant and split != "test":
            parts = [part[_split_rows(len(part))[split]] for part in parts]
        return [*parts, torch.tensor(numbers)]

    def loss(self, params, batch, split):
        *parts, numbers = batch
        # The solution of an equation is known to the test alone.
        with self._with(params, split, int(numbers)) as task, torch.enable_grad():
            return task.test_loss() if split == "test" else task.loss(*parts)


def fitted_task(name, seed=0):
    """The task of lopt that a training is, with the data of a seed. Raises lopt.Error, with the
    reason, where it can be none."""
    if rows_of(name):
        return UserModelOnRows(model=name, seed=seed, batch_size=TASKS[name].batch_size)
    return UserModelOnDraws(model=name, seed=seed)
