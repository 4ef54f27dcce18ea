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


# What several rules use. Functions and methods without a decorator, and constants that are numbers,
# lists of numbers, True or False, are TorchScript as well as Python, here and in all rules.

_WARMUP = 0.1  # the part of a run that is a warm-up
_SMALLEST = 1.1754943508222875e-38  # of float32, but for denormal numbers
_LARGEST = 3.4028234663852886e+38
_LARGEST_DENORMAL = 1.1754942106924411e-38
_ADAMW_STEP = 0.2  # the root of the mean square of AdamW's steps beside its learning rate, about
_SHRINK = 8.271806125530277e-25  # 2^-80; times numbers whose squares are beyond float32
_TIME_SCALES = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000]


def _join(tensors: List[Tensor]) -> Tensor:
    """[..., n] of each, side by side in the last axis. One alone is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, -1)


def _chunks(x: Tensor) -> List[Tuple[int, int]]:
    """Where chunks of the elements of x [n] begin and end, so many that their activations stay in a
    CPU's cache. Few elements are cut finer: for more at once torch wakes threads, which takes
    longer."""
    n = x.numel()
    size = 1 << 16 if x.device.type != "cpu" else 1 << 13 if n > 1 << 13 else 1 << 10
    return [(begin, min(begin + size, n)) for begin in range(0, n, size)]


def _flushed(x: Tensor) -> Tensor:
    """x, float32, with zeros in place of denormal numbers, which lopt's kernels take for zeros."""
    return torch.hardshrink(x, _LARGEST_DENORMAL)


def _square(g: Tensor) -> Tensor:
    """g^2 for second moments: at most 1e30, which float32 can add up."""
    return (g * g).clamp(max=1e30)


def _for_adam(g: Tensor) -> Tensor:
    """A gradient as Adam sees it: up to 1e19 in size, which float32 can square."""
    return g.clamp(-1e19, 1e19)


def _widened(x: Tensor) -> Tensor:
    """x in float64, wherever there is float64."""
    return x if x.device.type == "mps" else x.double()


def _mean_squares(x: Tensor, sizes: List[int]) -> Tensor:
    """x: [k, sum of sizes], tensors side by side. The means of squares of each, [k, tensors]."""
    sums = torch.stack([part.sum(1) for part in (x * x).split_with_sizes(sizes, 1)], 1)
    return _flushed(sums / torch.tensor(sizes, device=x.device))


def _scales_and_rms(x: Tensor, sizes: List[int], epsilon: float) -> Tuple[Tensor, Tensor]:
    """x: [k, sum of sizes], tensors side by side. Of each tensor, [k, tensors]: 1 / sqrt(epsilon +
    mean square), and the root of the mean square."""
    mean_squares = _mean_squares(x, sizes)
    scales, rms = torch.rsqrt(epsilon + mean_squares), mean_squares.sqrt()
    if x.requires_grad:  # of the root of 0, too
        zeros = mean_squares == 0
        rms = mean_squares.masked_fill(zeros, 1).sqrt().masked_fill(zeros, 0)
    wide = mean_squares.isinf()
    if wide.any():
        shrunk = _mean_squares(x * _SHRINK, sizes).sqrt()
        scales = torch.where(wide, _SHRINK / shrunk, scales)
        rms = torch.where(wide, shrunk / _SHRINK, rms)
    return scales, rms


def _spread(x: Tensor, sizes: List[int]) -> Tensor:
    """x: [k, tensors]. Each tensor's column for each of its elements, [k, sum of sizes]."""
    return _join([column.expand([-1, size]) for (column, size) in zip(x.split(1, 1), sizes)])


def _scale(x: Tensor, factors: Tensor, sizes: List[int]) -> Tensor:
    """x: [k, sum of sizes], each tensor's columns times its column of factors [k, tensors]; in
    place, unless there are derivatives."""
    if x.requires_grad:
        return x * _spread(factors, sizes)
    torch._foreach_mul_(x.split_with_sizes(sizes, 1), factors.split(1, 1))
    return x


def _schedule_factor(schedule: str, t: int, num_steps: int) -> float:
    """What multiplies a step."""
    if schedule == "constant":
        return 1.0
    done = t / num_steps
    if schedule == "linear":
        return 1.0 - done
    if schedule == "warmup-cosine":
        if done < _WARMUP:
            return min(1.0, (t + 1) / (_WARMUP * num_steps))
        done = (done - _WARMUP) / (1.0 - _WARMUP)
    return (1.0 + math.cos(3.141592653589793 * done)) / 2.0


def _rounded(x: Tensor, precision: str) -> Tensor:
    """What the hidden layers of a network of this precision multiply in place of x: bf16 keeps
    eight bits. The derivative is 1."""
    if precision != "bf16":
        return x
    mantissa, exponent = torch.frexp(x)
    return x + (torch.ldexp((mantissa * 256).round(), exponent - 8) - x).detach()


def _network_weights(weights: List[Tensor], biases: List[Tensor], features: int,
                     precision: str = "fp32") -> Dict[str, Tensor]:
    """The layers of a network, weights [in, out] and biases [out], as _network takes them; the
    first sees so many features of parameters, and the rest are of the time."""
    w: Dict[str, Tensor] = {}
    for layer in range(len(weights)):
        # [out, in]: parameters lie along the second dimension.
        w["w" + str(layer)] = weights[layer].t()
        w["b" + str(layer)] = biases[layer][:, None]
    w["time_w"] = w["w0"][:, features:]
    w["w0"] = w["w0"][:, :features]
    for layer in range(len(weights) - 1):
        w["w" + str(layer)] = _rounded(w["w" + str(layer)], precision)
    w["time_scales"] = torch.tensor(_TIME_SCALES, dtype=w["w0"].dtype, device=w["w0"].device)
    return w


def _times(w: Dict[str, Tensor], t: int) -> Tensor:
    """The features of the time, the same for all parameters."""
    return torch.tanh(t / w["time_scales"] - 1)


def _network(x: Tensor, times: Tensor, w: Dict[str, Tensor], layers: int,
             precision: str = "fp32") -> Tensor:
    """The outputs [out, n] of a network of so many hidden layers with ReLU, of features x [in, n]
    and those of the time."""
    # The time features are the same for all parameters, so they are part of the first bias.
    bias = torch.addmm(w["b0"], w["time_w"], times[:, None])
    weights = w["w0"][:, : x.shape[0]]
    outputs = x.new_empty([w["w" + str(layers)].shape[0], x.shape[1]])
    for begin, end in _chunks(x[0]):
        y = torch.addmm(bias, weights, _rounded(x[:, begin:end], precision))
        for layer in range(1, layers + 1):
            y = y.relu_()
            if layer < layers:
                y = _rounded(y, precision)
            y = torch.addmm(w["b" + str(layer)], w["w" + str(layer)], y)
        outputs[:, begin:end] = y
    return outputs


def _largest_axes(shape: List[int]) -> Tuple[int, int]:
    """The two largest axes; of equal dimensions the later counts as larger."""
    largest = 0 if shape[0] > shape[1] else 1
    second = 1 - largest
    for axis in range(2, len(shape)):
        if shape[axis] >= shape[largest]:
            second = largest
            largest = axis
        elif shape[axis] >= shape[second]:
            second = axis
    return largest, second


def _averaged(shape: List[int], axis: int) -> List[int]:
    """The shape with one axis averaged away."""
    means = list(shape)
    means[axis] = 1
    return means


def _floored_rsqrt(x: Tensor) -> Tensor:
    return torch.rsqrt(x.clamp(min=1e-9))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, over any axes before the last two. TorchScript's fuser for CPUs, which PyTorch 2.6 of
    Debian 13 has, makes something else of `a @ a` for matrices of few numbers; it leaves mm alone.
    """
    return torch.mm(a, b) if a.dim() == 2 and b.dim() == 2 else torch.matmul(a, b)


def _newton_schulz(x: Tensor) -> Tensor:
    """Five Newton-Schulz iterations on the matrices of the last two axes."""
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.square().sum([-2, -1], True).sqrt() + 1e-8)
    for _ in range(5):
        a = _product(x, x.transpose(-1, -2))
        x = 3.4445 * x + _product(-4.775 * a + 2.0315 * _product(a, a), x)
    return x.transpose(-1, -2) if tall else x


def _without(prefix: str, tensors: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Those whose names begin with the prefix, by the rest of their names."""
    found: Dict[str, Tensor] = {}
    for name, t in tensors.items():
        if name.startswith(prefix):
            found[name[len(prefix) :]] = t
    return found


def _add_with(prefix: str, added: Dict[str, Tensor], tensors: Dict[str, Tensor]) -> None:
    """Adds tensors, their names behind the prefix."""
    for name, t in added.items():
        tensors[prefix + name] = t


def _in_rule_order(x: Tensor, sees_shapes: bool) -> Tensor:
    """A parameter [out, in, spatial...] as a rule sees it: as [spatial..., in, out], or flat."""
    if not sees_shapes:
        return x.reshape([-1])
    return x if x.dim() < 2 else x.permute(list(range(2, x.dim())) + [1, 0])


def _in_torch_order(x: Tensor, shape: List[int], sees_shapes: bool) -> Tensor:
    """The reverse, for a parameter of this shape; also of such a tensor that is flat."""
    if not sees_shapes or len(shape) < 2:
        return x.reshape(shape)
    ordered = x.reshape(list(shape[2:]) + [shape[1], shape[0]])
    return ordered.permute([-1, -2] + list(range(len(shape) - 2)))


class _MLPLOpt(_Rule):
    """A network that maps each parameter's features to its step (Metz et al.,
    google/learned_optimization).

    The features of a parameter p with gradient g are g, p and the six momenta
    M_k <- d_k M_k + (1 - d_k) g, already updated, each divided by the root of 1e-5 plus its mean
    square over the tensor; then tanh(t / tau - 1) for eleven time scales tau, where t is the number
    of the tensor's earlier updates. Layers with ReLU between them give two numbers o0, o1, and
    p <- p - o0 exp(o1 exp_mult) step_mult. With the options, in a training of T steps:
      progress_features      two features more, t / T and ln(T) / 10
      schedule               a factor of the step
      relative_step          a factor of a tensor's step, min(1, rms(g) (1 - d^(t + 1)) / rms(M)) of
                             the slowest decay d and its momentum; 0 where g is 0
      relative_to_parameter  another, max(rms(p), 1e-3)
      normalizer_epsilon     in place of the 1e-5
      precision              bf16: inputs of hidden layers and their weights, but for those of the
                             time features, are rounded to bfloat16
    """

    OPTIONS = {"hidden_size": 32, "hidden_layers": 2, "exp_mult": 1e-3, "step_mult": 1e-3,
               "progress_features": False, "schedule": "constant", "relative_step": False,
               "relative_to_parameter": False, "normalizer_epsilon": 1e-5, "precision": "fp32"}
    CHOICES = {"schedule": _SCHEDULES, "precision": ("fp32", "bf16")}
    DECAYS = [0.1, 0.5, 0.9, 0.99, 0.999, 0.9999]
    SLOWEST = 0.9998999834060669  # the last of them, as float32 has it
    PARAMETER_FLOOR = 1e-3
    NORMALIZED = 8  # features that differ between the parameters of a tensor

    @staticmethod
    def check(options):
        _check_network(options)
        if not (1e-37 <= options["normalizer_epsilon"] < math.inf):
            raise ValueError("normalizer_epsilon must be at least 1e-37, got "
                             f"{options['normalizer_epsilon']}")

    @staticmethod
    def need_of_num_steps(options):
        if options["progress_features"]:
            return f"{options['type']} with progress_features"
        return _need_of_schedule(options)

    @staticmethod
    def layout(options):  # the weights [in, out] and biases [out] of every layer
        layers, size = options["hidden_layers"], options["hidden_size"]
        shapes, inputs = {}, _MLPLOpt.NORMALIZED + len(_TIME_SCALES)
        if options["progress_features"]:
            inputs += 2
        for layer in range(layers + 1):
            outputs = size if layer < layers else 2
            shapes[f"mlp/linear_{layer}/w"] = (inputs, outputs)
            shapes[f"mlp/linear_{layer}/b"] = (outputs,)
            inputs = outputs
        return shapes

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        return {"momenta": [len(self.DECAYS)] + list(shape)}

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        names = ["mlp/linear_" + str(layer) for layer in range(self.hidden_layers + 1)]
        w = _network_weights([theta[name + "/w"] for name in names],
                             [theta[name + "/b"] for name in names], self.NORMALIZED,
                             self.precision)
        w["decays"] = torch.tensor(self.DECAYS, dtype=w["b0"].dtype, device=w["b0"].device)[:, None]
        w["rests"] = 1 - w["decays"]
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        sizes = [p.numel() for p in params]
        g = _join(gradients)
        momenta = self.joined(states, "momenta", sizes)
        momenta.mul_(w["decays"]).add_(w["rests"] * g)
        x = torch.cat([g[None], _join(params)[None], momenta])
        scales, rms = _scales_and_rms(x, sizes, self.normalizer_epsilon)
        x = _scale(x, scales, sizes)
        times = _times(w, t)
        if self.progress_features:
            progress = torch.tensor([t / num_steps, math.log(num_steps) / 10], dtype=times.dtype,
                                    device=times.device)
            times = torch.cat([times, progress])
        outputs = _network(x, times, w, self.hidden_layers, self.precision)
        steps = outputs[:1] * (outputs[1:] * self.exp_mult).exp_()
        steps = _scale(steps, self.multipliers(rms, t, num_steps)[None], sizes)
        return steps[0].split_with_sizes(sizes)

    def multipliers(self, rms: Tensor, t: int, num_steps: int) -> Tensor:
        """What o0 exp(o1 exp_mult) is multiplied by, of each tensor. rms: of g, p and the momenta,
        [8, tensors]."""
        multiplier = self.step_mult * _schedule_factor(self.schedule, t, num_steps)
        multipliers = torch.full_like(rms[0], multiplier)
        if self.relative_step:
            gradient = rms[0] * (1 - self.SLOWEST ** (t + 1))
            relative = (gradient / rms[-1]).clamp(max=1)
            multipliers = multipliers * relative.masked_fill(gradient == 0, 0)
        if self.relative_to_parameter:
            multipliers = multipliers * rms[1].clamp(min=self.PARAMETER_FLOOR)
        return multipliers


