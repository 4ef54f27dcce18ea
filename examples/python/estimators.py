"""What an estimator with short windows misses: a gradient by the logarithm of a learning rate."""

import numpy as np

import lopt


def gradients(estimator, windows):
    """The gradients [windows] that an estimator gives at one theta, with a state carried along."""
    experiment = lopt.Experiment({
        "learned_optimizer": {"type": "LearnableSGD", "learning_rate": 0.3},
        "estimators": [{
            "task": {"type": "ImageMLP", "hidden": [8], "batch_size": 16},
            "lengths": {"type": "ConstantTruncationSchedule", "total_length": 100},
            "num_tasks": 32,
            "std": 0.05,
        } | estimator],
    })
    key = lopt.worker_key(experiment.run_key, 0)
    learner, estimators = experiment.learner, experiment.estimators(0)
    weights = learner.get_state_for_worker(learner.init(lopt.theta_key(experiment.run_key)))
    worker = lopt.init_worker_state(weights, estimators, key)
    return np.array([
        lopt.gradient_worker_compute(weights, estimators, key, worker).gradient[0]
        for _ in range(windows)
    ])


# Episodes have 100 steps: FullES runs all of them, the others 5 in a window. The offset lets
# replicas begin out of step, so that a window sees every part of an episode.
short = {"trunc_length": 5, "random_initial_iteration_offset": 100}
means = {}
for estimator, windows in [
    ({"type": "FullES"}, 20),
    ({"type": "TruncatedPES"} | short, 400),
    ({"type": "TruncatedES"} | short, 400),
]:
    given = gradients(estimator, windows)[windows // 5:]  # without those before all phases are seen
    error = given.std() / len(given) ** 0.5
    means[estimator["type"]] = given.mean()
    print(f"{estimator['type']:12}  {given.mean():7.4f} +- {error:.4f}")

assert abs(means["TruncatedPES"] / means["FullES"] - 1) < 0.2
assert abs(means["TruncatedES"] / means["FullES"]) < 0.02
