"""Trained optimizers for PyTorch, on lopt's kernels.

    import lopt
    from lopt.torch import LearnedOptimizer

    optimizer = LearnedOptimizer(model.parameters(), lopt.load("recommended"), num_steps=1000)

Needs PyTorch 1.13 or newer.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable
from typing import Any

import numpy
import torch

from . import _core, lopt_optimizer  # python/lopt_optimizer.py
from .lopt_optimizer import Weights
from .theta import Theta, load

__all__ = ["LearnedOptimizer"]

# In the state of a parameter, in place of the tensors of state_dict(); and the shape that the rule
# saw, as rows of several shapes may be as long.
_ROW = "kernel_state"
_SHAPE = "kernel_shape"


def _weights(theta: Theta) -> Weights:
    source = "lopt.torch.LearnedOptimizer"
    resolved = _core.resolve_optimizer(theta.learned_optimizer)
    learned_optimizer = lopt_optimizer._resolved(resolved, source)
    # A copy: what is changed in the Theta later has no effect.
    values = numpy.array(theta.values)
    if values.dtype != numpy.float32:
        raise _core.Error(f"{source}: theta.values must be float32, got {values.dtype}")
    tensors = {name: torch.from_numpy(own)
               for name, own in Theta(learned_optimizer, values).tensors.items()}
    return Weights(learned_optimizer, tensors, theta.trained_horizon or None, source,
                   theta.trained_range)


class KernelExecutor:
    """Steps float32 parameters on the CPU by lopt's kernels. The methods are those of
    lopt_optimizer.TorchExecutor; the state of a parameter is one row of numbers.
    """

    BATCH = math.inf

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        layout = _core.theta_layout(weights.learned_optimizer)
        theta = torch.cat([weights.theta[name].flatten() for name, _ in layout])
        self._core = _core.TensorOptimizer(weights.learned_optimizer, theta.cpu().numpy())
        self._rules: dict[tuple[int, ...], int] = {}
        self._state_sizes: dict[int, int] = {}  # by rule
        # Of each parameter, by its id as long as there is this, a tensor without elements that
        # shares its count of changes, through which autograd notices that the kernels have changed
        # it.
        self._counters: dict[int, tuple[weakref.ref, torch.Tensor]] = {}

    def takes(self, p, gradient):
        return (p.dtype is torch.float32 and p.is_cpu and gradient.dtype is torch.float32
                and gradient.is_cpu and type(p) in (torch.nn.Parameter, torch.Tensor)
                and type(gradient) is torch.Tensor and gradient.shape == p.shape)

    def owns(self, state):
        return _ROW in state

    def fits(self, state, shape):
        return state[_SHAPE] == shape

    def plain(self, state):
        # [blocks, 6, 16] -> [6, n]
        parts = {name: part.transpose(0, 1).flatten(1)[:, : wanted[1]].clone() if in_blocks
                 else part.reshape(wanted).clone()
                 for name, part, wanted, in_blocks in self._parts(state[_ROW], state[_SHAPE])}
        return {"step": state["step"], **parts}

    def finite(self, batches):
        return [self._finite(batch) for batch in batches]

    def update(self, batch):
        group = batch.group
        for state, shape in zip(batch.states, batch.shapes):
            if _ROW not in state:
                row = self._row(state, shape)
                step = state["step"]
                state.clear()
                state.update({"step": step, _ROW: row, _SHAPE: shape})
        values = [self._for_kernels(p) for p in batch.params]
        addresses = [value.data_ptr() for value in values]
        result = self._core.update(
            batch.rules, [gradient.data_ptr() for gradient in batch.gradients], addresses,
            [state[_ROW].data_ptr() for state in batch.states], batch.t, batch.num_steps or 0,
            math.nan if batch.loss is None else batch.loss, group["lr"], group["weight_decay"],
            group["skip_zero_gradients"], torch.get_num_threads())
        in_place = []
        for p, value, address in zip(batch.params, values, addresses):
            if address == p.data_ptr():
                in_place.append(self._counter(p))
            else:
                p.copy_(self._weights.in_torch_order(value, p.shape))
        if in_place:
            torch._foreach_zero_(in_place)
        return result

    def _finite(self, batch):
        """Also finds the rules, and brings the gradients into the order of the rule."""
        batch.rules = [self._rule(shape) for shape in batch.shapes]
        for i, (p, gradient, state) in enumerate(zip(batch.params, batch.gradients, batch.states)):
            for what, tensor in (("tensor", p), ("gradient", gradient)):
                if tensor.data_ptr() == 0 and tensor.numel() > 0:
                    raise RuntimeError(f"LearnedOptimizer: {batch.name(i)} has no memory in its "
                                       f"{what}: it was freed; nothing was changed")
            if _ROW in state and state[_ROW].numel() != self._state_sizes[batch.rules[i]]:
                raise RuntimeError(f"LearnedOptimizer: {batch.name(i)} has a state of another size; "
                                   "nothing was changed")
        batch.gradients = [self._for_kernels(gradient) for gradient in batch.gradients]
        addresses = [gradient.data_ptr() for gradient in batch.gradients]
        bad = self._core.not_finite(batch.rules, addresses, torch.get_num_threads())
        return [i for i in range(len(batch.params)) if i not in bad]

    def _rule(self, shape: tuple[int, ...]) -> int:
        """The number of the rule for tensors of this shape, as the rule sees them."""
        number = self._rules.get(shape)
        if number is None:
            number = self._core.bind(list(shape))
            layout = self._core.state_layout(number)
            self._state_sizes[number] = sum(math.prod(own) for _, own in layout)
            self._rules[shape] = number
        return number

    def _for_kernels(self, tensor):
        """The tensor itself, or a copy, in the order of the rule and without gaps."""
        if self._weights.sees_shapes and tensor.dim() >= 2:
            tensor = self._weights.in_rule_order(tensor)
        return tensor.resolve_neg().contiguous()

    def _row(self, plain: dict[str, torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
        """A row with the parts of a state of state_dict(); zeros where it has none."""
        size = self._state_sizes[self._rule(shape)]
        row = torch.zeros(size, dtype=torch.float32, device="cpu")  # whatever torch's defaults are
        if len(plain) == 1:  # the step
            return row
        for name, part, wanted, in_blocks in self._parts(row, shape):
            if in_blocks:
                blocks, momenta, block = part.shape
                padded = row.new_zeros(momenta, blocks * block)
                padded[:, : wanted[1]] = plain[name]
                part.copy_(padded.view(momenta, blocks, block).transpose(0, 1))
            else:
                part.copy_(plain[name].reshape(part.shape))
        return row

    def _parts(self, row: torch.Tensor, shape: tuple[int, ...]) -> Iterable[tuple]:
        """Of a row: names, views of the parts, their shapes in state_dict(), and whether they are
        the momenta of an MLPLOpt, or of one that another is made of, which are in blocks."""
        optimizer = self._weights.learned_optimizer
        part = "matrices" if len(shape) >= 2 else "vectors"  # of MatricesAndVectors
        while inner := optimizer.get("optimizer", optimizer.get(part)):
            optimizer = inner
        begin = 0
        layout = self._core.state_layout(self._rule(shape))
        for (name, wanted), (_, own) in zip(self._weights.state_shapes(shape).items(), layout):
            size = math.prod(own)
            in_blocks = optimizer["type"] == "MLPLOpt" and name.endswith("momenta")
            yield name, row[begin : begin + size].view(own), wanted, in_blocks
            begin += size

    def _counter(self, p):
        key, counters = id(p), self._counters
        if key not in counters:
            counter = p.detach()
            counter.data = counter.new_empty(0)
            counters[key] = weakref.ref(p, lambda _: counters.pop(key, None)), counter
        return counters[key][1]


class LearnedOptimizer(lopt_optimizer.LearnedOptimizer):
    __doc__ = (lopt_optimizer.LearnedOptimizer.__doc__ or "") + """
    Float32 parameters on the CPU are updated by lopt's kernels, all of a group in one call, on as
    many threads as torch has (torch.get_num_threads) and without the GIL; results do not depend on
    the number of threads. Contiguous ones are updated where they lie, without a copy; others, and
    those of two axes or more under an optimizer that sees shapes, by way of one. Parameters of
    other devices and types are updated by operations of torch. The two agree to rounding, and a
    state_dict of one is one of the other, and of the one-file optimizer; optimizer.state has the
    kernels' own form of the state, "kernel_state".
    """

    EXECUTORS = (KernelExecutor, lopt_optimizer.TorchExecutor)

    def __init__(self, params: Any, theta: Theta | str | os.PathLike, lr: float = 1.0,
                 weight_decay: float = 0.0, non_finite: str = "error",
                 skip_zero_gradients: bool = False, num_steps: int | str | None = None,
                 as_vectors: bool = False, batch_size: int | None = None) -> None:
        """An optimizer of params (tensors, or dictionaries of groups) with this theta: a Theta, or
        what lopt.load takes.

        Raises:
            lopt.Error: lopt.load's, or the values of theta are not float32 or not as many as its
                optimizer has weights.
            TypeError: A parameter is not of a real floating-point type.
            ValueError: An option is not valid, num_steps is missing where it is needed, or theta is
                that of an optimizer that does not treat each tensor by itself.
        """
        weights = _weights(theta if isinstance(theta, Theta) else load(theta))
        super().__init__(params, weights, lr, weight_decay, non_finite, skip_zero_gradients,
                         num_steps, as_vectors, batch_size)

    @classmethod
    def from_file(cls, path: str | os.PathLike, params: Any, lr: float = 1.0,
                  weight_decay: float = 0.0, learned_optimizer: dict[str, Any] | None = None,
                  non_finite: str = "error", skip_zero_gradients: bool = False,
                  num_steps: int | str | None = None, as_vectors: bool = False,
                  despite_failed_check: bool = False,
                  batch_size: int | None = None) -> LearnedOptimizer:
        """As the one-file optimizer's: of what Theta.read takes."""
        return cls(params, Theta.read(path, learned_optimizer, despite_failed_check), lr,
                   weight_decay, non_finite, skip_zero_gradients, num_steps, as_vectors,
                   batch_size)