def _decayed(states: List[Dict[str, Tensor]], name: str, decays: Tensor, x: Tensor) -> Tensor:
    """Updates the averages of this name in all states by x, [n] or [decays, n], and gives them side
    by side, [decays, n]."""
    averages = [state[name] for state in states]
    joined = _join([average.reshape([len(decays), -1]) for average in averages])
    joined.mul_(decays[:, None]).add_((1 - decays)[:, None] * x)
    counts = [average.numel() // len(decays) for average in averages]
    for state, average, own in zip(states, averages, joined.split_with_sizes(counts, 1)):
        state[name] = own.view(average.shape)
    return joined


def _at_every_element(numbers: List[Tensor], name: str, params: List[Tensor],
                      states: List[Dict[str, Tensor]]) -> List[Tensor]:
    """numbers: each [decays, n'], of the factors of this name in the states. Each at every element
    of the params, [decays, n]."""
    x, parts = torch.cat(numbers), [state[name] for state in states]
    counts = [part[0].numel() for part in parts]
    spread: List[Tensor] = []
    for own, part, p in zip(x.split_with_sizes(counts, 1), parts, params):
        own = own.reshape([-1] + list(part.shape[1:])).expand([-1] + list(p.shape))
        spread.append(own.reshape([x.shape[0], -1]))
    return _join(spread).split(numbers[0].shape[0])


def _factors(decays: Tensor, square: Tensor, params: List[Tensor],
             states: List[Dict[str, Tensor]]) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """row, col, rsqrt(row + 1e-8), rsqrt(col + 1e-8) and f at every element, [decays, n]."""
    count = len(decays)
    axes = [_largest_axes(p.shape) for p in params]
    squares = [own.view(p.shape) for (own, p) in
               zip(square.split_with_sizes([p.numel() for p in params]), params)]
    row = _decayed(states, "v_row", decays, _join(
        [x.mean(axis[0]).reshape([-1]) for (x, axis) in zip(squares, axes)]))
    col = _decayed(states, "v_col", decays, _join(
        [x.mean(axis[1]).reshape([-1]) for (x, axis) in zip(squares, axes)]))
    rows = [state["v_row"] for state in states]
    ratio = _join([(x / (x.mean(axis[1] + 1, True) + 1e-9)).reshape([count, -1])
                   for (x, axis) in zip(rows, axes)])
    of_row = _at_every_element([row, torch.rsqrt(row + 1e-8), _floored_rsqrt(ratio)], "v_row",
                               params, states)
    of_col = _at_every_element([col, torch.rsqrt(col + 1e-8), _floored_rsqrt(col)], "v_col",
                               params, states)
    return of_row[0], of_col[0], of_row[1], of_col[1], of_row[2] * of_col[2]


def _moment_shapes(shape: List[int], momenta: int, squares: int,
                   factored: int) -> Dict[str, List[int]]:
    """The state of a tensor: so many momenta, means of squares and factored second moments."""
    own = list(shape)
    shapes = {"momenta": [momenta] + own, "rms": [squares] + own}
    if len(shape) < 2:
        shapes["v"] = [factored] + own
    else:
        largest, second = _largest_axes(shape)
        shapes["v_row"] = [factored] + _averaged(shape, largest)
        shapes["v_col"] = [factored] + _averaged(shape, second)
    return shapes


def _places_of_kind(params: List[Tensor], factored: bool) -> List[int]:
    """Where params with elements are that have two axes or more (factored), or fewer."""
    places: List[int] = []
    for i, p in enumerate(params):
        if p.numel() > 0 and (p.dim() >= 2) == factored:
            places.append(i)
    return places


class _AdafacMLPLOpt(_Rule):
    """A network on MLPLOpt's kind of features with factored second moments, small_fc_lopt of Metz
    et al. 2022 (arXiv 2203.11860).

    With the momenta m <- d m + (1 - d) g, the means of squares r <- d r + (1 - d) g^2 and the means
    row, col <- d row + (1 - d) (mean of g^2 + 1e-30 over the largest axis), or over the second
    largest, all already updated, the features are g, p, m, r, m q, q, g f, row, col,
    rsqrt(row + 1e-8), rsqrt(col + 1e-8), m f, where q = rsqrt(r + 1e-6) and
    f = rsqrt(row / mean of row over the second largest axis) rsqrt(col). A tensor of fewer than two
    axes has the mean of its own squares in place of row and col. They are normalised, joined by
    times and made a step of as in _MLPLOpt.
    """

    OPTIONS = {"hidden_size": 4, "hidden_layers": 2, "exp_mult": 1e-3, "step_mult": 1e-3,
               "initial_momentum_decays": [0.9, 0.99, 0.999], "initial_rms_decays": [0.999],
               "initial_adafactor_decays": [0.9, 0.99, 0.999]}
    SEES_SHAPES = True

    @staticmethod
    def check(options):
        _check_network(options)
        m, r, f = _AdafacMLPLOpt._counts(options)
        if m < 1 or r not in (1, m) or f != m:
            raise ValueError("initial_adafactor_decays must have as many decays as "
                             "initial_momentum_decays, initial_rms_decays 1 or as many; got "
                             f"{f}, {m} and {r}")

    @staticmethod
    def _counts(options):
        return [len(options[f"initial_{name}_decays"]) for name in ("momentum", "rms", "adafactor")]

    @staticmethod
    def layout(options):
        m, r, f = _AdafacMLPLOpt._counts(options)
        layers, size = options["hidden_layers"], options["hidden_size"]
        shapes = {"momentum_decays": (m,), "rms_decays": (r,), "adafactor_decays": (f,)}
        inputs = 2 + 3 * m + 2 * r + 5 * f + len(_TIME_SCALES)
        for layer in range(layers + 1):
            outputs = size if layer < layers else 2
            shapes[f"nn/w{layer}"], shapes[f"nn/b{layer}"] = (inputs, outputs), (outputs,)
            inputs = outputs
        return shapes

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        return _moment_shapes(shape, len(self.initial_momentum_decays),
                              len(self.initial_rms_decays), len(self.initial_adafactor_decays))

    def decays(self, initial: List[float], offsets: Tensor) -> Tensor:
        initials = torch.tensor(initial, dtype=offsets.dtype, device=offsets.device)
        return 1 - torch.exp(10 * (torch.log(1 - initials) / 10 + offsets))

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        layers = [str(layer) for layer in range(self.hidden_layers + 1)]
        features = theta["nn/w0"].shape[0] - len(_TIME_SCALES)
        w = _network_weights([theta["nn/w" + layer] for layer in layers],
                             [theta["nn/b" + layer] for layer in layers], features)
        # That of the momenta is below 1, it may be negative.
        w["momentum"] = self.decays(self.initial_momentum_decays, theta["momentum_decays"])
        w["rms"] = self.decays(self.initial_rms_decays, theta["rms_decays"]).clamp(0, 1)
        w["adafactor"] = self.decays(self.initial_adafactor_decays,
                                     theta["adafactor_decays"]).clamp(0, 1)
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        steps = list(params)  # those without elements stay so
        for factored in [False, True]:
            own = _places_of_kind(params, factored)
            if len(own) > 0:
                of_kind = self.steps_of_kind(w, factored, [params[i] for i in own],
                                             [gradients[i] for i in own],
                                             [states[i] for i in own], t)
                for i, step in zip(own, of_kind):
                    steps[i] = step
        return steps

    def steps_of_kind(self, w: Dict[str, Tensor], factored: bool, params: List[Tensor],
                      gradients: List[Tensor], states: List[Dict[str, Tensor]],
                      t: int) -> List[Tensor]:
        """The steps of tensors of two axes or more (factored), or of fewer."""
        sizes = [p.numel() for p in params]
        p = _join([x.reshape([-1]) for x in params])
        g = _join([x.reshape([-1]) for x in gradients])
        square = _square(g)
        m = _decayed(states, "momenta", w["momentum"], g)
        r = _decayed(states, "rms", w["rms"], square)
        square = square + 1e-30
        if factored:
            row, col, row_rsqrt, col_rsqrt, of_g = _factors(w["adafactor"], square, params,
                                                            states)
            of_m = of_g
        else:
            row = _decayed(states, "v", w["adafactor"], square)
            col = row
            row_rsqrt = torch.rsqrt(row + 1e-8)
            col_rsqrt = row_rsqrt
            of_g, of_m = _floored_rsqrt(row + 1e-9), torch.rsqrt(row + 1e-6)
        q = torch.rsqrt(r + 1e-6)
        x = torch.cat([g[None], p[None], m, r, m * q, q, g * of_g, row, col, row_rsqrt, col_rsqrt,
                       m * of_m])
        x = _scale(x, _scales_and_rms(x, sizes, 1e-5)[0], sizes)
        outputs = _network(x, _times(w, t), w, self.hidden_layers)
        step = outputs[0] * (outputs[1] * self.exp_mult).exp_() * self.step_mult
        return [own.view(x.shape) for (own, x) in zip(step.split_with_sizes(sizes), params)]


_CELO_PROGRESS = [0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1]
_CELO_DECAYS = [0.9, 0.99, 0.999]
# float32's .9 and .999
_CELO_MOMENTUM = 0.8999999761581421
_CELO_SQUARES = 0.9990000128746033


def _of_pairs(pairs: Tensor) -> Tensor:
    """[tensors, 10, 2]: numbers and what float32 leaves of them. Their sums in float64."""
    return _widened(pairs[:, :, 0]) + _widened(pairs[:, :, 1])


def _as_pairs(x: Tensor) -> Tensor:
    """The reverse."""
    nearest = x.float()
    rest = (x - nearest.to(x.dtype)).float()
    return torch.stack([nearest, rest.masked_fill(~nearest.isfinite(), 0)], 2)


class _WithCeloScheduler(_Rule):
    """A rule with the scheduler of Celo: an LSTM, the same for all tensors, maps the progress of
    the training and its losses to a number o.

    With x = t / num_steps its inputs u are tanh(10 (x - c)) for nine places c, and nine features of
    the losses, which are 0 at the first two steps. These have ten means of the losses M_k, of
    decays exp(-1 / h_k) in float32, where the h_k go from 10 to num_steps, evenly in their
    logarithms. A loss above 2 |max_k M_k / (1 - d_k^(t+1))| counts as that, but for the first. With
    c_k = M_k / (1 - d_k^(t+1)) of the new means, and R_k the least of the c_k so far, features are
    (c_k - R_k) / max(1e-8, c_(k+1) - R_k) - 1, clipped to [-1, 1]. The LSTM's inputs are
    linear_2(u) + relu(linear_1(u)), and o is linear in its hidden state.
    """

    @staticmethod
    def need_of_num_steps(options):
        return options["type"] if options.get("scheduled", True) else None

    @staticmethod
    def needs_loss(options):
        return options.get("scheduled", True)

    @staticmethod
    def check(options):
        _check_size(options, "lstm_size", 65536)

    @staticmethod
    def layout(options):
        size = options["lstm_size"]
        shapes = {"lstm_init_state/hidden": (1, size), "lstm_init_state/cell": (1, size)}
        for name, inputs, outputs in (("linear", 18, 64), ("linear_1", 18, 64),
                                      ("linear_2", 18, 64), ("rnn/linear", 64 + size, 4 * size),
                                      ("step_size", size, 1)):
            shapes[f"rnn_params/{name}/w"] = (inputs, outputs)
            shapes[f"rnn_params/{name}/b"] = (outputs,)
        return shapes

    def state_of_elements(self) -> bool:  # of exported modules
        return False

    def scheduler_shapes(self) -> Dict[str, List[int]]:
        return {"hidden": [self.lstm_size], "cell": [self.lstm_size], "loss_means": [10, 2],
                "loss_minima": [10, 2]}

    def scheduler_weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        w: Dict[str, Tensor] = {}
        for name in ["linear_1/", "linear_2/", "rnn/linear/", "step_size/"]:
            w[name + "w"] = theta["rnn_params/" + name + "w"]
            w[name + "b"] = theta["rnn_params/" + name + "b"]
        w["hidden"] = theta["lstm_init_state/hidden"]
        w["cell"] = theta["lstm_init_state/cell"]
        w["progress"] = torch.tensor(_CELO_PROGRESS, dtype=w["hidden"].dtype,
                                     device=w["hidden"].device)
        return w

    def loss_features(self, states: List[Dict[str, Tensor]], like: Tensor, t: int, num_steps: int,
                      loss: float) -> Tensor:
        """The features of the losses, [tensors, 9]; updates the means and minima."""
        k = torch.arange(10, dtype=like.dtype, device=like.device)
        inverse = 10 ** (-1 - (math.log10(num_steps) - 1) * k / 9)  # 1 / h
        decays = torch.exp(-inverse).float().to(like.dtype)
        part = -torch.expm1((t + 1) * torch.log1p(decays - 1))
        limited = torch.full([len(states), 1], loss, dtype=like.dtype, device=like.device)
        if t == 0:
            means = limited.new_zeros([len(states), 10])
            minima = limited.new_full([len(states), 10], 1e12)
        else:
            means = _of_pairs(torch.stack([state["loss_means"] for state in states]))
            minima = _of_pairs(torch.stack([state["loss_minima"] for state in states]))
            limited = torch.minimum(limited, 2 * (means / part).amax(1, True).abs())
        means = decays * means + (1 - decays) * limited
        corrected = means / part
        minima = torch.minimum(minima, corrected)
        of_means, of_minima = _as_pairs(means).unbind(0), _as_pairs(minima).unbind(0)
        for i, state in enumerate(states):
            state["loss_means"] = of_means[i]
            state["loss_minima"] = of_minima[i]
        spread = (corrected[:, 1:] - minima[:, :-1]).clamp(min=1e-8)
        features = ((corrected[:, :-1] - minima[:, :-1]) / spread - 1).clamp(-1, 1)
        return features if t >= 2 else torch.zeros_like(features)

    def outputs(self, w: Dict[str, Tensor], states: List[Dict[str, Tensor]], t: int,
                num_steps: int, loss: float) -> Tensor:
        """o of each tensor, [tensors]."""
        n = len(states)
        if t == 0:
            hidden, cell = w["hidden"].expand([n, -1]), w["cell"].expand([n, -1])
        else:
            hidden = torch.stack([state["hidden"] for state in states])
            cell = torch.stack([state["cell"] for state in states])
        features = self.loss_features(states, _widened(w["progress"]), t, num_steps, loss)
        progress = torch.tanh(10 * (t / num_steps - w["progress"]))
        u = torch.cat([progress.expand([n, -1]), features.to(progress.dtype)], 1)
        x = (u @ w["linear_1/w"] + w["linear_1/b"]).relu()
        x = x + (u @ w["linear_2/w"] + w["linear_2/b"])
        gates = torch.cat([x, hidden], 1) @ w["rnn/linear/w"] + w["rnn/linear/b"]
        i, g, f, o = gates.split(self.lstm_size, 1)
        cell = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        of_hidden, of_cell = hidden.unbind(0), cell.unbind(0)
        for j, state in enumerate(states):
            state["hidden"] = of_hidden[j]
            state["cell"] = of_cell[j]
        return (hidden @ w["step_size/w"] + w["step_size/b"])[:, 0]


class _Celo(_WithCeloScheduler):
    """A network on AdafacMLPLOpt's kind of features, of Moudgil et al. 2025 (arXiv 2501.12670),
    whose steps the scheduler multiplies by .1 exp(o), if `scheduled`.

    The features are those of _AdafacMLPLOpt, of a gradient clipped to [-1000, 1000], and the
    gradient clipped to [-.1, .1], and g q. Tensors of fewer than two axes have m / sqrt(v) in place
    of m rsqrt(v + 1e-6). A step is .001 o0 exp(.001 o1) sqrt(mean p^2 + 1e-9) times the multiplier.
    """

    OPTIONS = {"scheduled": True, "lstm_size": 64}
    SEES_SHAPES = True

    @staticmethod
    def layout(options):
        blocks = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)
        shapes = {f"ff_mod_stack/w0__{i}": (1, rows, 4) for i, rows in enumerate(blocks)}
        shapes.update({"ff_mod_stack/b0": (1, 4), "ff_mod_stack/w1": (1, 4, 4),
                       "ff_mod_stack/b1": (1, 4), "ff_mod_stack/w2": (1, 4, 3),
                       "ff_mod_stack/b2": (1, 3)})
        size = options["lstm_size"]
        shapes.update({"rnn_params/rnn_to_controls/w": (size, 1),
                       "rnn_params/rnn_to_controls/b": (1,)})
        shapes.update(_WithCeloScheduler.layout(options))
        return shapes

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        shapes: Dict[str, List[int]] = {}
        if self.scheduled:
            shapes = self.scheduler_shapes()
        shapes.update(_moment_shapes(shape, 3, 1, 3))
        return shapes

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        first = [theta["ff_mod_stack/w0__" + str(i)][0] for i in range(14)]
        w = _network_weights(
            [torch.cat(first), theta["ff_mod_stack/w1"][0], theta["ff_mod_stack/w2"][0]],
            [theta["ff_mod_stack/b" + layer][0] for layer in ["0", "1", "2"]], 30)
        w["decays"] = torch.tensor(_CELO_DECAYS, dtype=w["b0"].dtype, device=w["b0"].device)
        _add_with("scheduler/", self.scheduler_weights(theta), w)
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        if self.scheduled:
            outputs = self.outputs(_without("scheduler/", w), states, t, num_steps, loss)
            multipliers = 0.1 * torch.exp(outputs)
        else:
            multipliers = w["decays"].new_ones([len(params)])
        steps = list(params)  # those without elements stay so
        for factored in [False, True]:
            own = _places_of_kind(params, factored)
            if len(own) > 0:
                of_kind = self.steps_of_kind(w, factored, [params[i] for i in own],
                                             [gradients[i] for i in own], [states[i] for i in own],
                                             torch.stack([multipliers[i] for i in own]))
                for i, step in zip(own, of_kind):
                    steps[i] = step
        return steps

    def steps_of_kind(self, w: Dict[str, Tensor], factored: bool, params: List[Tensor],
                      gradients: List[Tensor], states: List[Dict[str, Tensor]],
                      multipliers: Tensor) -> List[Tensor]:
        """The steps of tensors of two axes or more (factored), or of fewer."""
        sizes = [p.numel() for p in params]
        p = _join([x.reshape([-1]) for x in params])
        g = _join([x.reshape([-1]) for x in gradients]).clamp(-1000, 1000)
        decays, square = w["decays"], g * g
        m = _decayed(states, "momenta", decays, g)
        r = _decayed(states, "rms", decays[2:], square)
        square = square + 1e-30
        if factored:
            row, col, row_rsqrt, col_rsqrt, of_g = _factors(decays, square, params, states)
            of_m = of_g
        else:
            row = _decayed(states, "v", decays, square)
            col = row
            row_rsqrt = torch.rsqrt(row + 1e-8)
            col_rsqrt = row_rsqrt
            of_g, of_m = _floored_rsqrt(row + 1e-9), torch.rsqrt(row)
        q = torch.rsqrt(r + 1e-6)
        x = torch.cat([g[None], g[None].clamp(-0.1, 0.1), p[None], m, r, m * q, q, g * of_g, g * q,
                       row, col, row_rsqrt, col_rsqrt, m * of_m])
        scales, rms = _scales_and_rms(x, sizes, 1e-5)
        size_of_p = torch.hypot(rms[2:3], torch.full_like(rms[2:3], 1e-9).sqrt())
        x = _scale(x, scales, sizes)
        outputs = _network(x, x.new_zeros([0]), w, 2)
        step = outputs[0] * (outputs[1] * 0.001).exp_() * 0.001
        step = step * _spread(multipliers[None] * size_of_p, sizes)[0]
        return [own.view(x.shape) for (own, x) in zip(step.split_with_sizes(sizes), params)]


