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
    Keys,
    LearnerState,
    WorkerState,
    WorkerWeights,
    __version__,
    describe,
    gradient_worker_compute,
    init_worker_state,
    load_config,
    meta_losses,
    presets,
    resolve,
    theta_key,
    worker_key,
)
from ._tasks import option, register_task, task
from .callbacks import Callback
from .evaluation import Evaluation, Report, evaluate, report
from .theta import GoldenDeviation, Theta, golden_deviations, load
from .training import MetaTraining, meta_train

__all__ = [
    "AggregatedGradient",
    "Callback",
    "Error",
    "Estimators",
    "Evaluation",
    "Experiment",
    "GoldenDeviation",
    "GradientLearner",
    "Key",
    "Keys",
    "LearnerState",
    "MetaTraining",
    "Report",
    "Theta",
    "WorkerState",
    "WorkerWeights",
    "describe",
    "evaluate",
    "golden_deviations",
    "gradient_worker_compute",
    "init_worker_state",
    "load",
    "load_config",
    "meta_losses",
    "meta_train",
    "option",
    "presets",
    "register_task",
    "report",
    "resolve",
    "task",
    "theta_key",
    "worker_key",
]
