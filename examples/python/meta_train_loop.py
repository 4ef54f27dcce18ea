"""The loop that lopt.meta_train runs, by hand: workers give gradients, the learner steps theta."""

import pathlib

import numpy as np

import lopt

config = pathlib.Path(__file__).parents[1] / "meta_train_loop/config.json"

# The parts, each made by its name from the config.
experiment = lopt.Experiment(config)
learner, run_key = experiment.learner, experiment.run_key

# All that lives between two updates is in these states, and all that is random comes from this
# key, so the loop can be stopped, saved and moved anywhere.
state = learner.init(lopt.theta_key(run_key))
weights = learner.get_state_for_worker(state)
workers = [
    lopt.init_worker_state(weights, experiment.estimators(w), lopt.worker_key(run_key, w))
    for w in range(experiment.workers)
]

for update in range(1, experiment.config["meta_steps"] + 1):
    weights = learner.get_state_for_worker(state)
    gradients = [
        lopt.gradient_worker_compute(
            weights, experiment.estimators(w), lopt.worker_key(run_key, w), worker
        )
        for w, worker in enumerate(workers)
    ]
    state, summary = learner.update(state, gradients)
    if update % 10 == 0:
        print(f"update {update:3}: loss {summary['mean_loss']:.3f}, "
              f"gradient {summary['gradient_norm']:.3f}")

# The same bits as the library's own loop, which is that of the program.
assert np.array_equal(lopt.meta_train(config).theta.values, state.theta)
print("lopt.meta_train gives the same theta")