class _CeloMoments(_WithCeloScheduler):
    """CeloAdam and Sinv6: the scheduler, on a mean m of a tensor's gradients and one r of their
    squares."""

    OPTIONS = {"lstm_size": 64}

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        shapes = self.scheduler_shapes()
        shapes["m"] = list(shape)
        shapes["r"] = list(shape)
        return shapes

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return self.scheduler_weights(theta)

    def update_moments(self, gradients: List[Tensor], states: List[Dict[str, Tensor]]) -> None:
        for gradient, state in zip(gradients, states):
            g = gradient.clamp(-1000, 1000)
            state["m"] = _CELO_MOMENTUM * state["m"] + (1 - _CELO_MOMENTUM) * g
            state["r"] = _CELO_SQUARES * state["r"] + (1 - _CELO_SQUARES) * (g * g)


class _CeloAdam(_CeloMoments):
    """Adam with the scheduler's learning rate .0001 exp(o), of clipped gradients; 1e-10 is added
    under the root, and 1e-8 to it."""

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        rates = 0.1 * torch.exp(self.outputs(w, states, t, num_steps, loss)) * 0.001
        self.update_moments(gradients, states)
        of_m = 1 / (1 - _CELO_MOMENTUM ** (t + 1))
        of_r = 1 / (1 - _CELO_SQUARES ** (t + 1))
        return [rate * (of_m * state["m"]) / (1e-8 + (of_r * state["r"] + 1e-10).sqrt())
                for (rate, state) in zip(rates.unbind(0), states)]


class _Sinv6(_CeloMoments):
    """The same without corrections of the means' bias, with steps in proportion to
    sqrt(mean p^2 + 1e-9) and the rate .001 o, where o is clipped to [1e-5, 1000]."""

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        rates = self.outputs(w, states, t, num_steps, loss).clamp(1e-5, 1000) * 0.001
        self.update_moments(gradients, states)
        steps: List[Tensor] = []
        for p, state, rate in zip(params, states, rates.unbind(0)):
            mean_square = _widened(p).square().sum() / max(p.numel(), 1)
            size_of_p = (mean_square + 1e-9).sqrt().float()
            steps.append(rate * size_of_p * state["m"] / (1e-8 + (state["r"] + 1e-10).sqrt()))
        return steps


def _decay(average: Tensor, decays: Tensor, x: Tensor) -> Tensor:
    """Updates averages [decays, ...] by x, in place."""
    decays = decays.reshape([-1] + [1] * (average.dim() - 1))
    return average.mul_(decays).add_((1 - decays) * x)


def _mean_square_of(x: Tensor, axes: List[int]) -> Tensor:
    return (x * x).mean(axes, True) if len(axes) > 0 else x * x


def _normalized(x: Tensor, axes: List[int], wide: bool) -> Tensor:
    """x / sqrt(1e-9 + mean square over the axes); wide: whether x may be too large to square."""
    mean = _mean_square_of(x, axes)
    scale = torch.rsqrt(1e-9 + mean)
    if wide:
        shrunk = torch.rsqrt(_mean_square_of(x * _SHRINK, axes).clamp(min=1e-20))
        scale = torch.where(mean.isinf(), _SHRINK * shrunk, scale)
    return x * scale


class _Celo2Base(_Rule):
    """A network of 347 weights on the features of amoudgl/celo (arXiv 2602.19142).

    With g clipped to [-1000, 1000] and the averages m <- d m + (1 - d) g, r <- .95 r + .05 g^2 and
    row, col <- d row + (1 - d) (mean of g^2 + 1e-30 over the largest axis), or over the second
    largest, all already updated, the features are g, g clipped to [-.1, .1], p, m, r, m q, q, g f,
    g q and, of two axes or more, row, col, rsqrt(row + 1e-8), rsqrt(col + 1e-8), m f, where
    q = rsqrt(r + 1e-8) and f = rsqrt(row / mean of row over the second largest axis) rsqrt(col); of
    fewer axes f = rsqrt(v), where v averages the tensor's own squares. Features, and then the
    network's first output, the direction, are divided by sqrt(1e-9 + mean square) over the last two
    axes; p <- p - lr (direction + weight_decay p).
    """

    OPTIONS = {"learning_rate": 1e-3, "weight_decay": 0.0, "schedule": "constant"}
    CHOICES = {"schedule": _SCHEDULES}
    SEES_SHAPES = True
    DECAYS = [0.9, 0.99, 0.999]
    PARAMETER = 2  # the place of p among the arrays of features
    ORTHOGONAL = False

    @staticmethod
    def need_of_num_steps(options):
        return _need_of_schedule(options)

    @staticmethod
    def layout(options):
        features = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)
        shapes = {f"w0__{i}": (count, 8) for i, count in enumerate(features)}
        return {**shapes, "b0": (8,), "w1": (8, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}

    def by_adam(self, axes: int) -> bool:
        """Whether a tensor of so many axes is stepped by Adam."""
        return False

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        own = list(shape)
        if self.by_adam(len(shape)):
            return {"m": own, "v": own}
        shapes = {"m": [3] + own, "r": own}
        if len(shape) < 2:
            shapes["v"] = [3] + own
        else:
            largest, second = _largest_axes(shape)
            shapes["row"] = [3] + _averaged(shape, largest)
            shapes["col"] = [3] + _averaged(shape, second)
        return shapes

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        first = torch.cat([theta["w0__" + str(i)] for i in range(14)])
        w = _network_weights([first, theta["w1"], theta["w2"][:, :1]],
                             [theta["b0"], theta["b1"], theta["b2"][:1]], first.shape[0])
        w["decays"] = torch.tensor(self.DECAYS, dtype=first.dtype, device=first.device)
        w["no_times"] = first.new_zeros([0])
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        rate = self.learning_rate * _schedule_factor(self.schedule, t, num_steps)
        steps: List[Tensor] = []
        for p, g, state in zip(params, gradients, states):
            if p.numel() == 0:
                steps.append(p)
            elif self.by_adam(p.dim()):
                steps.append(self.adam_step(rate, p, g, state, t))
            else:
                steps.append(rate * (self.direction(w, p, g, state) + self.weight_decay * p))
        return steps

    def adam_step(self, rate: float, p: Tensor, g: Tensor, state: Dict[str, Tensor],
                  t: int) -> Tensor:
        return p  # of those that step tensors by Adam

    def direction(self, w: Dict[str, Tensor], p: Tensor, g: Tensor,
                  state: Dict[str, Tensor]) -> Tensor:
        axes = list(range(-min(p.dim(), 2), 0))
        # The parameters are the only feature that is not made of clipped gradients.
        features: List[Tensor] = []
        for i, f in enumerate(self.features(w["decays"], p, g.clamp(-1000, 1000), state)):
            f = _normalized(f.expand([-1] + list(p.shape)), axes, i == self.PARAMETER)
            features.append(f.reshape([-1, p.numel()]))
        direction = _network(torch.cat(features), w["no_times"], w, 2).reshape(p.shape)
        if self.ORTHOGONAL and p.dim() >= 2:
            direction = _newton_schulz(direction)
        return _normalized(direction, axes, False)

    def features(self, decays: Tensor, p: Tensor, g: Tensor,
                 state: Dict[str, Tensor]) -> List[Tensor]:
        square = g * g
        m = _decay(state["m"], decays, g)
        r = state["r"].mul_(0.95).add_((1 - 0.95) * square)
        q = torch.rsqrt(r + 1e-8)
        square = square + 1e-30
        if p.dim() < 2:
            f = _floored_rsqrt(_decay(state["v"], decays, square) + 1e-9)
            row, col = f, f  # not used
        else:
            largest, second = _largest_axes(p.shape)
            row = _decay(state["row"], decays, square.mean(largest, True))
            col = _decay(state["col"], decays, square.mean(second, True))
            ratio = row / (row.mean(second + 1, True) + 1e-9)
            f = _floored_rsqrt(ratio) * _floored_rsqrt(col)
        features = [g[None], g[None].clamp(-0.1, 0.1), p[None], m, r[None], m * q, q[None], g * f,
                    (g * q)[None]]
        if p.dim() >= 2:
            features += [row, col, torch.rsqrt(row + 1e-8), torch.rsqrt(col + 1e-8), m * f]
        return features


class _Celo2(_Celo2Base):
    """_Celo2Base with directions made nearly orthogonal, and Adam for tensors of fewer than two
    axes: without bias correction as it was meta-trained ("adam"), AdamW ("adamw"), or not at all
    ("learned"). Their learning rate is mult_1d times the other."""

    OPTIONS = {**_Celo2Base.OPTIONS, "one_d": "adam", "mult_1d": 20.0}
    CHOICES = {**_Celo2Base.CHOICES, "one_d": ("adam", "adamw", "learned")}
    ORTHOGONAL = True
    BETA1 = 0.9
    BETA2 = 0.95

    def by_adam(self, axes: int) -> bool:
        return self.one_d != "learned" and axes < 2

    def adam_step(self, rate: float, p: Tensor, g: Tensor, state: Dict[str, Tensor],
                  t: int) -> Tensor:
        g = _for_adam(g)
        m = state["m"].mul_(self.BETA1).add_(g, alpha=1 - self.BETA1)
        v = state["v"].mul_(self.BETA2).addcmul_(g, g, value=1 - self.BETA2)
        if self.one_d == "adam":
            direction = m * torch.rsqrt(v + 1e-8)
        else:
            root = torch.sqrt(v / (1 - self.BETA2 ** (t + 1))) + 1e-8
            direction = m / (1 - self.BETA1 ** (t + 1)) / root
        return rate * self.mult_1d * (direction + self.weight_decay * p)


def _decay_of(log_of_rest: Tensor) -> Tensor:
    """The decay of a running mean, from 0 to the largest float32 below 1: with 1 nothing would
    enter it."""
    return (1 - torch.exp(log_of_rest)).clamp(0, 0.99999994039535522)


class _Learnable(_Rule):
    """A hand-designed rule whose hyperparameters are theta; its learning rate has a schedule."""

    CHOICES = {"schedule": _SCHEDULES}
    THETA = ("log_lr",)

    @staticmethod
    def need_of_num_steps(options):
        return _need_of_schedule(options)

    @classmethod
    def layout(cls, options):
        return {name: (1,) for name in cls.THETA}

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        # Every element is stepped by itself, so all are one tensor.
        joined: Dict[str, Tensor] = {}
        for name in self.state_shapes([1]).keys():
            joined[name] = _join([state[name] for state in states])
        rate = w["rate"] * _schedule_factor(self.schedule, t, num_steps)
        step = self.step(w, rate, _join(params), _join(gradients), joined, t)
        sizes = [p.numel() for p in params]
        for name, tensor in joined.items():
            for state, own in zip(states, tensor.split_with_sizes(sizes)):
                state[name] = own
        return step.split_with_sizes(sizes)


class _LearnableSGD(_Learnable):
    """p <- p - exp(log_lr) g."""

    OPTIONS = {"learning_rate": 0.01, "schedule": "constant"}

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        shapes: Dict[str, List[int]] = {}
        return shapes

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return {"rate": torch.exp(theta["log_lr"])}

    def step(self, w: Dict[str, Tensor], rate: Tensor, p: Tensor, g: Tensor,
             state: Dict[str, Tensor], t: int) -> Tensor:
        return rate * g


class _LearnableSGDM(_Learnable):
    """b <- g + (1 - exp(one_minus_momentum)) b; p <- p - exp(log_lr) b."""

    OPTIONS = {"learning_rate": 0.01, "momentum": 0.9, "schedule": "constant"}
    THETA = ("log_lr", "one_minus_momentum")

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        return {"momentum": list(shape)}

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return {"rate": torch.exp(theta["log_lr"]),
                "momentum": 1 - torch.exp(theta["one_minus_momentum"])}

    def step(self, w: Dict[str, Tensor], rate: Tensor, p: Tensor, g: Tensor,
             state: Dict[str, Tensor], t: int) -> Tensor:
        return rate * state["momentum"].mul_(w["momentum"]).add_(g)


class _LearnableAdam(_Learnable):
    """Adam with epsilon_root under the root and decoupled weight decay:
    p <- p - lr (mhat / (sqrt(vhat + epsilon_root) + epsilon) + weight_decay p)."""

    OPTIONS = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
               "epsilon_root": 1e-8, "schedule": "constant", "weight_decay": 0.0}
    THETA = ("log_lr", "one_minus_beta1", "one_minus_beta2", "log_epsilon")

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        return {"m": list(shape), "v": list(shape)}

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return {"rate": torch.exp(theta["log_lr"]),
                "beta1": _decay_of(theta["one_minus_beta1"]),
                "beta2": _decay_of(theta["one_minus_beta2"]),
                "epsilon": torch.exp(theta["log_epsilon"])}

    def step(self, w: Dict[str, Tensor], rate: Tensor, p: Tensor, g: Tensor,
             state: Dict[str, Tensor], t: int) -> Tensor:
        g = _for_adam(g)
        m = state["m"].lerp_(g, 1 - w["beta1"])
        v = state["v"].lerp_(g * g, 1 - w["beta2"])
        correction1 = (1 - _widened(w["beta1"]) ** (t + 1)).float()
        correction2 = (1 - _widened(w["beta2"]) ** (t + 1)).float()
        root = torch.sqrt(v / correction2 + self.epsilon_root) + w["epsilon"]
        step = rate * (m / correction1 / root)
        return step + rate * self.weight_decay * p if self.weight_decay != 0 else step


