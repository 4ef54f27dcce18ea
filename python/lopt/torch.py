"""Trained optimizers for PyTorch, on lopt's kernels.

    import lopt
    from lopt.torch import LearnedOptimizer

    optimizer = LearnedOptimizer(model.parameters(), lopt.load("recommended"), num_steps=1000)

Needs PyTorch 1.13 or newer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy
import torch

from . import _core, _reference
from .theta import Theta, load

__all__ = ["LearnedOptimizer"]

# In the state of a parameter, in place of the plain-torch optimizer's tensors; and the shape that
# the rule saw, as rows of several shapes may be as long.
_ROW = "kernel_state"
_SHAPE = "kernel_shape"


class _ThetaFile(_reference.ThetaFile):
    """A Theta as the plain-torch optimizer knows it; files are checked where they are read."""

    def __init__(self, theta: Theta) -> None:
        source = "lopt.torch.LearnedOptimizer"
        self._rule, self.learned_optimizer = _reference._resolve(theta.learned_optimizer, source)
        # A copy: what is changed in the Theta later has no effect.
        self.values = numpy.array(theta.values)
        if self.values.dtype != numpy.float32:
            raise _core.Error(f"{source}: theta.values must be float32, got {self.values.dtype}")
        copy = Theta(self.learned_optimizer, self.values)
        self.theta = {name: torch.from_numpy(values) for name, values in copy.tensors.items()}
        self._check_theta(source)
        self.trained_horizon = theta.trained_horizon or None
        self.metadata, self.golden_steps = {}, 0
        self._golden = _reference._golden_steps(source, {})

    @property
    def sees_shapes(self) -> bool:
        return self._rule.SEES_SHAPES


class _Kernels:
    """The learned optimizer's kernels, and how they keep the state of a tensor: as one row of
    numbers, whose parts are the tensors of the plain-torch optimizer.
    """

    def __init__(self, file: _ThetaFile) -> None:
        self._file = file
        self._rules: dict[tuple[int, ...], int] = {}
        self._state_sizes: list[int] = []
        self.core = _core.TensorOptimizer(file.learned_optimizer, file.values)

    def rule(self, shape: tuple[int, ...]) -> int:
        """The number of the rule for tensors of this shape, as the rule sees them."""
        number = self._rules.get(shape)
        if number is None:
            number = self._rules[shape] = self.core.bind(list(shape))
            layout = self.core.state_layout(number)
            self._state_sizes.append(sum(math.prod(own) for _, own in layout))
        return number

    def state_size(self, rule: int) -> int:
        return self._state_sizes[rule]

    def parts(self, row: torch.Tensor, shape: tuple[int, ...]) -> Iterable[tuple]:
        """Of a row: names, views of the parts, and their shapes in the plain-torch optimizer."""
        begin = 0
        layout = self.core.state_layout(self.rule(shape))
        for (name, wanted), (_, own) in zip(self._file.state_shapes(shape).items(), layout):
            size = math.prod(own)
            yield name, row[begin : begin + size].view(own), wanted
            begin += size

    def plain(self, row: torch.Tensor, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
        """Copies of the parts, as the plain-torch optimizer has them."""
        # [blocks, 6, 16] -> [6, n]
        return {name: part.transpose(0, 1).flatten(1)[:, : wanted[1]].clone()
                if self._in_blocks(name) else part.reshape(wanted).clone()
                for name, part, wanted in self.parts(row, shape)}

    def row(self, plain: dict[str, torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
        """A row with these parts; zeros where `plain` is empty."""
        size = self.state_size(self.rule(shape))
        row = torch.zeros(size, dtype=torch.float32, device="cpu")  # whatever torch's defaults are
        if not plain:
            return row
        for name, part, wanted in self.parts(row, shape):
            if self._in_blocks(name):
                blocks, momenta, block = part.shape
                padded = row.new_zeros(momenta, blocks * block)
                padded[:, : wanted[1]] = plain[name]
                part.copy_(padded.view(momenta, blocks, block).transpose(0, 1))
            else:
                part.copy_(plain[name].reshape(part.shape))
        return row

    def _in_blocks(self, part: str) -> bool:
        """Whether it is the momenta of an MLPLOpt, or of one whose steps are changed."""
        optimizer = self._file.learned_optimizer
        while "optimizer" in optimizer:
            optimizer = optimizer["optimizer"]
        return optimizer["type"] == "MLPLOpt" and part.endswith("momenta")


class LearnedOptimizer(_reference.LearnedOptimizer):
    __doc__ = (_reference.LearnedOptimizer.__doc__ or "") + """
    Float32 parameters on the CPU are updated by lopt's kernels, all of a group in one call, on as
    many threads as torch has (torch.get_num_threads) and without the GIL; results do not depend on
    the number of threads. Contiguous ones are updated where they lie, without a copy; others, and
    those of two axes or more under an optimizer that sees shapes, by way of one. Parameters of
    other devices and types are updated by operations of torch. The two agree to rounding, and a
    state_dict of one is one of the other, and of the one-file optimizer; optimizer.state has the
    kernels' own form of the state, "kernel_state".
    """

    def __init__(self, params: Any, theta: Theta | str | os.PathLike, lr: float = 1.0,
                 weight_decay: float = 0.0, non_finite: str = "error",
                 skip_zero_gradients: bool = False, num_steps: int | None = None,
                 as_vectors: bool = False) -> None:
        """An optimizer of params (tensors, or dictionaries of groups) with this theta: a Theta, or
        what lopt.load takes.

        Raises:
            lopt.Error: lopt.load's, or the values of theta are not float32 or not as many as its
                optimizer has weights.
            TypeError: A parameter is not of a real floating-point type.
            ValueError: An option is not valid, num_steps is missing where it is needed, or theta is
                that of an optimizer that does not treat each tensor by itself.
        """
        file = _ThetaFile(theta if isinstance(theta, Theta) else load(theta))
        self._sees_shapes = file.sees_shapes
        self._kernels: _Kernels | None = None
        # Of each parameter a tensor without elements that shares its count of changes, through
        # which autograd notices that the kernels have changed it.
        self._counters: dict[torch.Tensor, torch.Tensor] = {}
        super().__init__(params, file, lr, weight_decay, non_finite, skip_zero_gradients, num_steps,
                         as_vectors)

    @classmethod
    def from_file(cls, path: str | os.PathLike, params: Any, lr: float = 1.0,
                  weight_decay: float = 0.0, learned_optimizer: dict[str, Any] | None = None,
                  non_finite: str = "error", skip_zero_gradients: bool = False,
                  num_steps: int | None = None, as_vectors: bool = False,
                  despite_failed_check: bool = False) -> LearnedOptimizer:
        """As the one-file optimizer's: of what Theta.read takes."""
        return cls(params, Theta.read(path, learned_optimizer, despite_failed_check), lr,
                   weight_decay, non_finite, skip_zero_gradients, num_steps, as_vectors)

    def _kind(self, p, gradient):
        native = (p.dtype is torch.float32 and p.is_cpu and gradient.dtype is torch.float32
                  and gradient.is_cpu and type(p) in (torch.nn.Parameter, torch.Tensor)
                  and type(gradient) is torch.Tensor and gradient.shape == p.shape)
        return ("kernels", math.inf) if native else super()._kind(p, gradient)

    def _shape_has_changed(self, p, group):
        state = self.state[p] if p in self.state else {}
        if _ROW in state:
            shape = self._seen_shape(p, group)
            return state.get(_SHAPE, shape) != shape
        return super()._shape_has_changed(p, group)

    def _finite(self, batches):
        found = []
        for batch in batches:
            if batch.kind != "kernels":
                found.extend(super()._finite([batch]))
                continue
            self._prepare(batch)
            addresses = [gradient.data_ptr() for gradient in batch.gradients]
            bad = self._kernels.core.not_finite(batch.rules, addresses, torch.get_num_threads())
            found.append([i for i in range(len(batch.params)) if i not in bad])
        return found

    def _prepare(self, batch):
        """Finds the rules, and brings the gradients into the order of the rule."""
        if self._kernels is None:
            self._kernels = _Kernels(self._theta_file)
        batch.rules = [self._kernels.rule(self._seen_shape(p, batch.group)) for p in batch.params]
        batch.gradients = [self._for_kernels(gradient) for gradient in batch.gradients]
        for i, p in enumerate(batch.params):
            for what, tensor in (("", p), (" gradient", batch.gradients[i])):
                if tensor.data_ptr() == 0 and tensor.numel() > 0:
                    raise RuntimeError(f"LearnedOptimizer: {batch.name(i)} has no memory in its"
                                       f"{what or ' tensor'}: it was freed; nothing was changed")
            row = self.state[p].get(_ROW) if p in self.state else None
            if row is not None and row.numel() != self._kernels.state_size(batch.rules[i]):
                raise RuntimeError(f"LearnedOptimizer: {batch.name(i)} has a state of another size; "
                                   "nothing was changed")

    def _update(self, batch):
        group = batch.group
        states = [self.state[p] for p in batch.params]
        if batch.kind != "kernels":
            for p, state in zip(batch.params, states):
                if _ROW in state:
                    self.state[p] = self._plain_state(state, p, group)
            return super()._update(batch)
        for p, state in zip(batch.params, states):
            if _ROW not in state:
                step = state.pop("step", 0)
                row = self._kernels.row(state, self._seen_shape(p, group))
                state.clear()
                state.update({"step": step, _ROW: row, _SHAPE: self._seen_shape(p, group)})
        values = [self._for_kernels(p) for p in batch.params]
        addresses = [value.data_ptr() for value in values]
        left, decays = self._kernels.core.update(
            batch.rules, [gradient.data_ptr() for gradient in batch.gradients], addresses,
            [state[_ROW].data_ptr() for state in states], batch.t, group["num_steps"] or 0,
            group["lr"], group["weight_decay"], group["skip_zero_gradients"],
            torch.get_num_threads())
        in_place = []
        for p, value, address, state in zip(batch.params, values, addresses, states):
            state["step"] += 1
            if address == p.data_ptr():
                in_place.append(self._counter(p))
            else:
                p.copy_(self._theta_file.in_torch_order(value, p.shape))
        if in_place:
            torch._foreach_zero_(in_place)
        return left, decays

    def _seen_shape(self, p, group):
        """A parameter's shape as the rule sees it."""
        if not self._sees_shapes or group["as_vectors"]:
            return (p.numel(),)
        return tuple(self._theta_file.in_rule_order(p).shape)

    def _for_kernels(self, tensor):
        """The tensor itself, or a copy, in the order of the rule and without gaps."""
        if self._sees_shapes and tensor.dim() >= 2:
            tensor = self._theta_file.in_rule_order(tensor)
        return tensor.resolve_neg().contiguous()

    def _plain_state(self, state, p, group):
        if self._kernels is None:
            self._kernels = _Kernels(self._theta_file)
        return {"step": state["step"],
                **self._kernels.plain(state[_ROW], self._seen_shape(p, group))}

    def _counter(self, p):
        counter = self._counters.get(p)
        if counter is None:
            counter = p.detach()
            counter.data = counter.new_empty(0)
            self._counters[p] = counter
        return counter

    def state_dict(self) -> dict[str, Any]:
        """As of every optimizer, with theta: that of the one-file optimizer. Tensors are copies."""
        saved = super().state_dict()
        params = [(p, group) for group in self.param_groups for p in group["params"]]
        saved["state"] = {i: self._plain_state(state, *params[i]) if _ROW in state else state
                          for i, state in saved["state"].items()}
        return saved

    def __getstate__(self):
        return {**super().__getstate__(), "_sees_shapes": self._sees_shapes, "_kernels": None,
                "_counters": {}}
