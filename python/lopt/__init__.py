"""lopt: meta-training of learned optimizers, and the optimizers it has trained.

Configs are dictionaries, names of presets or paths of JSON files, with the keys that describe()
explains; every type that they name is a class as well, such as lopt.ImageMLP. Wrong input raises Error, whose text names who found it, what was wanted, what was got and
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
    SingleMachineState,
    WorkerState,
    WorkerWeights,
    __version__,
    gradient_worker_compute,
    init_worker_state,
    load_config,
    meta_losses,
    presets,
    resolve,
    theta_key,
    worker_key,
)
from . import _types
from ._description import describe
from ._tasks import option, register_task, task
from ._types import *  # noqa: F403
from .callbacks import Callback
from .evaluation import Evaluation, Report, evaluate, report
from .fitting import Fit, fit
from .single_machine import SingleMachineGradientLearner, single_task_to_family
from .theta import GoldenDeviation, Theta, golden_deviations, load
from .training import MetaTraining, meta_train

__all__ = [
    "AggregatedGradient",
    "Callback",
    "Error",
    "Estimators",
    "Evaluation",
    "Experiment",
    "Fit",
    "GoldenDeviation",
    "GradientLearner",
    "Key",
    "Keys",
    "LearnerState",
    "MetaTraining",
    "Report",
    "SingleMachineGradientLearner",
    "SingleMachineState",
    "Theta",
    "WorkerState",
    "WorkerWeights",
    "describe",
    "evaluate",
    "fit",
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
    "single_task_to_family",
    "task",
    "theta_key",
    "worker_key",
]
__all__ += _types.__all__
