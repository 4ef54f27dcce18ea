"""lopt: meta-training of learned optimizers, and the optimizers it has trained.

Configs are dictionaries, names of presets or paths of JSON files, with the keys that describe()
explains. Wrong input raises Error, whose text names who found it, what was wanted, what was got and
the valid choices.
"""

from ._core import (
    AggregatedGradient,
    Error,
    Estimators,
    Experiment,
    GradientLearner,
    Key,
    LearnerState,
    WorkerState,
    WorkerWeights,
    __version__,
    describe,
    gradient_worker_compute,
    init_worker_state,
    load_config,
    presets,
    resolve,
    theta_key,
    worker_key,
)
from .callbacks import Callback
from .theta import Theta
from .training import MetaTraining, meta_train

__all__ = [
    "AggregatedGradient",
    "Callback",
    "Error",
    "Estimators",
    "Experiment",
    "GradientLearner",
    "Key",
    "LearnerState",
    "MetaTraining",
    "Theta",
    "WorkerState",
    "WorkerWeights",
    "describe",
    "gradient_worker_compute",
    "init_worker_state",
    "load_config",
    "meta_train",
    "presets",
    "resolve",
    "theta_key",
    "worker_key",
]
