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
