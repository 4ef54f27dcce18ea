"""Meta-training as google/learned_optimization's tutorials write it: one update at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy

from . import _core
from ._component import Component
from .theta import Theta


class SingleMachineGradientLearner:
    """A learner and its logical workers in one process, for use as a library.

        learner = lopt.SingleMachineGradientLearner(optimizer, [estimator], lopt.Adam())
        state = learner.init(key)
        state, loss, metrics = learner.update(state, key)

    It has no state itself: states are passed in and out, never change, and can be pickled. With
    key = lopt.Key(seed) for each call, theta has the bits of meta_train(learner.config | {"seed":
    seed}).
    """

    def __init__(
        self,
        learned_optimizer: Component | dict[str, Any],
        estimators: Sequence[Component | dict[str, Any]],
        theta_opt: Component | dict[str, Any],
        *,
        workers: int = 1,
        windows_per_update: int = 1,
        meta_steps: int | None = None,
        non_finite_gradient: str = "skip",
        gradient_sum: str = "in_order",
        weighting: str = "fixed",
        frozen: Sequence[str] = (),
        data_dir: str = "",
        device: str = "cpu",
        threads: int | None = None,
    ):
        """Of a learned optimizer, gradient estimators with their tasks, and the optimizer of theta.

        Args:
            meta_steps: Only for a schedule of theta_opt that depends on the number of updates.
            threads: None: one for each core that the process may use. Bits do not depend on it.

        The other options are the config's keys of these names. Raises Error if one of them is
        wrong, or something cannot be made.
        """
        options = {
            "non_finite_gradient": non_finite_gradient,
            "gradient_sum": gradient_sum,
            "weighting": weighting,
            "frozen": frozen,
        }
        # An Experiment would fill in a length of its own.
        _core.GradientLearner(learned_optimizer, theta_opt, meta_steps=meta_steps, **options)
        config = {
            "learned_optimizer": learned_optimizer,
            "theta_opt": theta_opt,
            "estimators": estimators,
            "workers": workers,
            "windows_per_update": windows_per_update,
            "data_dir": data_dir,
            "device": device,
        }
        if meta_steps is not None:
            config["meta_steps"] = meta_steps
        self._experiment = _core.Experiment(config | options)
        self._threads = threads

    @property
    def config(self) -> dict[str, Any]:
        """A copy of what meta_train takes for the same, with every key and its value."""
        return self._experiment.config

    def init(self, key: _core.Key, theta: numpy.ndarray | None = None) -> _core.SingleMachineState:
        """The state before the first update, with a theta drawn with the key, or this one.

        Args:
            key: A run's, lopt.Key(seed).
            theta: float32 [D].

        Raises:
            Error: The theta has another dtype or shape.
        """
        return _core.single_machine_init(self._experiment, key, theta, self._threads)

    def update(
        self, state: _core.SingleMachineState, key: _core.Key, with_metrics: bool = False
    ) -> tuple[_core.SingleMachineState, float, dict[str, float]]:
        """One update of theta: every worker runs its windows, and theta_opt steps by their mean.

        Ctrl-C raises KeyboardInterrupt when the update has ended; the old state then is the newest.

        Args:
            state: That of init or of the update before.
            key: That of init, or any other.
            with_metrics: Return what metrics.jsonl has of the update; if not, an empty dict.

        Returns:
            The next state, the mean meta-loss under the old one (NaN if none is finite), and metrics
            by name.

        Raises:
            Error: The state is one of other estimators, workers or optimizers; or the gradient is
                not finite and non_finite_gradient is "abort".
        """
        state, loss, metrics = _core.single_machine_update(
            self._experiment, state, key, self._threads)
        return state, loss, metrics if with_metrics else {}

    def get_meta_params(self, state: _core.SingleMachineState) -> numpy.ndarray:
        """The theta to judge and to keep, float32 [D], as GradientLearner.get_meta_params."""
        return self._experiment.learner.get_meta_params(state.learner)

    def theta(self, state: _core.SingleMachineState) -> Theta:
        """The same as a Theta, which can be written, evaluated and used. It knows no seed."""
        unknown = {"config": None, "seed": 0}
        return Theta(**self._experiment.theta(state.learner) | unknown)


Task = TypeVar("Task")


def single_task_to_family(task: Task, data_dir: str = "") -> Task:
    """The task itself: every task type of lopt is a family, most of them of a single task.

    Args:
        task: An object, an instance of a task class or a dictionary.
        data_dir: Directory of its data files, if it reads any.

    Raises:
        Error: It is no task, cannot be made, or is a family whose tasks differ.
    """
    if not _core.is_one_task(task, data_dir):
        raise _core.Error(
            f"single_task_to_family: {task!r} is a family already, whose tasks differ; use it as it "
            "is"
        )
    return task
