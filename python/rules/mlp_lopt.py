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
