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
