"""One training of one model with one optimizer, and what is kept of it."""

import inspect
import math
import time

import torch
from torch.nn.functional import cross_entropy

from . import data

CURVE = 100  # parts of a training whose mean losses are kept


class Task:
    """A training as a user would write it. An object is the training of one seed: it has made its
    data and its model, and draws its batches from `self.draws`, a torch.Generator.

    steps: number of updates. kind: what the table says of it.

    files: of Python's library, where the task trains on their docstrings.

    apart: whether the losses of good trainings differ by factors of a hundred, so that the table's
    geometric means leave the task out and give it a column of its own.

    curve_counts: whether a lower training loss is a better training, so that the table may ask when
    one reaches Adam's.
    """

    steps = 0
    kind = ""
    files = ()
    apart = False
    curve_counts = True

    def __init__(self, seed):
        self.draws = data.generator(seed, "batches")
        self.make(seed)

    def make(self, seed):
        """Makes data and model; the caller has seeded torch's global random numbers."""
        raise NotImplementedError

    def batch(self):
        """What the next step trains on; for reinforcement learning, what the policy has done."""
        rows = torch.randint(0, len(self.data[0]), (self.batch_size,), generator=self.draws)
        return [part[rows] for part in self.data]

    def loss(self, *batch):
        """The loss of a batch; by default, that of a classifier."""
        inputs, labels = batch
        return cross_entropy(self.model(inputs), labels)

    def parameters(self):
        """What the optimizer trains."""
        return list(self.model.parameters())

    def test_loss(self):
        """The loss on what is held out, above 0; by default, of all of `self.test` at once. Called
        without gradients and with the model in evaluation mode."""
        return self.loss(*self.test)


def next_byte_loss(model, windows):
    """The cross-entropy of each byte of windows [n, length + 1] after those before it."""
    return cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


class _Diverged(Exception):
    """A loss or a gradient is not finite."""


class _Loop:
    """The steps of a training, with their losses and times."""

    def __init__(self, task, optimizer):
        self.task, self.optimizer = task, optimizer
        self.losses = []
        self.step_seconds = 0.0  # in the optimizer, without the model
        self.takes_closure = "closure" in inspect.signature(optimizer.step).parameters

    def _gradients(self, batch):
        """Sets the gradients; the loss."""
        begin = time.perf_counter()
        with torch.enable_grad():
            self.optimizer.zero_grad()
            loss = self.task.loss(*batch)
            loss.backward()
        self.value = loss.item()
        if not math.isfinite(self.value):
            raise _Diverged
        self.model_seconds += time.perf_counter() - begin
        return loss

    def step(self):
        """One update. Raises _Diverged if the loss or a gradient is not finite."""
        batch = self.task.batch()
        self.model_seconds = 0.0
        begin = time.perf_counter()
        try:
            if self.takes_closure:
                self.optimizer.step(lambda: self._gradients(batch))
            else:
                self._gradients(batch)
                self.optimizer.step()
        except (RuntimeError, ValueError):
            if all(p.grad is None or p.grad.isfinite().all() for p in self.task.parameters()):
                raise
            raise _Diverged from None  # what the optimizer says of such a gradient
        self.step_seconds += time.perf_counter() - begin - self.model_seconds
        self.losses.append(self.value)


def _test_loss(task, optimizer):
    """The test loss, of averaged weights where the optimizer has them (its eval(), as that of
    Schedule-Free). Raises _Diverged if it is not finite."""
    task.model.eval()
    if callable(getattr(optimizer, "eval", None)):
        optimizer.eval()
    with torch.no_grad():
        loss = float(task.test_loss())
    if not math.isfinite(loss):
        raise _Diverged
    if loss <= 0:
        raise ValueError(f"{type(task).__name__}: a test loss must be above 0, got {loss}")
    return loss


def _curve(losses):
    """Mean losses of at most CURVE parts of equal size."""
    parts = min(CURVE, len(losses))
    bounds = [i * len(losses) // parts for i in range(parts + 1)]
    return [float(f"{sum(losses[a:b]) / (b - a):.6g}") for a, b in zip(bounds, bounds[1:])]


def _state_numbers(optimizer):
    """Numbers that the optimizer keeps, without those that it has once for a tensor; a learned one
    may have averages beside its state."""
    beside = getattr(optimizer, "averages", {}).values()
    return sum(average.numel() for average in beside) + sum(
        value.numel() for state in optimizer.state.values() for value in state.values()
        if torch.is_tensor(value) and value.dim() > 0)


def train(task_type, make_optimizer, seed, steps=None):
    """Trains a task with an optimizer; what is kept, as JSON has it.

    make_optimizer: function from (params, num_steps). steps: in place of the task's own number.
    Bits depend on the seed alone: torch runs on one thread, and its global random numbers are
    seeded here.

    Of the result, `test_loss` and `curve` (mean training losses of up to CURVE parts) are None
    where the training diverged: the loss, a gradient or the test loss was not finite. `made` is the
    number of steps before that.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    steps = steps or task_type.steps
    task = task_type(seed)
    params = task.parameters()
    loop = _Loop(task, make_optimizer(params, steps))
    test_loss = curve = None
    task.model.train()
    if callable(getattr(loop.optimizer, "train", None)):
        loop.optimizer.train()
    begin = time.perf_counter()
    try:
        while len(loop.losses) < steps:
            loop.step()
        seconds = time.perf_counter() - begin
        test_loss = _test_loss(task, loop.optimizer)
        curve = _curve(loop.losses)
    except _Diverged:
        seconds = time.perf_counter() - begin
    made = max(1, len(loop.losses))
    size = sum(p.numel() for p in params)
    return {"test_loss": test_loss, "curve": curve, "made": len(loop.losses), "params": size,
            "step_us": round(1e6 * seconds / made, 1),
            "optimizer_us": round(1e6 * loop.step_seconds / made, 1),
            "state": round(_state_numbers(loop.optimizer) / size, 2)}