class _OfAnother(_Rule):
    """A rule that changes the steps of another, whose type and options are the option optimizer."""

    OTHERS = ("optimizer",)
    SEES_SHAPES = True

    @staticmethod
    def needs_loss(options):
        return _rule_of(options["optimizer"]).needs_loss(options["optimizer"])

    def optimizer_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        """state_shapes of the other rule, for a tensor of this shape."""
        return self.optimizer.state_shapes(_seen_shape(shape, self.optimizer.SEES_SHAPES))

    def optimizer_steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
                        states: List[Dict[str, Tensor]], t: int, num_steps: int,
                        loss: float) -> List[Tensor]:
        """The steps of the other rule, as float32 params make them."""
        steps = self.optimizer.steps(w, _as_seen(params, self.optimizer.SEES_SHAPES),
                                     _as_seen(gradients, self.optimizer.SEES_SHAPES), states, t,
                                     num_steps, loss)
        return [_flushed(p - (p - step.view(p.shape))) for (p, step) in zip(params, steps)]


def _seen_shape(shape: List[int], sees_shapes: bool) -> List[int]:
    """The shape in which a tensor comes to a rule, by its SEES_SHAPES."""
    n = 1
    for size in shape:
        n *= size
    return shape if sees_shapes else [n]


def _as_seen(tensors: List[Tensor], sees_shapes: bool) -> List[Tensor]:
    """The tensors in those shapes."""
    return tensors if sees_shapes else [x.reshape([-1]) for x in tensors]


def _orthogonal(step: Tensor) -> Tensor:
    """A step of two axes or more made nearly orthogonal, as a matrix of its last axis and all
    others, and as large as before; others as they are."""
    if step.dim() < 2 or step.numel() == 0:
        return step
    matrix = step.reshape([-1, step.shape[-1]])
    # Where float32 is too small or too coarse for the squares, steps are in units of the largest;
    # units of 1 change no bit.
    squares, largest = matrix.square().sum(), matrix.abs().amax().detach()
    still = largest == 0
    plain = (squares >= _SMALLEST) & (squares <= _LARGEST)
    unit = torch.where(plain | still, torch.ones_like(largest), largest)
    x = (matrix / unit).masked_fill(still, 1)  # so that there are derivatives
    size = x.square().sum().sqrt()
    x = _newton_schulz(x / size)
    x = x * (size / x.square().sum().sqrt()) * unit
    return torch.where(still, matrix, x).view(step.shape)


class _OrthogonalSteps(_OfAnother):
    """Another rule whose steps s of tensors of two axes or more, as matrices of their last axis and
    all others, become |s| x / |x|, x = NewtonSchulz(s / |s|), with Frobenius norms. Steps of zeros
    stay so."""

    OPTIONS = {"optimizer": {}}

    @staticmethod
    def need_of_num_steps(options):
        return _rule_of(options["optimizer"]).need_of_num_steps(options["optimizer"])

    @staticmethod
    def layout(options):
        return _rule_of(options["optimizer"]).layout(options["optimizer"])

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        return self.optimizer_shapes(shape)

    def state_of_elements(self) -> bool:  # of exported modules
        return self.optimizer.state_of_elements()

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return self.optimizer.weights(theta)

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        steps = self.optimizer_steps(w, params, gradients, states, t, num_steps, loss)
        return [_orthogonal(step) for step in steps]


class _MatricesAndVectors(_Rule):
    """Two rules: one steps the tensors of two axes or more, the other the rest."""

    OPTIONS = {"matrices": {}, "vectors": {}}
    OTHERS = ("matrices", "vectors")
    SEES_SHAPES = True

    @staticmethod
    def check(options):
        for name in _MatricesAndVectors.OTHERS:
            if _rule_of(options[name]).needs_loss(options[name]):
                raise ValueError(f"{name} must be an optimizer that needs no loss, got a "
                                 f"{options[name]['type']}")

    @staticmethod
    def need_of_num_steps(options):
        needs = [_rule_of(options[name]).need_of_num_steps(options[name])
                 for name in _MatricesAndVectors.OTHERS]
        return needs[0] or needs[1]

    @staticmethod
    def layout(options):
        shapes = {}
        for name in _MatricesAndVectors.OTHERS:
            _add_with(name + "/", _rule_of(options[name]).layout(options[name]), shapes)
        return shapes

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        if len(shape) >= 2:
            return self.matrices.state_shapes(_seen_shape(shape, self.matrices.SEES_SHAPES))
        return self.vectors.state_shapes(_seen_shape(shape, self.vectors.SEES_SHAPES))

    def state_of_elements(self) -> bool:  # of exported modules
        return False

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        w: Dict[str, Tensor] = {}
        _add_with("matrices/", self.matrices.weights(_without("matrices/", theta)), w)
        _add_with("vectors/", self.vectors.weights(_without("vectors/", theta)), w)
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        matrices: List[int] = []
        vectors: List[int] = []
        for i, p in enumerate(params):
            (matrices if p.dim() >= 2 else vectors).append(i)
        found: List[Tensor] = []
        if len(matrices) > 0:
            seen = self.matrices.SEES_SHAPES
            found += self.matrices.steps(_without("matrices/", w),
                                         _as_seen([params[i] for i in matrices], seen),
                                         _as_seen([gradients[i] for i in matrices], seen),
                                         [states[i] for i in matrices], t, num_steps, loss)
        if len(vectors) > 0:
            seen = self.vectors.SEES_SHAPES
            found += self.vectors.steps(_without("vectors/", w),
                                        _as_seen([params[i] for i in vectors], seen),
                                        _as_seen([gradients[i] for i in vectors], seen),
                                        [states[i] for i in vectors], t, num_steps, loss)
        steps = list(params)
        for i, step in zip(matrices + vectors, found):
            steps[i] = step.view(params[i].shape)
        return steps


def _columns(p: Tensor) -> float:
    return float(p.shape[-1]) if p.dim() > 0 else 1.0


def _is_matrix(p: Tensor) -> float:
    return 1.0 if p.dim() >= 2 else -1.0


def _cosine(products: Tensor, norms: Tensor, zeros: Tensor, x: int) -> Tensor:
    """The cosine of the first vector of each tensor and that of number x, 0 if one of them is 0.
    products: [tensors, k, k]; norms, zeros: [tensors, k]."""
    cosine = products[:, 0, x] / (norms[:, 0] * norms[:, x])
    return cosine.masked_fill(zeros[:, 0] | zeros[:, x], 0)


class _LearnedScheduler(_OfAnother):
    """Another rule of whose steps only the directions are kept: a small network says for each
    tensor how large the step is and how much the tensor decays.

    A tensor p of n elements, with c columns (its last axis; 1 if it has none) and r = n / c rows,
    whose step by the other rule is s, goes to p - a s / rms(s) - b p, where
      a = step_size schedule exp(min(o0, 10)) / sqrt(max(r, c))
      b = min(1, weight_decay schedule exp(min(2 o1, 10)))
    of the two outputs o = [f, tanh(f V + d)] W + b of a network. Its features f, at the tensor's
    step t of T, with the gradient g, the last a s / rms(s) made, l, and the mean
    M_k(x) = m / (1 - k^(t + 1)), m <- k m + (1 - k) x, are
      2 t / T - 1, (ln T - 5.5) / 2, exp(-t / 10), 3 M_.9(cos(g, l)), 5 M_.99(cos(g, l)),
      3 M_.9(cos(g, s)) - 1, ln(M_.9(q) / M_.999(q)) / 2 in [-20, 3] with q = min(mean g^2, 1e30),
      (ln(max(mean p^2, 1e-8)) / 2 + 2) / 2, (ln r - 3) / 2, (ln c - 3) / 2, and 1 for tensors of
      two axes or more, -1 for others.
    A cosine of zeros is 0, the logarithm of a ratio of zeros -20, a step of zeros stays one.
    """

    OPTIONS = {"optimizer": {}, "hidden_size": 8, "step_size": 0.15, "weight_decay": 5e-4,
               "schedule": "cosine"}
    CHOICES = {"schedule": _SCHEDULES}
    FEATURES = 11
    DECAYS = [0.9, 0.99, 0.9, 0.999, 0.9]

    @staticmethod
    def check(options):
        _check_size(options, "hidden_size", 65536)
        if not 0 < options["step_size"] < math.inf:
            raise ValueError("step_size must be positive and finite, got "
                             f"{options['step_size']}")
        if not 0 <= options["weight_decay"] <= 1:
            raise ValueError(f"weight_decay must be from 0 to 1, got {options['weight_decay']}")

    @staticmethod
    def need_of_num_steps(options):
        return options["type"]

    @staticmethod
    def layout(options):
        optimizer, hidden = options["optimizer"], options["hidden_size"]
        features = _LearnedScheduler.FEATURES
        shapes = {"scheduler/hidden/w": (features, hidden), "scheduler/hidden/b": (hidden,),
                  "scheduler/out/w": (features + hidden, 2), "scheduler/out/b": (2,)}
        _add_with("optimizer/", _rule_of(optimizer).layout(optimizer), shapes)
        return shapes

    def state_shapes(self, shape: List[int]) -> Dict[str, List[int]]:
        shapes: Dict[str, List[int]] = {}
        for name, own in self.optimizer_shapes(shape).items():
            shapes["optimizer/" + name] = own
        shapes["last_step"] = list(shape)
        shapes["means"] = [len(self.DECAYS)]
        return shapes

    def weights(self, theta: Dict[str, Tensor]) -> Dict[str, Tensor]:
        w: Dict[str, Tensor] = {}
        _add_with("optimizer/", self.optimizer.weights(_without("optimizer/", theta)), w)
        # Sums and the network are computed in float64.
        for name in ["hidden/w", "hidden/b", "out/w", "out/b"]:
            w[name] = _widened(theta["scheduler/" + name])
        # TorchScript's torch.tensor rounds numbers to float32, whatever type is asked for.
        w["decays"] = torch.stack([w["out/b"].new_full([], decay) for decay in self.DECAYS])
        return w

    def steps(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
              states: List[Dict[str, Tensor]], t: int, num_steps: int,
              loss: float) -> List[Tensor]:
        of_optimizer = [_without("optimizer/", state) for state in states]
        steps = self.optimizer_steps(_without("optimizer/", w), params, gradients, of_optimizer, t,
                                     num_steps, loss)
        for other, state in zip(of_optimizer, states):
            _add_with("optimizer/", other, state)
        filled: List[int] = []
        for i, p in enumerate(params):
            if p.numel() > 0:
                filled.append(i)
        if len(filled) > 0:
            scheduled = self.scheduled(w, [params[i] for i in filled],
                                       [gradients[i] for i in filled], [states[i] for i in filled],
                                       [steps[i] for i in filled], t, num_steps)
            for i, step in zip(filled, scheduled):
                steps[i] = step
        return steps

    def scheduled(self, w: Dict[str, Tensor], params: List[Tensor], gradients: List[Tensor],
                  states: List[Dict[str, Tensor]], steps: List[Tensor], t: int,
                  num_steps: int) -> List[Tensor]:
        """The same of tensors with elements, given the other rule's steps."""
        decays = w["decays"]
        sizes = torch.tensor([float(p.numel()) for p in params], dtype=decays.dtype,
                             device=decays.device)
        columns = torch.tensor([_columns(p) for p in params], dtype=decays.dtype,
                               device=decays.device)
        matrices = torch.tensor([_is_matrix(p) for p in params], dtype=decays.dtype,
                                device=decays.device)
        rows = sizes / columns
        vectors: List[Tensor] = []
        for p, g, state, s in zip(params, gradients, states, steps):
            vectors.append(torch.stack([x.reshape([-1]) for x in [g, state["last_step"], s, p]]))
        products = torch.stack([_product(x, x.t()) for x in [x.to(decays.dtype) for x in vectors]])
        squares = products.diagonal(0, 1, 2)
        zeros = squares == 0
        norms = squares.masked_fill(zeros, 1).sqrt()  # so that there are derivatives
        # A step of the other rule that is too large for float32 is none; the params show it.
        finite = squares[:, 2].isfinite()
        to_last = _cosine(products, norms, zeros, 1)
        to_step = _cosine(products, norms, zeros, 2).masked_fill(~finite, 0)
        square = (squares[:, 0] / sizes).clamp(max=1e30)  # the means are float32
        values = torch.stack([to_last, to_last, to_step, square, square], 1)
        means = torch.stack([state["means"] for state in states]).to(decays.dtype)
        means = _flushed((decays * means + (1 - decays) * values).float())
        for state, own in zip(states, means.unbind(0)):
            state["means"] = own
        m = (means.to(decays.dtype) / (1 - decays ** (t + 1))).unbind(1)
        none = torch.min(m[3], m[4]) <= 0
        growth = torch.log(m[4].masked_fill(none, 1) / m[3].masked_fill(none, 1)) / 2
        features = torch.stack([
            torch.full_like(sizes, 2 * t / num_steps - 1),
            torch.full_like(sizes, (math.log(num_steps) - 5.5) / 2),
            torch.full_like(sizes, math.exp(-t / 10)),
            3 * m[0], 5 * m[1], 3 * m[2] - 1,
            growth.clamp(-20, 3).masked_fill(none, -20),
            (torch.log((squares[:, 3] / sizes).clamp(min=1e-8)) / 2 + 2) / 2,
            (torch.log(rows) - 3) / 2, (torch.log(columns) - 3) / 2, matrices], 1)
        hidden = torch.tanh(_product(features, w["hidden/w"]) + w["hidden/b"])
        out = _product(torch.cat([features, hidden], 1), w["out/w"]) + w["out/b"]
        factor = _schedule_factor(self.schedule, t, num_steps)
        length = self.step_size * factor * torch.exp(out[:, 0].clamp(max=10))
        exact = length / torch.max(rows, columns).sqrt() / (norms[:, 2] / sizes.sqrt())
        exact = exact.masked_fill(zeros[:, 2] | ~finite, 0)
        decay = self.weight_decay * factor * torch.exp((2 * out[:, 1]).clamp(max=10))
        decay = decay.clamp(max=1).float()
        scales = exact.float()
        # Of steps so small or so large that float32 cannot hold their factor.
        wide = (exact > _LARGEST) | ((exact < _SMALLEST) & (exact > 0))
        any_wide = bool(wide.any())
        scheduled: List[Tensor] = []
        for i in range(len(steps)):
            p, s, is_finite = params[i], steps[i], finite[i]
            last = scales[i] * s
            if any_wide and bool(wide[i]):
                last = (exact[i] * s.to(exact.dtype)).float()
            last = torch.where(is_finite, last, torch.zeros_like(last))
            states[i]["last_step"] = last
            scheduled.append(torch.where(is_finite, torch.addcmul(last, p, decay[i]), s))
        return scheduled


