"""Train PyTorch models with a learned optimizer that lopt has meta-trained.

This one file is all that is needed: copy it beside your program. It needs PyTorch 1.13 or newer
and nothing else. In lopt's repository tools/assemble_one_file makes it of python/one_file/ and
python/rules/.

    from lopt_optimizer import LearnedOptimizer

    optimizer = LearnedOptimizer.from_file("theta.safetensors", params=model.parameters())
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss_function(model(inputs), labels).backward()
        optimizer.step()

`python3 lopt_optimizer.py theta.safetensors` checks a file and says what it holds.
"""

import collections
import contextlib
import json
import math
import operator
import os
import stat
import struct
import sys
import warnings
import weakref
from typing import Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor

__all__ = ["GoldenDeviation", "LearnedOptimizer", "ThetaFile"]

_FORMAT = "lopt theta "  # what the formats begin with, newer ones too
_FORMATS = ("lopt theta 1", "lopt theta 2")
_SCHEDULES = ("constant", "linear", "cosine", "warmup-cosine")


class _Rule:
    """What the rest of this file asks of a type of learned optimizer: one subclass for each. An
    object has the options as attributes, and those of OTHERS as rules.

    OPTIONS: the options with their defaults. CHOICES: the valid values of those that are names.
    OTHERS: the options that are other learned optimizers.

    SEES_SHAPES: whether steps depend on a tensor's shape. Tensors then come in it, those of two
    axes or more as [spatial..., in, out]; else they come flat, as [n].
    """

    CHOICES = {}
    OTHERS = ()
    SEES_SHAPES = False

    @staticmethod
    def check(options):
        """Raises ValueError for options of the right types that are not valid."""

    @staticmethod
    def need_of_num_steps(options):
        """What makes steps need num_steps, such as "LearnableAdam with schedule 'cosine'"; None if
        nothing does. The options have the type among them."""
        return None

    @staticmethod
    def needs_loss(options):
        """Whether steps need the loss of the batch that the gradients are of."""
        return False

    @staticmethod
    def layout(options):
        """Shapes of theta's tensors by name."""
        raise NotImplementedError

    def __init__(self, options):
        vars(self).update(options)
        for name in self.OTHERS:
            vars(self)[name] = _rule_of(options[name])(options[name])
        self._joined = {}  # by the id of the first tensor, as long as there is this

    def state_shapes(self, shape):
        """Shapes of the state of a tensor by name, in the order of lopt's kernels; it begins with
        zeros."""
        raise NotImplementedError

    def weights(self, theta):
        """What steps need of theta's tensors, by name."""
        raise NotImplementedError

    def steps(self, w, params, gradients, states, t, num_steps, loss):
        """What is to be subtracted from each of the params, of its shape. w: the weights; params,
        gradients: float32; states: their dictionaries, whose tensors are changed in place or
        replaced; t: number of the tensors' earlier updates; num_steps: number of updates of the
        training, above t, or 0 where it is not known, which it is if need_of_num_steps names an
        option; loss: of the batch, a number without meaning unless needs_loss."""
        raise NotImplementedError

    def joined(self, states, name, sizes):
        """[k, sum of sizes]. The tensors of this name of the states are parts of it, which stay
        where they are as long as the same tensors are updated together."""
        parts = [state[name] for state in states]
        joined, known = self._joined.get(id(parts[0]), (None, ()))
        if len(parts) != len(known) or any(a is not b() for a, b in zip(parts, known)):
            joined = torch.cat(parts, 1)
            parts = joined.split_with_sizes(sizes, 1)
            self._joined[id(parts[0])] = joined, [weakref.ref(part) for part in parts]
            weakref.finalize(parts[0], self._joined.pop, id(parts[0]), None).atexit = False
            for state, part in zip(states, parts):
                state[name] = part
        return joined


_has_autocast = getattr(torch.amp, "is_autocast_available", ("cpu", "cuda", "xpu").__contains__)


class _AllMatmuls:
    """The setting of float32 matrix products before PyTorch 2.9, as each backend has it since."""

    WORDS = {"ieee": "highest", "none": "highest", "tf32": "high", "bf16": "medium"}

    @property
    def fp32_precision(self):
        precision = torch.get_float32_matmul_precision()
        return next(word for word, known in self.WORDS.items() if known == precision)

    @fp32_precision.setter
    def fp32_precision(self, word):
        torch.set_float32_matmul_precision(self.WORDS[word])


# From PyTorch 2.9 on torch.get_float32_matmul_precision raises an error where a backend was told a
# precision of its own.
_MATMULS = ((torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
            if hasattr(torch.backends.mkldnn, "matmul") else (_AllMatmuls(),))


@contextlib.contextmanager
def _in_full_precision(device):
    """Float32 matrix products on a type of device are not rounded within it: neither by
    torch.autocast nor to TF32 or bfloat16."""
    rounding = [(matmul, precision) for matmul, precision in
                ((matmul, matmul.fp32_precision) for matmul in _MATMULS)
                if precision in ("tf32", "bf16")]
    for matmul, _ in rounding:
        matmul.fp32_precision = "ieee"
    try:
        with (torch.autocast(device, enabled=False) if _has_autocast(device)
              else contextlib.nullcontext()):
            yield
    finally:
        for matmul, precision in rounding:
            matmul.fp32_precision = "none"  # that of torch.backends.fp32_precision
            if matmul.fp32_precision != precision:
                matmul.fp32_precision = precision


class _BoundRule:
    """A rule with the weights of a theta on a device."""

    def __init__(self, rule, theta, device):
        self._rule, self._device = rule, torch.device(device).type
        self._weights = rule.weights({name: t.to(device) for name, t in theta.items()})

    def steps(self, params, gradients, states, t, num_steps, loss):
        """What is to be subtracted from each of the params, as _Rule.steps has it; num_steps and
        loss: None where they are not known. Neither a torch.autocast around it nor
        torch.set_float32_matmul_precision has an effect: steps whose matrix products are rounded
        are not those that were meta-trained."""
        with _in_full_precision(self._device):
            return self._rule.steps(self._weights, params, gradients, states, t, num_steps or 0,
                                    0.0 if loss is None else loss)


def _need_of_schedule(options):
    schedule = options["schedule"]
    return None if schedule == "constant" else f"{options['type']} with schedule '{schedule}'"


def _check_size(options, name, largest):
    if not 1 <= options[name] <= largest:
        raise ValueError(f"{name} must be from 1 to {largest}, got {options[name]}")


def _check_network(options):
    _check_size(options, "hidden_size", 65536)
    _check_size(options, "hidden_layers", 64)


def _rule_of(learned_optimizer):
    return _TYPES[learned_optimizer["type"]]
