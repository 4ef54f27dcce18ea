"""Theta by an optimizer that asks for losses, not for gradients: CMA-ES, of the package cma."""

import pathlib
import sys

import numpy as np

import lopt

try:
    import cma
except ImportError:
    print("skipped: cma is not installed; pip install cma")
    sys.exit(77)

# An estimator of type FullES says which episodes are run and what they count.
experiment = lopt.Experiment(pathlib.Path(__file__).parents[1] / "ask_tell/config.json")
config, estimators = experiment.config, experiment.estimators()
start = lopt.Theta.init(config["learned_optimizer"], config["seed"])


def losses_of(thetas, step, worker=0):
    """Of thetas [K, D], which all get the same tasks and draws: those of the step."""
    key = lopt.worker_key(experiment.run_key, worker)
    return lopt.meta_losses(np.array(thetas, np.float32), estimators, key, step)


search = cma.CMAEvolutionStrategy(start.values, 0.05, {"popsize": 32, "seed": 1, "verbose": -9})
for generation in range(config["meta_steps"]):
    thetas = search.ask()
    search.tell(thetas, losses_of(thetas, generation))
mean = search.mean.astype(np.float32)

# On draws that it has not seen.
first, last = losses_of([start.values, mean], step=0, worker=1)
print(f"{mean.size} weights: meta-loss {first:.3f}, "
      f"after {config['meta_steps']} generations {last:.3f}")
lopt.Theta(config["learned_optimizer"], mean, config=config, meta_steps=config["meta_steps"],
           trained_horizon=50).write("ask_tell.safetensors")
assert last < first - 1