_TYPES = {"MLPLOpt": _MLPLOpt, "AdafacMLPLOpt": _AdafacMLPLOpt, "Celo": _Celo,
          "CeloAdam": _CeloAdam, "Sinv6": _Sinv6, "Celo2Base": _Celo2Base, "Celo2": _Celo2,
          "OrthogonalSteps": _OrthogonalSteps, "MatricesAndVectors": _MatricesAndVectors,
          "LearnedScheduler": _LearnedScheduler, "LearnableSGD": _LearnableSGD,
          "LearnableSGDM": _LearnableSGDM, "LearnableAdam": _LearnableAdam}


def _is_number(value):
    """Whether it is one that a float can be."""
    largest = sys.float_info.max
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and -largest <= value <= largest)


def _resolve(learned_optimizer, source, depth=0):
    """The class and all options of a dictionary with a type and some options."""
    if depth > 64:
        raise ValueError(f"{source[:200]}...: optimizers of optimizers, more than 64 deep")
    kind = learned_optimizer.get("type") if isinstance(learned_optimizer, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        why = ("; a RNNMLPLOpt sees all tensors, this class treats each by itself"
               if kind == "RNNMLPLOpt" else "")
        raise ValueError(f"{source}: the learned optimizer's type must be one of "
                         f"{', '.join(_TYPES)}; got {learned_optimizer!r}{why}")
    options = dict(_TYPES[kind].OPTIONS)
    for name, value in learned_optimizer.items():
        if name == "type":
            continue
        if name not in options:
            raise ValueError(f"{source}: {kind} has no option {name!r}; it has "
                             f"{', '.join(options)}")
        choices = _TYPES[kind].CHOICES.get(name)
        if choices is not None and value not in choices:
            raise ValueError(f"{source}: {kind}'s option {name} must be one of "
                             f"{', '.join(map(repr, choices))}; got {value!r}")
        kind_of_value = type(options[name])
        wanted = (int, float) if kind_of_value is float else kind_of_value
        if (not isinstance(value, wanted) or isinstance(value, bool) != (kind_of_value is bool)
                or isinstance(value, list) and not all(map(_is_number, value))
                or kind_of_value is float and not _is_number(value)):
            raise ValueError(f"{source}: {kind}'s option {name} must be like {options[name]!r}, "
                             f"got {value!r}")
        options[name] = value
    for name in _TYPES[kind].OTHERS:
        _, options[name] = _resolve(options[name], f"{source}: {kind}", depth + 1)
    try:
        _TYPES[kind].check(options)
    except ValueError as error:
        raise ValueError(f"{source}: {kind}: {error}") from error
    return _TYPES[kind], {"type": kind, **options}


# UnknownLength: what the optimizer is told while nobody knows the length, and the power by which the
# weights of the average grow; the numbers are those that lopt meta-trains with.
_SHORTEST, _PROGRESS, _AVERAGING = 50, 0.7, 15
# Why rules that need the loss refuse this.
_LENGTH_IS_NEEDED = ("Celo (unless 'scheduled' is false), CeloAdam and Sinv6 average losses over "
                     "parts of the training's length and must know it")


def _told_length(t):
    """The num_steps that a rule is told before update t of a training of unknown length."""
    return max(_SHORTEST, math.floor(t / _PROGRESS) + 1)


def _without_unknown_length(learned_optimizer, source):
    """The optimizer of an UnknownLength, or the optimizer itself, and whether it was one."""
    kind = learned_optimizer.get("type") if isinstance(learned_optimizer, dict) else None
    if kind != "UnknownLength":
        return learned_optimizer, False
    if set(learned_optimizer) != {"type", "optimizer"}:
        raise ValueError(f"{source}: UnknownLength must have the option optimizer alone, got "
                         f"{learned_optimizer!r}")
    rule, options = _resolve(learned_optimizer["optimizer"], source)
    if rule.needs_loss(options):
        raise ValueError(f"{source}: UnknownLength: wanted an optimizer that needs no loss; "
                         f"{_LENGTH_IS_NEEDED}")
    return learned_optimizer["optimizer"], True


def _with_unknown_length(learned_optimizer, unknown_length):
    """The reverse."""
    if not unknown_length:
        return learned_optimizer
    return {"type": "UnknownLength", "optimizer": learned_optimizer}


def _resolved(learned_optimizer, source):
    """The optimizer with all its options, also an UnknownLength."""
    inner, unknown_length = _without_unknown_length(learned_optimizer, source)
    return _with_unknown_length(_resolve(inner, source)[1], unknown_length)


def _read_file(path):
    """The bytes of a file."""
    # Who opens a named pipe or a device may wait for ever, unless this process has it open already.
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            or os.fsdecode(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))):
        kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket or device"
        raise ValueError(f"{path}: it is {kind}, wanted a file")
    with open(path, "rb") as file:
        return file.read()


def _read_safetensors(content, path):
    """The float32 tensors by name, and the metadata, of a safetensors file with this content. path:
    its name in errors."""
    if len(content) < 8:
        raise ValueError(f"{path}: {len(content)} bytes are too few for a safetensors file")
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError(f"{path}: the header's length is given as {length} bytes, but only "
                         f"{len(content) - 8} follow: damaged, or not a safetensors file")
    def header_error(what):
        return ValueError(f"{path}: the safetensors header cannot be read: {what}")

    try:
        header = _strict_json(content[8 : 8 + length].decode("utf-8"))
        metadata = header.pop("__metadata__", {})
    except (ValueError, TypeError, AttributeError) as error:
        raise header_error(error) from error
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise header_error(f"__metadata__ must be an object of texts, got {metadata!r}")
    data = memoryview(content)[8 + length :]
    used, tensors = 0, {}
    for name, entry in sorted(header.items(), key=lambda item: _offsets(item[1])):
        if not _is_entry(entry):
            raise header_error(f"tensor {name} must have a dtype, a shape and data_offsets, got "
                               f"{entry!r}")
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if begin != used:
            raise ValueError(f"{path}: the data of tensor {name} begins at byte {begin}, wanted "
                             f"{used}, where that before it ends")
        used = end
        if not name.startswith(("theta/", "golden/")):
            continue
        if dtype != "F32":
            raise ValueError(f"{path}: tensor {name} has dtype {dtype}, wanted F32")
        count = math.prod(shape)
        if end - begin != 4 * count:
            raise ValueError(f"{path}: tensor {name} of shape {shape} needs {4 * count} bytes, "
                             f"the file gives it bytes {begin} to {end}")
        if end > len(data):
            continue  # an error below
        values = torch.tensor(struct.unpack(f"<{count}f", data[begin:end]), dtype=torch.float32,
                              device="cpu")  # whatever torch's default is
        try:
            tensors[name] = values.reshape(shape)
        except (RuntimeError, TypeError) as error:  # beside a 0 it may have any size
            raise ValueError(f"{path}: tensor {name} cannot have shape {shape}") from error
    if used != len(data):
        raise ValueError(f"{path}: {used} bytes of data wanted, got {len(data)}: damaged")
    return tensors, metadata


def _offsets(entry):
    """What tensors are sorted by."""
    return tuple(entry["data_offsets"]) if _is_entry(entry) else (0, 0)


def _is_entry(entry):
    """Whether a tensor of a safetensors header has all that it must, of the right types."""
    def sizes(numbers):
        return isinstance(numbers, list) and all(
            type(number) is int and 0 <= number < 1 << 63 for number in numbers)

    return (isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}
            and isinstance(entry["dtype"], str) and sizes(entry["shape"])
            and sizes(entry["data_offsets"]) and len(entry["data_offsets"]) == 2
            and entry["data_offsets"][0] <= entry["data_offsets"][1])


def _strict_json(text):
    """The value of a JSON text. Raises ValueError also where a key is there twice, a number is not
    finite, or the nesting is too deep."""
    def distinct(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} is there twice")
        return found

    def finite(number):
        if not -math.inf < float(number) < math.inf:
            raise ValueError(f"{number} is no finite number")
        return float(number)

    try:
        return json.loads(text, object_pairs_hook=distinct, parse_float=finite,
                          parse_constant=finite)
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error


# The numbers of a trained_range, each 0 where it is unknown.
_RANGE = ("shortest_training", "longest_training", "smallest_batch", "largest_batch",
          "fewest_params", "most_params", "largest_tensor")


def _checked_range(found, horizon, source):
    """A trained_range, a dictionary, which goes with a trained_horizon (0: unknown). Raises
    ValueError, which begins with source, if it is not one that lopt writes."""
    if not isinstance(found, dict) or set(found) != set(_RANGE):
        raise ValueError(f"{source} must be an object of {', '.join(_RANGE)}, got "
                         f"{repr(found)[:200]}")
    for name, number in found.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise ValueError(f"{source}: {name} must be a whole number from 0 to 2**63 - 1, got "
                             f"{number!r}")
    for low, high in (("shortest_training", "longest_training"),
                      ("smallest_batch", "largest_batch"), ("fewest_params", "most_params"),
                      ("largest_tensor", "most_params")):
        if found[low] > found[high] and (high != "longest_training" or found[high]):
            raise ValueError(f"{source}: {low} must be at most {high}, got {found[low]} and "
                             f"{found[high]}")
    if found["longest_training"] != horizon:
        raise ValueError(f"{source}: longest_training must be trained_horizon, which is {horizon}, "
                         f"got {found['longest_training']}")
    return found


def _unlike_trained(trained, num_steps, batch_size, sizes):
    """What of a training is unlike those of a trained_range, and what to do: a text; empty where
    nothing is. num_steps, batch_size: None if unknown; sizes: numbers of elements of the
    tensors."""
    unlike = []
    for what, here, least, most, times_most in (
            ("num_steps {:,}", num_steps, trained["shortest_training"],
             trained["longest_training"], 1),
            ("batches of {:,}", batch_size, trained["smallest_batch"],
             trained["largest_batch"], 10),
            ("{:,} parameters", sum(sizes), 0, trained["most_params"], 10),
            ("a tensor of {:,} numbers", max(sizes, default=0), 0, trained["largest_tensor"], 10)):
        if here is not None and 2 * here < least:
            unlike.append(f"{what.format(here)} (there at least {least:,})")
        elif here is not None and most and here > times_most * most:
            unlike.append(f"{what.format(here)} (there at most {most:,})")
    if not unlike:
        return ""
    return ("this training is unlike all that the optimizer was trained on: " + ", ".join(unlike)
            + ". Try a smaller and a larger lr, and compare with Adam")


class GoldenDeviation(NamedTuple):
    """The element of a golden tensor that is farthest from what the file says."""

    tensor: str
    element: int
    wanted: float
    got: float
    deviation: float
    limit: float
    share: float  # deviation / limit


_GoldenSteps = collections.namedtuple(
    "_GoldenSteps", "params gradients result limits steps num_steps losses")


def _golden_steps(path, golden):
    """The golden steps of a file: dictionaries by tensor, the steps' numbers, and the length."""
    params, gradients, result, limits = (
        _without(what, golden) for what in ("params/", "gradients/", "result/", "limit/"))
    if not params and golden:
        raise ValueError(f"{path}: the golden steps are damaged: golden/params is missing")

    def damaged(what):
        return ValueError(f"{path}: the golden steps are damaged: {what}")

    if "steps" in golden:
        steps = golden["steps"].tolist()
        num_steps = golden["num_steps"].tolist() if "num_steps" in golden else []
        if not (isinstance(steps, list) and steps and len(num_steps) == 1
                and num_steps[0] <= 1 << 24 and num_steps[0] == int(num_steps[0])
                and all(0 <= step < num_steps[0] and step == int(step) for step in steps)):
            raise damaged("golden/steps and golden/num_steps must be whole numbers, the steps "
                          f"below num_steps, got {steps} and {num_steps}")
        steps, num_steps = [int(step) for step in steps], int(num_steps[0])
    else:  # of before there were limits
        steps, num_steps = range(5 if params else 0), 5
        limits = {name: _old_limit(params[name], value) for name, value in result.items()
                  if name in params}
    shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
    for what, wanted, tensors in (
            ("result", shapes, result),
            ("gradients", {name: (len(steps), *shape) for name, shape in shapes.items()},
             gradients),
            ("limit", {name: (1,) for name in shapes}, limits)):
        got = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if got != wanted:
            raise damaged(f"golden/{what} must have the shapes {wanted}, got {got}")
    limits = {name: limit.item() for name, limit in limits.items()}
    if not all(limit >= 0 for limit in limits.values()):
        raise damaged(f"limits must be numbers of at least 0, got {limits}")
    losses = golden.get("losses", torch.zeros(len(steps), device="cpu"))
    if losses.shape != (len(steps),):
        raise damaged(f"golden/losses must have the shape {[len(steps)]}, got "
                      f"{list(losses.shape)}")
    return _GoldenSteps(params, gradients, result, limits, steps, num_steps, losses.tolist())


