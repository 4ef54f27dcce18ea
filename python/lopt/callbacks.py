"""Callbacks of meta_train: what is told of a run while it goes.

A callback is a function of (step, metrics) or a Callback.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from ._core import Error
from ._curve import curves_svg, notebook_display


class Callback:
    """What meta_train tells. What a method raises ends the run, in order, and comes out of it."""

    def on_start(self, config: dict[str, Any]) -> None:
        """Called with the resolved config before the first update."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Called with each record of metrics.jsonl: every `metrics_steps` updates.

        Args:
            step: Updates that the measured theta had.
            metrics: Numbers by name: meta_loss, gradient_norm, learning_rate, meta_loss/<index>_<task>
                and so on, NaN where there is none.
        """

    def on_end(self, training: Any) -> None:
        """Called with the MetaTraining after the last update, if the run was not interrupted."""


def _total_updates(config: dict[str, Any]) -> int:
    """Those that a config asks for: of meta-training, or of lopt train, whose runs lopt.offline
    tells too; 0 if it does not say."""
    return config.get("meta_steps", config.get("steps", 0))


class Progress(Callback):
    """Writes a line of progress that is rewritten in place, a few times a second."""

    def __init__(self, stream: TextIO | None = None):
        """The stream is standard error if none is given."""
        self._stream = stream or sys.stderr
        self._updates = 0
        self._first: int | None = None
        self._start = self._told = 0.0

    def on_start(self, config: dict[str, Any]) -> None:
        self._updates = _total_updates(config)
        self._first, self._start, self._told = None, time.monotonic(), 0.0

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        if self._first is None:
            self._first = step
        now = time.monotonic()
        if "meta_loss" not in metrics or (now - self._told < 0.2 and step + 1 < self._updates):
            return
        self._told = now
        rate = (step + 1 - self._first) / max(now - self._start, 1e-9)
        line = f"{step + 1}/{self._updates}  {rate:.3g} updates/s  loss {metrics['meta_loss']:.4g}"
        self._stream.write(f"\r{line:<60}")
        self._stream.flush()

    def on_end(self, training: Any) -> None:
        self._stream.write("\n")


class Curve(Callback):
    """A picture of meta-losses, each run a line: the losses faintly, their running mean boldly.

    A notebook shows it from the start of a run and redraws it in place; there, meta_train makes one
    by itself. Elsewhere nothing is shown, but write() makes a file.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[str, list[int], list[float]]] = []
        self._end = 0
        self._shown: Any = None  # IPython's handle of what it shows
        self._drawn = 0.0

    def on_start(self, config: dict[str, Any]) -> None:
        """Begins a line; `config` may say how long it will be (meta_steps, steps), and its seed."""
        self._runs.append((f"seed {config.get('seed', len(self._runs))}", [], []))
        self._end = max(self._end, _total_updates(config))
        self._draw()

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Adds the point of metrics["meta_loss"], if that is there."""
        if not self._runs:
            raise Error("lopt.callbacks.Curve: on_start comes before on_metrics")
        if "meta_loss" not in metrics:
            return
        _, steps, losses = self._runs[-1]
        steps.append(step)
        losses.append(float(metrics["meta_loss"]))
        if time.monotonic() - self._drawn > 0.5:
            self._draw()

    def on_end(self, training: Any) -> None:
        """Draws the last points."""
        self._draw()

    def svg(self) -> str:
        """The picture."""
        return curves_svg(self._runs, self._end, "updates of theta", "meta-loss")

    def write(self, path: str | os.PathLike) -> None:
        """Writes the picture to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg())

    def _repr_html_(self) -> str:
        return self.svg()

    def _draw(self) -> None:
        display = notebook_display()
        if display is None:
            return
        if self._shown is None:
            self._shown = display(self, display_id=True)
        else:
            self._shown.update(self)
        self._drawn = time.monotonic()


def hyperparameters(config: Any, path: str = "") -> dict[str, bool | int | float | str]:
    """A config as flat names and values, as loggers want them: "estimators.0.std"."""
    if isinstance(config, (dict, list)):
        items = config.items() if isinstance(config, dict) else enumerate(config)
        flat: dict[str, bool | int | float | str] = {}
        for key, value in items:
            flat |= hyperparameters(value, f"{path}.{key}" if path else str(key))
        return flat
    return {path: "" if config is None else config}


class TensorBoard(Callback):
    """Writes scalars and, at the end, hparams with a SummaryWriter.

    Runs with an output directory write scalars by themselves; this is for a writer of one's own
    (torch.utils.tensorboard.SummaryWriter, tensorboardX.SummaryWriter).
    """

    def __init__(self, writer: Any):
        """`writer` has add_scalar(name, value, step) and add_hparams(hparams, metrics)."""
        self._writer = writer
        self._config: dict[str, Any] = {}
        self._last: dict[str, float] = {}

    def on_start(self, config: dict[str, Any]) -> None:
        self._config = config

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self._last |= metrics
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def on_end(self, training: Any) -> None:
        final = {f"final/{name}": value for name, value in self._last.items()}
        self._writer.add_hparams(hyperparameters(self._config), final)


class WandB(Callback):
    """Logs to a run of Weights & Biases (what wandb.init returns), or to anything like it."""

    def __init__(self, run: Any):
        """`run` has log(metrics, step=...), a `config` with update(dict), and a dict `summary`."""
        self._run = run

    def on_start(self, config: dict[str, Any]) -> None:
        self._run.config.update(hyperparameters(config))

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log(metrics, step=step)

    def on_end(self, training: Any) -> None:
        self._run.summary["updates"] = training.theta.meta_steps
        self._run.summary["theta"] = training.theta_path


def of_function(function: Callable[[int, dict[str, float]], None]) -> Callback:
    """The callback that calls a function of (step, metrics)."""
    if not callable(function):
        raise Error(
            "a callback must be a function of (step, metrics) or a lopt.Callback, got "
            + type(function).__name__
        )
    callback = Callback()
    callback.on_metrics = function  # type: ignore[method-assign]
    return callback
