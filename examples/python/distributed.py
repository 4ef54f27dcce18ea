"""One experiment on one process and on three, with the same weights."""

import multiprocessing

import numpy as np

import lopt

PROCESSES = 3


def compute(pipe, config, mine):
    """Gives the gradients of some logical workers for each of the weights that come."""
    experiment = lopt.Experiment(config)
    keys = {w: lopt.worker_key(experiment.run_key, w) for w in mine}
    workers = {}
    while (message := pipe.recv()) is not None:
        weights = lopt.WorkerWeights(*message)
        gradients = []
        for w, key in keys.items():
            if w not in workers:
                workers[w] = lopt.init_worker_state(weights, experiment.estimators(w), key)
            put = lopt.gradient_worker_compute(
                weights, experiment.estimators(w), key, workers[w]
            )
            gradients.append((put.gradient, put.outer_step, put.mean_loss))
        pipe.send(gradients)


def train(config):
    """The weights after all updates, with the workers dealt out to processes in blocks."""
    experiment = lopt.Experiment(config)
    learner = experiment.learner
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for mine in np.array_split(range(experiment.workers), PROCESSES):
        pipe, theirs = spawn.Pipe()
        process = spawn.Process(target=compute, args=(theirs, config, mine.tolist()), daemon=True)
        process.start()
        theirs.close()
        pipes.append(pipe)
        processes.append(process)

    state = learner.init(lopt.theta_key(experiment.run_key))
    for _ in range(experiment.config["meta_steps"]):
        weights = learner.get_state_for_worker(state)
        for pipe in pipes:
            pipe.send((weights.theta, weights.outer_step))
        gradients = [lopt.AggregatedGradient(*put) for pipe in pipes for put in pipe.recv()]
        state, _ = learner.update(state, gradients)

    for pipe, process in zip(pipes, processes):
        pipe.send(None)
        process.join()
    return state.theta


if __name__ == "__main__":  # the processes read this file too
    # Four logical workers belong to the experiment, whoever computes them.
    config = lopt.load_config("smoke") | {"workers": 4}
    one = lopt.meta_train(config).theta.values
    three = train(config)
    assert np.array_equal(one, three)
    print(f"one process and {PROCESSES} give the same theta")