def _old_limit(params, result):
    if result.shape != params.shape or not result.numel():
        return torch.zeros(1, device="cpu")
    moved, greatest = (result - params).abs().max(), result.abs().max()
    limit = 1e-6 * (1 + greatest) + 3e-5 * moved
    return limit.nan_to_num(0, 0, 0).reshape(1)  # not finite: compared as it is


def _farthest(name, wanted, got, limit):
    """The GoldenDeviation of a tensor."""
    wanted, got = (x.double().reshape(-1) for x in (wanted, got))
    same = (wanted == got) | (wanted.isnan() & got.isnan())
    deviation = (wanted - got).abs().nan_to_num(math.inf).masked_fill(same, 0)
    i = int(deviation.argmax())
    off = deviation[i].item()
    share = 0.0 if off == 0 or limit == math.inf else off / limit if limit else math.inf
    return GoldenDeviation(name, i, wanted[i].item(), got[i].item(), off, limit, share)


class Weights:
    """A learned optimizer with its weights, for tensors of any device.

    learned_optimizer: dictionary of the type and all options.
    theta: dictionary of float32 tensors.
    trained_horizon: number of steps that no training exceeded which the optimizer was meta-trained
        on; None if it is not known.
    trained_range: dictionary of what these trainings were like: shortest_training,
        longest_training (steps), smallest_batch, largest_batch (examples), fewest_params,
        most_params, largest_tensor (numbers of elements), each 0 if it is not known; None if
        nothing is.
    sees_shapes: whether steps depend on a tensor's shape.
    unknown_length: whether it was meta-trained for trainings of unknown length, as an
        UnknownLength of learned_optimizer.
    """

    # Of objects that were pickled before there were these.
    trained_range = None
    unknown_length = False

    def __init__(self, learned_optimizer, theta, trained_horizon, source, trained_range=None):
        """learned_optimizer: type and options. source: what errors begin with.

        Raises ValueError if there is no such optimizer, or theta is not of its tensors, or not
        finite, or the range is not one, or of another horizon.
        """
        inner, self.unknown_length = _without_unknown_length(learned_optimizer, source)
        self._rule, self.learned_optimizer = _resolve(inner, source)
        self.theta, self.trained_horizon = theta, trained_horizon
        self.trained_range = None if trained_range is None else _checked_range(
            trained_range, trained_horizon or 0, f"{source}: trained_range")
        self.sees_shapes = self._rule.SEES_SHAPES
        self._check_theta(source)

    def bind(self, device):
        """The update rule, with its weights on a device."""
        return _BoundRule(self._rule(self.learned_optimizer), self.theta, device)

    def in_rule_order(self, tensor):
        """A parameter [out, in, spatial...] as the rule sees it."""
        return _in_rule_order(tensor, self._rule.SEES_SHAPES)

    def in_torch_order(self, tensor, shape):
        """The reverse, for a parameter of this shape; also of such a tensor that is flat."""
        return _in_torch_order(tensor, shape, self._rule.SEES_SHAPES)

    def seen_shape(self, p, group):
        """The shape of a parameter of a group as the rule sees it."""
        if group["as_vectors"] or not self.sees_shapes:
            return (p.numel(),)
        return tuple(self.in_rule_order(p).shape)

    def state_shapes(self, shape):
        """Of a tensor as the rule sees it, by name."""
        shapes = self._rule(self.learned_optimizer).state_shapes(shape)
        return {name: tuple(own) for name, own in shapes.items()}

    def needs_num_steps(self):
        """What makes steps need num_steps, such as "LearnableAdam with schedule 'cosine'"; None if
        nothing does."""
        return self._rule.need_of_num_steps(self.learned_optimizer)

    def needs_loss(self):
        """Whether steps need the loss of the batch that the gradients are of."""
        return self._rule.needs_loss(self.learned_optimizer)

    def _check_theta(self, source):
        def show(shapes):
            return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))

        wanted = self._rule.layout(self.learned_optimizer)
        got = {name: tuple(tensor.shape) for name, tensor in self.theta.items()}
        if wanted != got:
            raise ValueError(f"{source}: the tensors theta/... are not those of "
                             f"{self.learned_optimizer}; wanted: {show(wanted)}; got: "
                             f"{show(got) or 'none'}")
        for name, tensor in sorted(self.theta.items()):
            bad = tensor.isfinite().logical_not().flatten().nonzero().flatten().tolist()
            if bad:
                raise ValueError(f"{source}: weights must be finite numbers; theta/{name} "
                                 f"{list(tensor.shape)} has {len(bad)} that are not, the first is "
                                 f"{tensor.flatten()[bad[0]].item()} at {bad[0]}")


class ThetaFile(Weights):
    """The weights of a file, read and checked.

    metadata: dictionary of texts, such as seed, meta_steps, version and config.
    golden_steps: number of steps that the file brought for the check; 0 if none.
    """

    def __init__(self, path, learned_optimizer=None, despite_failed_check=False, content=None):
        """Reads a theta file and repeats its golden steps.

        learned_optimizer: type and options, for files that do not name theirs; such a file is
        taken as a default MLPLOpt, with a warning, if this is not given. Where the file names one
        as well, the two must be the same.
        despite_failed_check: True: a golden result that is farther off than the file allows is a
        warning in place of an error.
        content: the bytes of the file, for a program that holds them; path is then the name that
        errors give it.

        Raises ValueError if the file is damaged, of a format that this version cannot read, its
        tensors are not those of the optimizer, or a golden result is farther off than its limit.
        """
        path = str(path)
        tensors, self.metadata = _read_safetensors(
            _read_file(path) if content is None else content, path)
        found = self.metadata.get("format", _FORMATS[0])  # other programs write theirs: "pt"
        if found.startswith(_FORMAT) and found not in _FORMATS:
            raise ValueError(f"{path}: the format is {found!r}; this version of lopt_optimizer.py "
                             f"reads {' and '.join(map(repr, _FORMATS))}. A newer file needs the "
                             "newer lopt_optimizer.py")
        named = self.metadata.get("learned_optimizer")
        if named is not None:
            try:
                named = _strict_json(named)
            except ValueError as error:
                raise ValueError(f"{path}: metadata learned_optimizer: {error}") from error
            if learned_optimizer is not None:
                wanted, got = (_resolved(one, path) for one in (learned_optimizer, named))
                if wanted != got:
                    raise ValueError(f"{path}: the file is of another learned optimizer: {wanted} "
                                     f"wanted, got {got}")
        elif learned_optimizer is not None:
            named = learned_optimizer
        else:
            warnings.warn(f"{path} does not name its learned optimizer; it is taken as a default "
                          "MLPLOpt. If it is another, give learned_optimizer={'type': ...}",
                          stacklevel=3)
            named = {"type": "MLPLOpt"}
        horizon = self.metadata.get("trained_horizon", "0")
        if not (horizon.isascii() and horizon.isdigit() and len(horizon) < 19):
            raise ValueError(f"{path}: metadata trained_horizon must be a whole number of at least "
                             f"0, got {horizon!r}")
        range_text, trained_range = self.metadata.get("trained_range"), None
        if range_text is not None:
            try:
                trained_range = _strict_json(range_text)
            except ValueError as error:
                raise ValueError(f"{path}: metadata trained_range: {error}") from error
        super().__init__(named, _without("theta/", tensors), int(horizon) or None, path,
                         trained_range)
        self._golden = _golden_steps(path, _without("golden/", tensors))
        self.golden_steps = len(self._golden.steps)
        unchecked = [name for name, limit in self._golden.limits.items() if limit == math.inf]
        if unchecked:
            warnings.warn(f"{path}: the golden steps do not check {', '.join(unchecked)}: rounding "
                          "alone may take the result anywhere", stacklevel=3)
        worst = max(self.golden_deviations(), key=lambda found: found.share, default=None)
        if worst is not None and worst.share > 1:
            what = (f"{path}: the optimizer does not do what it did when the file was written: "
                    f"golden/result/{worst.tensor} at {worst.element}: {worst.wanted} wanted, got "
                    f"{worst.got}, which is {worst.deviation:.3g} off; accepted are "
                    f"{worst.limit:.3g}")
            if not despite_failed_check:
                raise ValueError(what)
            warnings.warn(what + "; it is used all the same, as was asked for", stacklevel=3)

    def golden_deviations(self, device="cpu"):
        """How far this reader's golden steps come out from those of the file, on a device: a
        GoldenDeviation of each golden tensor, of the element that is farthest off. A share above 1
        is a mistake of the reader or a damaged file. Empty if the file has no golden steps."""
        golden, device = self._golden, torch.device(device)
        rule = self.bind(device)

        def seen(tensor):
            """A tensor of the file, which has the order of axes of the rule, by way of torch's, in
            which parameters come."""
            shape = tensor.shape
            if len(shape) >= 2:
                shape = (shape[-1], shape[-2], *shape[:-2])
            return self.in_rule_order(self.in_torch_order(tensor, shape))

        # All at once, as LearnedOptimizer updates them.
        params = [seen(start).to(device, copy=True) for start in golden.params.values()]
        states = [_fresh_state(self, p) for p in params]
        for update, t in enumerate(golden.steps):
            gradients = [seen(golden.gradients[name][update]).to(device) for name in golden.params]
            num_steps = _told_length(t) if self.unknown_length else golden.num_steps
            steps = rule.steps(params, gradients, states, t, num_steps, golden.losses[update])
            for p, step in zip(params, steps):
                p -= step
        return [_farthest(name, golden.result[name], p.reshape(golden.result[name].shape).cpu(),
                          golden.limits[name]) for name, p in zip(golden.params, params)]

def _fresh_state(theta_file, p):
    return {name: torch.zeros(shape, dtype=torch.float32, device=p.device)
            for name, shape in theta_file.state_shapes(p.shape).items()}


def _values(scalars):
    """Of tensors of one element each; one transfer for each device."""
    values = {}
    for scalar in scalars:
        values.setdefault(scalar.device, []).append(scalar)
    values = {device: iter(torch.stack(own).tolist()) for device, own in values.items()}
    return [next(values[scalar.device]) for scalar in scalars]


def _shapes(state):
    """Of the tensors in the state of a parameter, by name."""
    return {name: tuple(value.shape) for name, value in state.items() if name != "step"}


class _Batch:
    """Parameters of one group that one executor updates together: on a device, with as many earlier
    updates.

    number, group: of the group. t: the number of earlier updates. num_steps: what the rule is told;
    None if nothing. places: the numbers of the
    parameters within the group. shapes: theirs, as the rule sees them. states: theirs in
    optimizer.state; empty of one that has none yet. Other lists are of things of the parameters as
    well. loss: of the batch of examples, None if it is not known.
    """

    def __init__(self, number, group, executor, t, loss):
        self.number, self.group, self.executor, self.t = number, group, executor, t
        self.unknown_length = group["num_steps"] == "unknown"
        self.num_steps = _told_length(t) if self.unknown_length else group["num_steps"]
        self.loss = loss
        self.places, self.params, self.gradients, self.shapes, self.states = [], [], [], [], []

    def name(self, i):
        return _name(self.number, self.places[i], self.params[i])

    def keep(self, chosen):
        """Leaves out the parameters but those of these numbers within the batch."""
        for name, value in vars(self).items():
            if isinstance(value, list):
                setattr(self, name, [value[i] for i in chosen])


def _name(group, i, p):
    return f"parameter {i} of group {group}, shape {list(p.shape)},"


_NO_STEP = 1 << 63  # steps and their numbers are 64-bit integers
_LARGEST = torch.finfo(torch.float32).max
_LARGE_DECAY = 1e-3  # the part of a tensor that a step's weight decay should not exceed


def _rms(step):
    """The root of the mean square of a step, float32; 0 of one without elements."""
    wide = torch.float32 if step.device.type == "mps" else torch.float64
    norm = torch.linalg.vector_norm(step, dtype=wide)
    return (norm / math.sqrt(max(step.numel(), 1))).float()


def _same_bits(a, b):
    return a.shape == b.shape and torch.equal(a.cpu().view(torch.int32), b.cpu().view(torch.int32))


class TorchExecutor:
    """Steps parameters of any device and type for a LearnedOptimizer, by operations of torch."""

    BATCH = 1 << 16  # elements of the parameters that are updated together

    def __init__(self, weights):
        self._weights = weights
        self._rules = {}  # by device

    def takes(self, p, gradient):
        """Whether it steps such parameters."""
        return True

    def owns(self, state):
        """Whether the state of a parameter has its form: that of state_dict()."""
        return True

    def fits(self, state, shape):
        """Whether a state of its form is of a parameter that the rule sees in this shape."""
        return _shapes(state) == self._weights.state_shapes(shape)

    def plain(self, state):
        """A state of its form in that of state_dict()."""
        return state

    def finite(self, batches):
        """Of each batch the numbers of the parameters whose gradients are finite in float32."""
        # Those of a batch are if their sum is. It may overflow, and each is looked at then.
        sums = [_join([gradient.reshape(-1) for gradient in batch.gradients]).float().sum()
                for batch in batches]
        return [range(len(batch.params)) if math.isfinite(total) else
                [i for i, finite in enumerate(_values([torch.isfinite(gradient.float()).all()
                                                       for gradient in batch.gradients])) if finite]
                for batch, total in zip(batches, _values(sums))]

    def update(self, batch):
        """Steps the parameters of a batch, all but the counts of their updates. Takes states of its
        own form, or of a count alone. The numbers of those that are left as they are, since finite
        numbers would become others, and the parts that weight decay took, where there is one."""
        group, weights, device = batch.group, self._weights, batch.params[0].device
        values, gradients = ([weights.in_rule_order(x).reshape(shape).float()
                              for x, shape in zip(tensors, batch.shapes)]
                             for tensors in (batch.params, batch.gradients))
        for state, value in zip(batch.states, values):
            if len(state) == 1:
                state.update(_fresh_state(weights, value))
        seen = [_flushed(gradient) for gradient in gradients]
        if device not in self._rules:
            self._rules[device] = weights.bind(device)
        steps = self._rules[device].steps(values, seen, batch.states, batch.t,
                                           batch.num_steps, batch.loss)
        decays = []
        if group["weight_decay"]:
            parts = [group["weight_decay"] / _ADAMW_STEP * _rms(step) for step in steps]
            decays = [float(group["lr"]) * part for part in _values(parts)]
            steps = [step + part * value for step, part, value in zip(steps, parts, values)]
        if group["skip_zero_gradients"]:
            steps = [step.masked_fill(gradient == 0, 0)
                     for step, gradient in zip(steps, gradients)]
        steps = [weights.in_torch_order(step, p.shape) for step, p in zip(steps, batch.params)]
        lr = -float(group["lr"])
        sums = torch._foreach_add(batch.params, steps, alpha=lr)
        # They may be of a wider type than the parameters.
        left = self._not_finite([x.to(p.dtype) for x, p in zip(sums, batch.params)])
        if left:
            left = [i for i in left if batch.params[i].isfinite().all()]
        stepped = [i for i in range(len(steps)) if i not in left]
        if stepped:
            torch._foreach_add_([batch.params[i] for i in stepped], [steps[i] for i in stepped],
                                alpha=lr)
        return left, decays

    @staticmethod
    def _not_finite(tensors):
        """The numbers of those with an element that is not finite."""
        # None has if their sum is finite. It may overflow, and each is looked at then.
        wide = torch.promote_types(tensors[0].dtype, torch.float32)
        total = torch.stack([tensor.sum(dtype=wide) for tensor in tensors]).sum()
        if math.isfinite(total):
            return []
        return [i for i, tensor in enumerate(tensors) if not tensor.isfinite().all()]


