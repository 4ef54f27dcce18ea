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
