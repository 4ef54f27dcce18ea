#!/usr/bin/env python3
"""What a task in Python costs besides its own functions: docs/performance.md has the figures.

    PYTHONPATH=build/python OPENBLAS_NUM_THREADS=1 tools/bench/own_task.py

An image MLP (64-32-10 on random images, batch 128, 2,410 params) in 32 replicas, one thread. All is
CPU time of the process in ms a step, medians over windows of 20 steps: `function` is the user's,
its gradient included; `batch` the gathering of 32 x 128 rows of data; `step` all of a step under
gradient descent; `native` a step of a built-in task of as many params whose own work is next
to nothing (QuadraticTask), that is, the updates and what estimators do. `besides` is what is left
of the step, as a part of function and batch.
"""

import time

import numpy as np
import torch

import lopt
from lopt._tasks.data import DataSet
from lopt._tasks.numpy_loss import NumpyLoss
from lopt._tasks.torch_loss import TorchLoss

REPLICAS, BATCH, STEPS, REPEATS = 32, 128, 20, 45


class ImageNetwork:
    """What both have in common."""

    batch_size = BATCH

    def data(self):
        key = lopt.Key(1)
        return key.uniform((10000, 64)), key.fold_in(1).integers(10000, 0, 10)

    def init(self, key):
        return {
            "w0": key.fold_in(0).normal((64, 32)) / 8,
            "b0": np.zeros(32, np.float32),
            "w1": key.fold_in(1).normal((32, 10)) / 6,
            "b1": np.zeros(10, np.float32),
        }


@lopt.task
class TorchImages(ImageNetwork):
    def loss(self, params, batch):
        images, labels = batch
        hidden = torch.relu(images @ params["w0"] + params["b0"])
        logits = hidden @ params["w1"] + params["b1"]
        return torch.nn.functional.cross_entropy(logits, labels)


@lopt.task
class NumpyImages(ImageNetwork):
    def loss_and_grad(self, params, batch):
        images, labels = batch
        w0, b0, w1, b1 = params.values()
        hidden = np.maximum(images @ w0 + b0[:, None], 0)
        logits = hidden @ w1 + b1[:, None]
        logits -= logits.max(-1, keepdims=True)
        exps = np.exp(logits)
        sums = exps.sum(-1, keepdims=True)
        at_labels = np.take_along_axis(logits - np.log(sums), labels[..., None], -1)
        d_logits = exps / sums
        d_logits -= labels[..., None] == np.arange(10)
        d_logits /= labels.shape[-1]
        d_hidden = (d_logits @ w1.swapaxes(1, 2)) * (hidden > 0)
        return -at_labels.mean((1, 2)), {
            "w0": images.swapaxes(1, 2) @ d_hidden,
            "b0": d_hidden.sum(1),
            "w1": hidden.swapaxes(1, 2) @ d_logits,
            "b1": d_logits.sum(1),
        }


def window(task, optimizer="LearnableSGD"):
    """Runs a window of STEPS steps."""
    experiment = lopt.Experiment({
        "learned_optimizer": {"type": optimizer},
        "estimators": [{
            "type": "TruncatedPES",
            "task": task,
            "num_tasks": REPLICAS // 2,
            "trunc_length": STEPS,
            "lengths": {"type": "ConstantTruncationSchedule", "total_length": 1000000},
        }],
        "meta_steps": 1,
    })
    state = experiment.learner.init(lopt.theta_key(lopt.Key(0)))
    weights = experiment.learner.get_state_for_worker(state)
    estimators = experiment.estimators(0)
    worker = lopt.init_worker_state(weights, estimators, lopt.Key(1))
    return lambda: lopt.gradient_worker_compute(weights, estimators, lopt.Key(1), worker)


def clocked(owner, name):
    """Has the CPU time of every call of owner.name added to the list that is returned."""
    function, seconds = getattr(owner, name), [0.0]

    def call(*args, **kwargs):
        start = time.process_time()
        result = function(*args, **kwargs)
        seconds[0] += time.process_time() - start
        return result

    setattr(owner, name, call)
    return seconds


def main():
    torch.set_num_threads(1)
    functions = {"TorchImages": clocked(TorchLoss, "evaluate"),
                 "NumpyImages": clocked(NumpyLoss, "evaluate")}
    batch = clocked(DataSet, "take")
    print("| task | function | batch | step | native | besides |\n|---|---|---|---|---|---|")
    native = window({"type": "QuadraticTask", "dim": 2410})
    for name, function in functions.items():
        own = window({"type": name})
        rows = []
        for _ in range(REPEATS):
            start = time.process_time()
            native()
            middle = time.process_time()
            function[0] = batch[0] = 0.0
            own()
            rows.append((function[0], batch[0], time.process_time() - middle,
                         middle - start))
        rows = 1e3 * np.array(rows[5:]) / STEPS
        rest = (rows[:, 2] - rows[:, 3]) / (rows[:, 0] + rows[:, 1]) - 1
        cells = " | ".join(f"{value:.2f}" for value in np.median(rows, 0))
        print(f"| {name} | {cells} | {np.median(rest):.1%} |")


if __name__ == "__main__":
    main()
