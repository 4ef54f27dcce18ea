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
