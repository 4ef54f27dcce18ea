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
