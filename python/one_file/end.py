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
