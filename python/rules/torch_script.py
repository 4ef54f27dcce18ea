# What an exported module has around the other files of this folder; TorchScript alone.


_LARGEST_LOSS = 3.4028234663852886e38  # of float32


class _Rule:
    SEES_SHAPES = False

    def joined(self, states: List[Dict[str, Tensor]], name: str, sizes: List[int]) -> Tensor:
        return states[0][name]

    def state_of_elements(self) -> bool:
        """Whether the state is so many numbers for each element of a parameter."""
        return not self.SEES_SHAPES


class _Module:
    """The methods of an exported module, around those of its rule."""

    def state_size(self, param: Tensor) -> List[int]:
        seen = list(_in_rule_order(param, self.SEES_SHAPES).shape)
        if self.state_of_elements():
            return [_sum_of_counts(self.state_shapes([1]))] + list(param.shape)
        return [_sum_of_counts(self.state_shapes(seen))]

    def init_state(self, param: Tensor) -> Tensor:
        return torch.zeros(self.state_size(param), dtype=param.float().dtype, device=param.device)

    def update(self, param: Tensor, grad: Tensor, state: Tensor, step: int,
               num_steps: int = 0, loss: Optional[float] = None, lr: float = 1.0,
               weight_decay: float = 0.0) -> Tuple[Tensor, Tensor]:
        for option in [lr, weight_decay]:
            message = "lr and weight_decay must be numbers from 0 to {}, got {} and {}"
            assert option >= 0.0 and option <= _LARGEST, message.format(_LARGEST, lr, weight_decay)
        if self.needs_num_steps != "":
            message = "{} needs num_steps: step {} is not one of a training of {} steps"
            assert step < num_steps, message.format(self.needs_num_steps, step, num_steps)
        told = 0.0
        if loss is not None:
            told = loss
            message = "{} is told the loss {} at step {}, which is not finite in float32"
            assert self.needs_loss == "" or abs(told) <= _LARGEST_LOSS, message.format(
                self.needs_loss, told, step + 1)
        else:
            assert self.needs_loss == "", self.needs_loss + " needs the loss of the batch"
        if param.numel() == 0:
            return param, state
        p = _in_rule_order(param.float(), self.SEES_SHAPES)
        g = _flushed(_in_rule_order(grad.float(), self.SEES_SHAPES))
        own = _parts(state.reshape([-1]), self.state_shapes(p.shape))
        steps = self.steps(self.weights(self.theta()), [p], [g], [own], step, num_steps,
                           told)
        change = steps[0]
        if weight_decay != 0.0:
            rms = _widened(change).square().mean().sqrt().float()
            change = change + weight_decay / _ADAMW_STEP * rms * p
        if lr != 1.0:
            change = lr * change
        change = _in_torch_order(change, param.shape, self.SEES_SHAPES)
        after = [part.reshape([-1]) for part in own.values()]
        if len(after) > 0:
            state = torch.cat(after).view(state.shape)
        return param - change.to(param.dtype), state


def _count(shape: List[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _sum_of_counts(shapes: Dict[str, List[int]]) -> int:
    total = 0
    for shape in shapes.values():
        total += _count(shape)
    return total


def _parts(state: Tensor, shapes: Dict[str, List[int]]) -> Dict[str, Tensor]:
    """Copies of the parts of a state [n], which steps may change."""
    parts: Dict[str, Tensor] = {}
    begin = 0
    for name, shape in shapes.items():
        end = begin + _count(shape)
        parts[name] = state[begin:end].view(shape).clone()
        begin = end
    return parts
