"""Truncated ES and PES by hand, on a system whose first effects of theta mislead."""

import numpy as np

import lopt

SIZE, PAIRS, STD = 23, 500, 0.1
# s <- A s + theta v, with 1/2 on the diagonal of A and above it, and v = 1 for ten numbers, -1 for
# the others. The loss is (s_1 - 1)^2 / 2, which theta = -1/6 makes 0 in the long run.
A = 0.5 * (np.eye(SIZE) + np.eye(SIZE, k=1))
V = np.where(np.arange(SIZE) < 10, 1.0, -1.0)


def advance(states, thetas):
    """One step of replicas [n]: states [n, SIZE] under thetas [n] to the next states and losses."""
    states = states @ A.T + thetas[:, None] * V
    return states, np.square(states[:, 0] - 1) / 2


def descend(persistent):
    """Theta after 3,000 windows of one step and as many steps of gradient descent."""
    theta = 0.5
    plus = minus = np.ones((PAIRS, SIZE))
    accumulator = np.zeros(PAIRS)
    for step in range(3000):
        eps = STD * lopt.Key(2).fold_in(step).normal(PAIRS)
        # PES: each replica goes on from its own state, and its losses are credited to all perturbations of its episode.
        minus = minus if persistent else plus
        accumulator = accumulator + eps if persistent else eps
        plus, losses_plus = advance(plus, theta + eps)
        minus, losses_minus = advance(minus, theta - eps)
        gradient = np.mean(accumulator * (losses_plus - losses_minus)) / (2 * STD**2)
        theta -= 1e-4 * gradient
    return theta


pes, es = descend(persistent=True), descend(persistent=False)
print(f"theta by PES {pes:.4f}, by truncated ES {es:.4f}, wanted {-1 / 6:.4f}")
assert abs(pes + 1 / 6) < 1e-3 and es > 2
