"""Meta-training in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import _core
from ._curve import notebook_display
from .callbacks import Callback, Curve, Progress, of_function
from .theta import Theta


@dataclass(frozen=True)
class MetaTraining:
    """What meta_train did.

    Attributes:
        theta: The weights after the last update.
        updates: Of theta, made by this call.
        seconds: That they took.
        skipped_updates: Of all updates of the run, without effect: the gradient was not finite.
        totals: Inner steps, those of them with a loss that was not finite, and episodes that ended,
            since the start of the run: {"<index>_<task>": {"inner_steps": ..., "non_finite": ...,
            "episodes_ended": ...}}.
        out: The output directory; empty if nothing was written.
    """

    theta: Theta
    updates: int
    seconds: float
    skipped_updates: int
    totals: dict[str, dict[str, int]]
    out: str = ""

    @property
    def theta_path(self) -> str:
        """The theta file; empty if nothing was written."""
        return os.path.join(self.out, "theta.safetensors") if self.out else ""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{name}</td><td>{t['inner_steps']:,}</td>"
            f"<td>{t['episodes_ended']:,}</td><td>{t['non_finite']:,}</td></tr>"
            for name, t in self.totals.items()
        )
        return (
            f"<p>{self.updates:,} updates in {self.seconds:.1f} s</p><table><tr><th>estimator</th>"
            "<th>inner steps</th><th>episodes</th><th>losses not finite</th></tr>"
            f"{rows}</table>{self.theta._repr_html_()}"
        )


def _check_given_once(config: object, key: str, name: str, value: int | None) -> None:
    """Raises Error if a dict of the caller's and the argument `name` say different things."""
    if value is not None and isinstance(config, dict) and config.get(key, value) != value:
        raise _core.Error(
            f"meta_train: {name}={value!r}, but the config has {key!r}: {config[key]!r}; give one of "
            "the two"
        )


def require_config_elsewhere(config: object, directory: str) -> None:
    """Raises Error if a config is the file of its own directory that a run there would replace."""
    if not directory or not isinstance(config, (str, os.PathLike)):
        return
    own = os.path.join(directory, "config.json")
    if not (os.path.exists(own) and os.path.exists(config) and os.path.samefile(config, own)):
        return
    if not any(os.path.exists(os.path.join(directory, n)) for n in ("manifest.json", "checkpoints")):
        raise _core.Error(f"out: {directory} holds the config file itself, which would be replaced; "
                          "choose another directory")


def meta_train(
    config: dict[str, Any] | str | os.PathLike | None = None,
    *,
    out: str | os.PathLike | None = None,
    steps: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    isa: str | None = None,
    device: str | None = None,
    resume: bool = False,
    from_step: int | None = None,
    overwrite: bool = False,
    allow_isa_change: bool = False,
    callbacks: Iterable[Callback | Callable[[int, dict[str, float]], None]] = (),
    progress: bool | None = None,
    _train: Callable[..., dict[str, Any]] = _core.meta_train,
) -> MetaTraining:
    """Meta-trains a learned optimizer in this process, as `lopt meta-train` does.

    The weights are a function of the config alone, bit for bit on one instruction set: for any
    number of threads, across stop and resume, and the same as those of the program.

    Ctrl-C (KeyboardInterrupt) ends the run after the current update; with an output directory there
    is a checkpoint then, from which resume=True goes on. So does what a callback raises. Either
    comes out of this call.

    Args:
        config: A dict with the keys that describe() explains, the name of a preset, or the path of
            a JSON file. May be left out on resume: it is then that of the output directory.
        out: Output directory: config, metrics, checkpoints, weights. None: nothing is written.
        steps: Updates of theta in total, the config's meta_steps. It takes the place of that of a
            preset, a file or the run that is resumed.
        seed: The config's seed, likewise.
        threads: None: one for each core that the process may use.
        isa: Instruction set of the kernels, of the whole process from then on. None: the config's,
            or the best, or what it is already.
        device: What runs the windows: "cpu", "cuda", "cuda:<n>" or "emulated". None: the config's.
        resume: Go on from the newest checkpoint in `out`, to more `steps` if these are given.
        from_step: With resume: go on from the checkpoint of this many updates, and remove what came
            after.
        overwrite: Remove the run that is in `out`, and begin anew.
        allow_isa_change: Resume a run of another instruction set or device; results may differ in last
            bits.
        callbacks: Functions of (step, metrics), or Callbacks.
        progress: Write a line of progress to standard error or, in a notebook, draw the curve of
            meta-losses as it grows. None: in a notebook alone.

    Raises:
        Error: The config is wrong, or a dict that says otherwise than steps or seed; `out` holds a
            run and neither resume nor overwrite is set; or something cannot be read or written.
    """
    _check_given_once(config, "meta_steps", "steps", steps)
    _check_given_once(config, "seed", "seed", seed)
    directory = _core.path_of(out, "out") if out is not None else ""
    require_config_elsewhere(config, directory)
    if config is None:
        if not (resume and directory):
            raise _core.Error(
                "What to train is missing: a config, or resume=True with out, the directory of a run"
            )
        path = os.path.join(directory, "config.json")
        if not os.path.exists(path):
            raise _core.Error(f"cannot resume: {directory} holds no run")
        config = _core.load_run_config(path)
    arguments = {"meta_steps": steps, "seed": seed, "isa": isa, "device": device}
    given = {key: value for key, value in arguments.items() if value is not None}
    resolved = _core.resolve(_core.load_config(config) | given if given else config)
    listeners = [c if isinstance(c, Callback) else of_function(c) for c in callbacks]
    if notebook_display() is not None:
        if progress is not False and not any(isinstance(c, Curve) for c in listeners):
            listeners.append(Curve())
    elif progress:
        listeners.append(Progress())

    def on_metrics(step: int, metrics: dict[str, float]) -> None:
        for listener in listeners:
            listener.on_metrics(step, metrics)

    for listener in listeners:
        listener.on_start(resolved)
    members = _train(
        resolved, directory, threads, resume, from_step, overwrite, allow_isa_change, on_metrics
    )
    training = MetaTraining(**members | {"theta": Theta(**members["theta"]), "out": directory})
    for listener in listeners:
        listener.on_end(training)
    return training
