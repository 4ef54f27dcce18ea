"""Task families of one's own, known by name in configs, and a learned optimizer trained for them."""

import numpy as np

import lopt


@lopt.task
class Regression:
    """Least squares: every task has its own target weights and sees 16 new examples in each step."""

    dim: int = lopt.option(5, "Inputs.", min=1)

    def sample(self, key):
        return {"target": key.normal(self.dim)}

    def init(self, key):
        return {"w": key.normal(self.dim)}

    def batch(self, keys):
        return keys.normal((16, self.dim))

    def loss(self, params, batch, config):  # of one training, in torch
        return (batch @ (params["w"] - config["target"])).square().mean()


@lopt.task
class NumpyRegression(Regression):
    """The same with its gradient by hand, for n trainings at once."""

    loss = None

    def loss_and_grad(self, params, batch, config):
        errors = np.einsum("nei,ni->ne", batch, params["w"] - config["target"])
        gradient = np.einsum("nei,ne->ni", batch, errors) / 8
        return np.square(errors).mean(1), {"w": gradient}


def losses(type):
    """The mean meta-loss of each of 100 updates."""
    metrics = []
    lopt.meta_train({
        "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 16},
        "meta_steps": 100,
        "theta_opt": {"type": "Adam", "learning_rate": 0.01},
        "estimators": [{
            "type": "TruncatedPES",
            "task": {"type": type, "dim": 8},
            "num_tasks": 64,
            "trunc_length": 20,
            "random_initial_iteration_offset": 100,
            "lengths": {"type": "ConstantTruncationSchedule"},
        }],
    }, callbacks=[lambda step, values: metrics.append(values["meta_loss"])])
    return metrics


for type in "Regression", "NumpyRegression":
    meta_losses = losses(type)
    print(f"{type}: loss {meta_losses[0]:.3f}, after 100 updates {meta_losses[-1]:.3f}")
    assert meta_losses[-1] < 0.5 * meta_losses[0]