class LearnedOptimizer(torch.optim.Optimizer):
    """A meta-trained optimizer in place of torch.optim.Adam.

    Works with parameter groups, schedulers of torch.optim.lr_scheduler, closures and state_dict.
    Options of a group::

      lr            factor of the step, default 1: the optimizer as it was trained.
      weight_decay  default 0; a step also subtracts lr weight_decay (r / 0.2) p, where r is the
                    root of the mean square of the tensor's step before lr: the size of the
                    optimizer's own steps, with its schedule. That of AdamW's steps is about 0.2 of
                    its learning rate, by which it multiplies its weight_decay, so that the usual
                    0.01 means about the same here. A value that takes more than 0.1 % of a tensor
                    in a step is warned of once.
      non_finite    what a gradient does that is not finite (in float32) in some element; a step
                    with it would spoil all elements of its tensor for good. "error", the default:
                    step raises RuntimeError and changes nothing. "skip": the tensor is left as it
                    is, state and count included, and `skipped` is one higher. A loss that is needed
                    and not finite is as if no gradient were: it would spoil all tensors.
      skip_zero_gradients  default False: every element takes a step, also one whose gradient is 0
                    (a row of an embedding that no example of the batch used): its momenta, the
                    other elements and the parameter itself move it. True: elements whose gradient
                    is exactly 0 keep their value in that step, weight decay included; their state
                    is updated.
      as_vectors    default False. True: the learned optimizer sees the parameters as vectors,
                    whatever their shape. Celo2 steps vectors by Adam, and so it should tables of
                    embeddings, which have two axes.
      num_steps     the number of steps of the training, default None: not given. Learned optimizers
                    with a schedule that follows the length, LearnedScheduler, Celo, CeloAdam and
                    Sinv6 need it: a step beyond it is an error. You may raise it to go on, but the
                    averages of losses of the last three then jump. Others do without it.
                    "unknown": the training may end at any time, see eval(); an error for Celo,
                    CeloAdam and Sinv6.
                    load_state_dict keeps one that was given here, so that a training
                    can be resumed to be longer; where none was, it takes the saved one.

    There is no momentum to set: the momenta are part of what was learned. Schedulers that cycle one
    (OneCycleLR) can be used; what they set has no effect, and a warning says so once.

    The first step warns of num_steps above all that the optimizer was trained on
    (ThetaFile.trained_horizon), beyond which it may lose what it had gained, and of num_steps,
    batches, parameters and tensors that are far from all that it was trained on
    (ThetaFile.trained_range). The batches are known where batch_size is given, their number of
    examples, which changes no step. Where num_steps did not say so, the first step beyond that
    horizon warns, once.

    skipped: how often a tensor was left as it is: because its gradient or a loss that is needed was
    not finite, or because finite numbers would have become others. In the last case its state and its step count go on,
    and a warning says so once.

    averages: the float32 average of each parameter whose group has num_steps "unknown"; eval() puts
    them into the model.

    Parameters may have any shape, strides, device and real floating-point type. Steps are computed
    in float32, also within torch.autocast and where torch may use TF32, and added in the
    parameter's own type; the state is float32. Every parameter is treated by itself and has its own
    step count; one whose gradient is None is left as it is, count included.

    A learned optimizer that sees shapes (all but MLPLOpt and the learnable ones) is given a
    parameter of two axes or more in the order of axes that it was trained with: torch's
    [out, in, spatial...] as [spatial..., in, out]. Its state is of that order.
    """

    # What steps the parameters, each by the first that takes it; the last takes them all.
    EXECUTORS = (TorchExecutor,)

    def __init__(self, params, theta_file, lr=1.0, weight_decay=0.0, non_finite="error",
                 skip_zero_gradients=False, num_steps=None, as_vectors=False, batch_size=None):
        """params: tensors, or dictionaries of groups. theta_file: a ThetaFile, or other Weights.
        batch_size: the number of examples of a batch, None: not known; for a warning alone.

        Raises TypeError for a parameter that is not of a real floating-point type, ValueError for
        an lr or weight_decay that is negative or not finite, another option that is not valid, or
        num_steps that is missing where it is needed.
        """
        try:
            self._batch_size = None if batch_size is None else operator.index(batch_size)
            valid = self._batch_size is None or self._batch_size >= 1
        except TypeError:
            valid = False
        if not valid or isinstance(batch_size, bool):
            raise ValueError("LearnedOptimizer: batch_size must be an integer of at least 1 or "
                             f"None, got {batch_size!r}")
        self._theta_file = theta_file
        self._make_executors()
        self._warned = set()
        self.skipped = 0
        self.averages = {}
        self._stepped = {}  # between eval() and train(): the parameters that are stepped
        # Schedulers that cycle a momentum look for its name.
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "non_finite": non_finite,
                                  "skip_zero_gradients": skip_zero_gradients,
                                  "num_steps": num_steps, "as_vectors": as_vectors,
                                  "momentum": None})

    @classmethod
    def from_file(cls, path, params, lr=1.0, weight_decay=0.0, learned_optimizer=None,
                  non_finite="error", skip_zero_gradients=False, num_steps=None,
                  as_vectors=False, despite_failed_check=False, batch_size=None):
        """The optimizer of a theta file, for these parameters. See ThetaFile for path,
        learned_optimizer, despite_failed_check and what is raised, and the class for the
        options."""
        return cls(params, ThetaFile(path, learned_optimizer, despite_failed_check), lr,
                   weight_decay, non_finite, skip_zero_gradients, num_steps, as_vectors,
                   batch_size)

    def _make_executors(self):
        """Executors that know nothing yet of the tensors of a state."""
        self._executors = [make(self._theta_file) for make in self.EXECUTORS]

    def _owner(self, state):
        """The executor of whose form a state is."""
        for executor in self._executors:
            if executor.owns(state):
                return executor

    def add_param_group(self, param_group):
        if "batch_size" in param_group:
            raise ValueError("LearnedOptimizer: batch_size is of the whole optimizer, not of a group")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            if len(set(map(id, group["params"]))) < len(group["params"]):
                raise ValueError("LearnedOptimizer: a parameter is there twice in a group; every "
                                 "one takes one step")
            for p in group["params"]:
                if not p.is_floating_point():
                    raise TypeError("LearnedOptimizer: parameters must be of a real floating-point "
                                    f"type, got {p.dtype} of shape {list(p.shape)}")
            self._check_options(group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        flat = [p for p in group["params"] if getattr(p, "_fsdp_flattened", False)]
        if (flat and self._theta_file.sees_shapes and not group["as_vectors"]
                and all(p.dim() < 2 for p in flat)):
            self._warn_once("flat", "FSDP has flattened parameters, whose shapes this optimizer "
                            "needs; use DistributedDataParallel")

    def _check_options(self, group):
        for name in ("lr", "weight_decay"):
            try:
                valid = 0 <= group[name] <= _LARGEST
            except (TypeError, ValueError, RuntimeError):  # a text, several numbers
                valid = False
            if not valid:
                raise ValueError(f"LearnedOptimizer: {name} must be a number from 0 to "
                                 f"{_LARGEST:.3g}, the largest of float32, got {group[name]!r}")
        for name, valid in (("non_finite", ("error", "skip")),
                            ("skip_zero_gradients", (False, True)),
                            ("as_vectors", (False, True))):
            if group[name] not in valid:
                raise ValueError(f"LearnedOptimizer: {name} must be one of "
                                 f"{', '.join(map(repr, valid))}, got {group[name]!r}")
            group[name] = valid[valid.index(group[name])]  # a bool, whatever NumPy's was
        num_steps, need = group["num_steps"], self._theta_file.needs_num_steps()
        if self._theta_file.unknown_length and num_steps is None:
            num_steps = group["num_steps"] = "unknown"
        if isinstance(num_steps, str) and num_steps == "unknown":
            if self._theta_file.needs_loss():
                raise ValueError("LearnedOptimizer: num_steps must be the number of steps of the "
                                 f"training, got \"unknown\"; {_LENGTH_IS_NEEDED}")
            return
        if self._theta_file.unknown_length:
            raise ValueError("LearnedOptimizer: the optimizer was meta-trained for trainings of "
                             "unknown length (UnknownLength): leave num_steps out, got "
                             f"{num_steps!r}")
        if num_steps is None:
            if need:
                without = ("" if self._theta_file.needs_loss() else
                           "; num_steps=\"unknown\" does without it")
                raise ValueError(f"LearnedOptimizer: {need} needs num_steps, the number of steps "
                                 f"of the training, which is not given{without}")
            return
        try:
            if isinstance(num_steps, bool):
                raise TypeError
            group["num_steps"] = operator.index(num_steps)  # an int, whatever integer it was
        except TypeError:
            raise ValueError("LearnedOptimizer: num_steps must be an integer of at least 1 (int, "
                             f"numpy.int64 ...), \"unknown\" or None, got {num_steps!r} of type "
                             f"{type(num_steps).__name__}") from None
        if not 1 <= group["num_steps"] < _NO_STEP:
            wanted = "below 2**63" if group["num_steps"] > 0 else "at least 1"
            raise ValueError(f"LearnedOptimizer: num_steps must be {wanted}, \"unknown\" or None, "
                             f"got {num_steps!r}")

    def _warn_once(self, what, text, stacklevel=5):
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn("LearnedOptimizer: " + text, stacklevel=stacklevel)

    @torch.no_grad()
    def step(self, closure=None, *, loss=None):
        """One update of every parameter that has a gradient. The closure, where given, computes
        the gradients and returns the loss, which is handed on. loss: that of the batch, a number or
        a tensor of one, where there is no closure; Celo, CeloAdam and Sinv6 need one of the two.
        Under DistributedDataParallel give the mean over all ranks (torch.distributed.all_reduce):
        with a loss of its own each rank would step its parameters elsewhere.

        Raises RuntimeError for a gradient that is sparse or, unless non_finite is "skip", not
        finite, for a loss that is needed and not finite likewise, and between eval() and train().
        Raises ValueError for an option that is not valid, a step beyond num_steps where that is
        needed, or a loss that is missing where it is needed or is no number. Then nothing has been
        changed.
        """
        if self._stepped:
            raise RuntimeError("LearnedOptimizer: the parameters are the averages that eval() shows; "
                               "call train() before the next step; nothing was changed")
        if closure is not None:
            if loss is not None:
                raise ValueError("LearnedOptimizer: step has a closure, which returns the loss, "
                                 "and a loss; wanted one of the two")
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._check_options(group)
            if group["momentum"] is not None:
                self._warn_once("momentum", "the momentum of a group has no effect: the momenta "
                                "are part of what was learned")
        batches = self._batches(self._checked_loss(loss))
        self._compare_with_trained(batches)
        skipped = self._leave_out_not_finite(batches)
        for batch in batches:
            if batch.params:
                left, decays = self._update(batch)
                if batch.unknown_length:
                    self._average(batch)
                elif self.averages:  # of a phase of the training whose length was unknown
                    for p in batch.params:
                        self.averages.pop(p, None)
                self._warn_of_left_and_decays(batch, left, decays)
                skipped += len(left)
        if len(self.averages) > len(self.state):  # some are of parameters that were replaced
            self.averages = {p: own for p, own in self.averages.items() if p in self.state}
        self.skipped += skipped
        horizon = self._theta_file.trained_horizon
        longest = max((batch.t + 1 for batch in batches if batch.params), default=0)
        if horizon is not None and longest > horizon:
            self._warn_once("horizon", f"step {longest} is beyond the {horizon} steps that this "
                            "optimizer was trained for; it may lose what it has gained")
        return loss

    def _batches(self, loss):
        """The parameters that have a gradient. Raises what step does of sparse gradients and
        num_steps."""
        batches = []
        need = self._theta_file.needs_num_steps()
        for number, group in enumerate(self.param_groups):
            growing = {}
            for i, p in enumerate(group["params"]):
                gradient = p.grad
                if gradient is None:
                    continue
                shape = self._theta_file.seen_shape(p, group)
                state = self.state.get(p, {})
                average = self.averages.get(p) if state else None
                if (average is not None and average.shape != p.shape
                        or state and not self._owner(state).fits(state, shape)):
                    raise RuntimeError(f"LearnedOptimizer: {_name(number, i, p)} had another shape "
                                       "at its last update; nothing was changed")
                t = state.get("step", 0)
                if need and group["num_steps"] != "unknown" and t >= group["num_steps"]:
                    go_on = ("" if self._theta_file.needs_loss() else
                             ". A higher num_steps lets it go on")
                    raise ValueError(f"LearnedOptimizer: {_name(number, i, p)} has made all "
                                     f"{group['num_steps']} steps of its training (num_steps), "
                                     f"which {need} needs; nothing was changed{go_on}")
                if gradient.layout != torch.strided:
                    raise RuntimeError(f"LearnedOptimizer: {_name(number, i, p)} has a gradient of "
                                       f"layout {gradient.layout}; it must be dense")
                for executor in self._executors:
                    if executor.takes(p, gradient):
                        break
                kind = executor, p.device, t
                batch, elements = growing.get(kind, (None, 0))
                if batch is None or elements + p.numel() > executor.BATCH:
                    batch, elements = _Batch(number, group, executor, t, loss), 0
                    batches.append(batch)
                growing[kind] = batch, elements + p.numel()
                batch.places.append(i)
                batch.params.append(p)
                batch.gradients.append(gradient)
                batch.shapes.append(shape)
                batch.states.append(state)
        return batches

    def _checked_loss(self, loss):
        """The number that the rule needs; None if it needs none."""
        if not self._theta_file.needs_loss():
            return None
        kind = self._theta_file.learned_optimizer["type"]
        if loss is None:
            raise ValueError(f"LearnedOptimizer: {kind} needs the loss of the batch: "
                             "step(loss=loss), or a closure that returns it; nothing was changed")
        try:
            return float(loss)
        except (TypeError, ValueError, RuntimeError):  # a text, a tensor of several ...
            raise ValueError(f"LearnedOptimizer: {kind} needs the loss of the batch, a number or a "
                             f"tensor of one; got {repr(loss)[:100]}; nothing was changed"
                             ) from None

    def _leave_out_not_finite(self, batches):
        """Parameters whose gradient is not finite leave their batch, and all where the loss is not;
        how many did. Raises RuntimeError if one of them must not."""
        left_out, finite = 0, {}
        for executor in self._executors:
            own = [batch for batch in batches if batch.executor is executor]
            finite.update(zip(own, executor.finite(own)))
        for batch in batches:
            told = batch.loss is None or abs(batch.loss) <= _LARGEST
            chosen = finite[batch] if told else []
            if len(chosen) == len(batch.params):
                continue
            if batch.group["non_finite"] == "error":
                if not told:
                    kind = self._theta_file.learned_optimizer["type"]
                    raise RuntimeError(f"LearnedOptimizer: {kind} is told the loss {batch.loss} at "
                                       f"step {batch.t + 1}, which is not finite in float32; "
                                       "nothing was changed. non_finite='skip' leaves all "
                                       "parameters as they are and goes on")
                first = min(set(range(len(batch.params))) - set(chosen))
                raise RuntimeError(f"LearnedOptimizer: {batch.name(first)} has a gradient that is "
                                   "not finite; nothing was changed. non_finite='skip' leaves such "
                                   "a parameter as it is and goes on")
            left_out += len(batch.params) - len(chosen)
            batch.keep(chosen)
        return left_out

    def _compare_with_trained(self, batches):
        """Warns of what is unlike all that the optimizer was trained on, at the first step that has
        gradients."""
        if not batches or "compared" in self._warned:
            return
        self._warned.add("compared")
        horizon = self._theta_file.trained_horizon or 0
        trained = {**dict.fromkeys(_RANGE, 0), **(self._theta_file.trained_range or {}),
                   "longest_training": horizon}  # also where that alone is known
        told = [batch.group["num_steps"] for batch in batches]
        known = [number for number in told if number not in (None, "unknown")]
        num_steps = max(known) if len(known) == len(told) else None
        unlike = _unlike_trained(trained, num_steps, self._batch_size,
                                 [p.numel() for batch in batches for p in batch.params])
        if unlike:
            self._warn_once("unlike", unlike, stacklevel=6)
        if num_steps is not None and 0 < horizon < num_steps:
            self._warned.add("horizon")  # which this said

    def _warn_of_left_and_decays(self, batch, left, decays):
        """Warns, once each, of parameters of these numbers in a batch, which were left as they are,
        and of a weight_decay that took too large a part of one; decays: of each, or empty."""
        if left:
            self._warn_once("left", f"{batch.name(left[0])} would not be finite after its step, so "
                            "it is left as it is; `skipped` counts such steps", stacklevel=6)
        i = max(range(len(decays)), key=decays.__getitem__, default=None)
        if i is not None and decays[i] > _LARGE_DECAY:
            self._warn_once("decay", f"weight_decay {batch.group['weight_decay']:g} takes "
                            f"{100 * decays[i]:.2g} % of {batch.name(i)} in a step; that is more "
                            f"than {100 * _LARGE_DECAY:g} %, which few trainings bear",
                            stacklevel=6)

    def _update(self, batch):
        """Steps the parameters of a batch; what its executor's update gives."""
        for i, (p, state) in enumerate(zip(batch.params, batch.states)):
            if not state:
                state = batch.states[i] = self.state[p]
                state["step"] = 0
            owner = self._owner(state)
            if owner is not batch.executor:
                batch.states[i] = self.state[p] = owner.plain(state)
        result = batch.executor.update(batch)
        for state in batch.states:
            state["step"] += 1
        return result

    def _average(self, batch):
        """Moves the averages of a batch's parameters, which have made a step, towards them."""
        values = [p.detach().float() for p in batch.params]
        for p, value in zip(batch.params, values):
            if p not in self.averages or batch.t == 0:  # its state may have been taken away
                self.averages[p] = value.clone(memory_format=torch.preserve_format)
            elif self.averages[p].device != p.device:
                self.averages[p] = self.averages[p].to(p.device)
        averages = [self.averages[p] for p in batch.params]
        weight = (_AVERAGING + 1) / (batch.t + 1 + _AVERAGING)
        torch._foreach_mul_(averages, 1 - weight)
        torch._foreach_add_(averages, values, alpha=weight)

    @torch.no_grad()
    def eval(self):
        """Puts the model into the state in which it is judged, saved and used, where num_steps is
        "unknown": every parameter becomes the average of its last steps, mostly those of the last
        tenth of the training so far, which stands in for the small steps at the end of a training
        of known length. train() puts the parameters back, and must be called before the next step.
        Parameters of other groups, and those that have made no step, stay as they are. Calling it
        twice changes nothing more.

        Running statistics of batch norm belong to the parameters that were stepped, not to their
        average: run some batches through the model in train mode after eval(), without gradients.
        """
        for group in self.param_groups:
            if group["num_steps"] != "unknown":
                continue
            for p in group["params"]:
                if p in self.averages and p not in self._stepped and self.state.get(p):
                    self._stepped[p] = p.detach().clone(memory_format=torch.preserve_format)
                    p.copy_(self.averages[p])

    @torch.no_grad()
    def train(self):
        """Puts the parameters back that eval() replaced by averages; without that, changes
        nothing."""
        for p, stepped in self._stepped.items():
            p.copy_(stepped)
        self._stepped.clear()

    _OF_WEIGHTS = ("theta", "learned_optimizer")

    def state_dict(self):
        """As of every optimizer, with theta and the learned optimizer: beside the state and the
        groups, and once more in every group, since torch.distributed.checkpoint keeps the state
        and the groups alone."""
        saved = super().state_dict()
        states = {i: self._owner(state).plain(state) for i, state in saved["state"].items()}
        params = [p for group in self.param_groups for p in group["params"]]
        for name, tensors in self._saved_beside_states():
            for i, p in enumerate(params):
                if p in tensors and i in states:
                    states[i] = {**states[i], name: tensors[p]}
        weights = {"theta": dict(self._theta_file.theta),
                   "learned_optimizer": self._theta_file.learned_optimizer}
        groups = [{**group, **weights, "judged": bool(self._stepped)}
                  for group in saved["param_groups"]]
        return {**saved, "state": states, "param_groups": groups, **weights}

    def _saved_beside_states(self):
        """Names in the states of state_dict() of what is none of the rule's, and the tensors by
        parameter."""
        return ("average", self.averages), ("stepped", self._stepped)

    def load_state_dict(self, state_dict):
        """Goes on exactly where state_dict() was taken, unless a num_steps that was given here is
        another: the state stays float32 whatever the parameters' types. Raises ValueError if it is
        not of this optimizer, this theta and these parameters; then nothing has been changed."""
        self._check_weights(state_dict)
        groups = [{"momentum": None, "num_steps": None, "as_vectors": False,
                   **{name: value for name, value in group.items()
                      if name not in (*self._OF_WEIGHTS, "judged")}}
                  for group in state_dict["param_groups"]]
        for own, group in zip(self.param_groups, groups):
            if own["num_steps"] is not None:
                group["num_steps"] = own["num_steps"]
        for i, group in enumerate(groups):
            if not isinstance(group.get("params"), list):
                raise ValueError(f"LearnedOptimizer: group {i} of the state_dict has no list of "
                                 "params")
        saved = [(i, group) for group in groups for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        states = state_dict["state"]
        judged = any(group.get("judged") for group in state_dict["param_groups"])
        if judged and not any(isinstance(state, dict) and "stepped" in state
                              for state in states.values()):
            raise ValueError("LearnedOptimizer: the state_dict was taken between eval() and train() "
                             "and has lost the parameters that are stepped; "
                             "torch.distributed.checkpoint drops them. Save after train()")
        strange = sorted(states.keys() - {i for i, _ in saved}, key=str)
        if strange:
            raise ValueError("LearnedOptimizer: the state_dict has states of parameters that no "
                             f"group of it has: {strange[:10]}")
        beside = {}  # by name the tensors by parameter
        for name, _ in self._saved_beside_states():
            beside[name] = {p: self._checked_beside(i, name, states[i][name], p)
                            for (i, _), p in zip(saved, params)
                            if i in states and isinstance(states[i], dict) and name in states[i]}
        states = {i: {name: value for name, value in state.items() if name not in beside}
                  if isinstance(state, dict) else state for i, state in states.items()}
        states = {i: self._checked_state(i, states[i], p, group)
                  for (i, group), p in zip(saved, params) if i in states}
        for i, group in enumerate(groups):
            missing = [name for name in ("lr", "weight_decay", "non_finite", "skip_zero_gradients")
                       if name not in group]
            if missing:
                raise ValueError(f"LearnedOptimizer: group {i} of the state_dict has no "
                                 f"{', '.join(missing)}")
            self._check_options(group)
        super().load_state_dict({"state": states, "param_groups": groups})
        self._make_executors()  # those before know the tensors of the state before
        for (i, _), p in zip(saved, params):
            for name, value in states.get(i, {}).items():
                if name != "step":
                    value = value.detach().to(p.device, torch.float32, copy=True)
                self.state[p][name] = value
        for name, tensors in self._saved_beside_states():
            tensors.clear()
            for p, value in beside[name].items():
                tensors[p] = value.detach().to(
                    p.device, torch.float32 if name == "average" else p.dtype, copy=True)

    @staticmethod
    def _checked_beside(i, name, value, p):
        """A tensor that is saved beside the state of a parameter. Raises ValueError if it is
        none."""
        if not (torch.is_tensor(value) and value.is_floating_point() and value.shape == p.shape):
            raise ValueError(f"LearnedOptimizer: the state of parameter {i}, shape {list(p.shape)}, "
                             f"must have a tensor {name} of this shape, got {repr(value)[:100]}")
        return value

    def _checked_state(self, i, state, p, group):
        """The saved state of a parameter. Raises ValueError if it is none."""
        def fail(wanted, got):
            raise ValueError(f"LearnedOptimizer: the state of parameter {i}, shape "
                             f"{list(p.shape)}, must have {wanted}, got {got}")

        wanted = self._theta_file.state_shapes(self._theta_file.seen_shape(p, group))
        tensors = {name: value for name, value in state.items() if name != "step"}
        for name, value in tensors.items():
            if name in wanted and not (torch.is_tensor(value) and value.is_floating_point()):
                fail(f"a tensor {name} of real floating-point numbers", repr(value)[:100])
        if any(not torch.is_tensor(value) for value in tensors.values()) or (
                _shapes(state) != wanted):
            fail(wanted, {name: tuple(getattr(value, "shape", ())) for name, value
                          in tensors.items()})
        step = state.get("step")
        try:
            number = int(step)
            valid = number == step and 0 <= number < _NO_STEP and not isinstance(step, bool)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # a text, NaN, ...
            valid = False
        if not valid:
            fail("a step, the number of its updates", repr(step))
        return {**state, "step": number}

    def _check_weights(self, state_dict):
        """Raises ValueError unless a state_dict, or each of its groups, has these weights."""
        if not (isinstance(state_dict.get("state", {}), dict)
                and isinstance(state_dict.get("param_groups", []), list)):
            raise ValueError("LearnedOptimizer: state must be a dictionary and param_groups a list "
                             "in a state_dict")
        found = [part for part in (state_dict, *state_dict.get("param_groups", []))
                 if all(name in part for name in self._OF_WEIGHTS)]
        if not found:
            raise ValueError("LearnedOptimizer: the state_dict is not one of a LearnedOptimizer: "
                             f"'theta' and 'learned_optimizer' wanted, got {list(state_dict)}")
        here = self._theta_file
        for part in found:
            _, learned_optimizer = _resolve(part["learned_optimizer"], "state_dict")
            if learned_optimizer != here.learned_optimizer:
                raise ValueError("LearnedOptimizer: the state_dict is of another learned "
                                 f"optimizer: {here.learned_optimizer} wanted, got "
                                 f"{learned_optimizer}")
            theta = part["theta"]
            if not (isinstance(theta, dict) and theta.keys() == here.theta.keys()
                    and all(torch.is_tensor(tensor) for tensor in theta.values())):
                raise ValueError("LearnedOptimizer: the theta of the state_dict must be tensors "
                                 f"{', '.join(here.theta)}, got {repr(theta)[:100]}")
            if not all(_same_bits(theta[name], tensor) for name, tensor in here.theta.items()):
                raise ValueError("LearnedOptimizer: the state_dict was saved with another theta")
        for name in ("state", "param_groups"):
            if name not in state_dict:
                raise ValueError(f"LearnedOptimizer: the state_dict has no {name}, it has "
                                 f"{list(state_dict)}")

    def __setstate__(self, state):
        super().__setstate__(state)
        for name in ("averages", "_stepped"):  # not of one that was saved before there were they
            self.__dict__.setdefault(name, {})
        self.__dict__.setdefault("_batch_size", None)  # likewise
        self._make_executors()
        for group in self.param_groups:  # one that was saved before there were the options
            group.setdefault("num_steps", None)
            group.setdefault("as_vectors", False)

    def __getstate__(self):
        return {**super().__getstate__(), "_theta_file": self._theta_file,
                "_warned": self._warned, "skipped": self.skipped, "averages": self.averages,
                "_stepped": self._stepped, "_batch_size": self._batch_size}


def _main(arguments):
    if len(arguments) != 1:
        sys.exit("Usage: lopt_optimizer.py THETA.safetensors")
    try:
        file = ThetaFile(arguments[0])
    except (OSError, ValueError) as error:
        sys.exit(f"lopt_optimizer.py: {error}")
    whole = _with_unknown_length(file.learned_optimizer, file.unknown_length)
    print(f"learned_optimizer = {json.dumps(whole)}")
    for name, tensor in sorted(file.theta.items()):
        print(f"theta/{name} {list(tensor.shape)}")
    for name in sorted(set(file.metadata) - {"learned_optimizer"}):
        text = file.metadata[name]
        if len(text) > 80 and text.startswith("{"):
            try:
                text = "\n" + json.dumps(_strict_json(text), indent=1)
            except ValueError:
                pass  # shown as it is
        print(f"{name} = {text}")
    for found in file.golden_deviations():
        print(f"golden/result/{found.tensor}: {found.deviation:.2g} off, of {found.limit:.2g} that "
              "are accepted")
    print(f"golden steps that were repeated: {file.golden_steps}")


if __name__ == "__main__":
    _main(sys.argv[1:])
