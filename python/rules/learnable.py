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
