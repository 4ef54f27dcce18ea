"""Fitting a learned optimizer to a task."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _core
from ._component import Component
from ._tasks import register_task
from .theta import Theta, trained_path


@dataclass(frozen=True)
class Fit:
    """What fit found.

    Attributes:
        theta: The optimizer with the lowest loss on inner_valid; the start if nothing was better.
        take: Whether, with every seed, its loss on data that fitting never saw is lower than that
            of the best other.
        verdict: The same in a sentence.
        judged: One dict for each optimizer of the comparison: "optimizer" (the new
            one is "fitted"), "test_loss" of each seed, "mean_test_loss", the "trials" that tuned
            it, what they chose ("tuned", by option), and "seconds" for fitting or tuning and its
            trainings.
        updates: How many updates of theta meta-training made.
        seconds: How many seconds fitting took.
        report: The table and the verdict.
        out: The output directory.
    """

    theta: Theta
    take: bool
    verdict: str
    judged: list[dict[str, Any]]
    updates: int
    seconds: float
    report: str
    out: str

    def __str__(self) -> str:
        return self.report


def _bar(phase: str, done: float, seconds_left: float | None) -> str:
    left = "" if seconds_left is None else f"  {seconds_left:,.0f} s left"
    return f"{phase:<26}  [{'=' * int(20 * done):<20}] {done:>4.0%}{left}"


def _task_of(
    loss: Callable[..., object],
    init: Callable[..., object] | None,
    data: object,
    batch_size: int | None,
) -> Component:
    """A task of a loss, without a class of one's own."""
    if init is None:
        raise _core.Error(
            f"fit: a loss wants init=, a function of a lopt.Key that returns its params, got {loss!r} alone"
        )
    if (data is None) != (batch_size is None):
        raise _core.Error("fit: data and batch_size go together: batches are so many rows of the data")
    members: dict[str, Any] = {
        "__doc__": "A loss that was given to lopt.fit.",
        "init": staticmethod(init),
        "loss": staticmethod(loss),
    }
    if data is not None:
        members |= {"data": staticmethod(lambda: data), "batch_size": batch_size}
    # A name of its own, by which a resume finds this loss or none.
    name = f"LossOfFit_{secrets.token_hex(4)}"
    return register_task(name, type(name, (), members | {"__module__": __name__}))()


def fit(
    task: Component | dict[str, Any] | Callable[..., object] | None = None,
    *,
    init: Callable[..., object] | None = None,
    data: object = None,
    batch_size: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    start: Theta | str | os.PathLike | None = None,
    updates: int | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    data_dir: str | os.PathLike | None = None,
    out: str | os.PathLike = "runs/fit",
    threads: int | None = None,
    isa: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    on_progress: Callable[[str, float, float | None], object] | None = None,
) -> Fit:
    """Fits a learned optimizer to a task and says whether to take it, as `lopt fit` does.

    It tries other step sizes, directions, decays and momenta, meta-trains on shorter trainings if there
    is time, and keeps what is best on inner_valid. Then it tunes AdamW, Muon and a random search, each
    for as long as fitting took. It compares these, the start and the fitted optimizer on the split test,
    which fitting never saw.

    With updates and trials the result is a function of the arguments, bit for bit on one instruction
    set, and the same as that of the program.

    Args:
        task: A task of lopt or your own (lopt.task), as an object or its dictionary; or a loss in
            torch, loss(params, batch) as lopt.task has it. To resume, leave out the task and all
            arguments up to data_dir: they are those that the fit began with. A loss can be resumed
            in the same process alone.
        init: Of a loss: init(key) returns its initial params, a dict of arrays.
        data: Of a loss: the rows of its data, as the data() of lopt.task returns them, of which 70,
            10, 10 and 10 % are the splits. None: it takes no batch.
        batch_size: Of a loss with data: rows of a batch.
        minutes: Time for everything, a quarter of it for fitting. None: 10, or no limit if updates
            and trials are given.
        steps: Steps of a training, at least 20. None: 1000.
        start: The optimizer to begin with, a LearnedScheduler: a Theta, or what lopt.load takes.
            None: "recommended".
        updates: Updates of theta, whatever time they take. None: as many as there is time for.
        trials: Trainings that tune each rival, whatever time they take; fitting makes as many, but at
            least 25 if it tries five kinds, before its updates. None: for as long as fitting took.
        seeds: Trainings of each optimizer in the comparison, at least 3. None: 3.
        seed: Seed of all randomness. None: 0.
        data_dir: Directory of the task's data files, if it reads any.
        out: Output directory. Its theta.safetensors is always the best so far.
        threads: None: one for each core that the process may use.
        isa: Instruction set of the kernels, of the whole process from then on. None: the best, or
            what it is already.
        resume: Go on with the fit in `out`.
        overwrite: Replace the fit that is in `out`.
        progress: Write a bar with the time left to standard error.
        on_progress: Called with the phase, the share that is done and the seconds left, if known.

    Raises:
        Error: An argument is wrong, the time is too short, or `out` holds a fit and neither resume
            nor overwrite is set.
        KeyboardInterrupt: Ctrl-C ends it after the running steps; resume=True goes on.
    """
    if (task is None) != resume:
        raise _core.Error("fit: wanted a task, or resume=True without one")
    begun_with = {"init": init, "data": data, "batch_size": batch_size, "minutes": minutes,
                  "steps": steps, "start": start, "updates": updates, "trials": trials,
                  "seeds": seeds, "seed": seed, "data_dir": data_dir}  # fmt: skip
    given = [name for name, value in begun_with.items() if value is not None]
    if resume and given:
        raise _core.Error(
            f"fit: resume=True goes on with what the fit began with; without {', '.join(given)}"
        )
    if callable(task) and not isinstance(task, type) and not hasattr(task, "__lopt_config__"):
        task = _task_of(task, init, data, batch_size)
    elif any(given is not None for given in (init, data, batch_size)):
        raise _core.Error(
            "fit: init, data and batch_size are about a loss; a task has its own, and this is "
            + (f"the class {task.__name__}" if isinstance(task, type) else f"{task!r}")
        )
    if start is None:
        start = "recommended"
    if isinstance(start, Theta):
        name, theta = "start", start
    else:
        path = trained_path(start, "fit", "start")
        name, theta = ("start" if path == os.fspath(start) else os.fspath(start)), Theta.read(path)
    directory = _core.path_of(out, "out")

    def tell(phase: str, done: float, seconds_left: float | None) -> None:
        if progress:
            sys.stderr.write(f"\r{_bar(phase, done, seconds_left):<78}")
            sys.stderr.flush()
        if on_progress is not None:
            on_progress(phase, done, seconds_left)

    try:
        members = _core.fit(
            task, theta, name, steps, minutes, updates, trials, seeds, seed,
            _core.path_of(data_dir, "data_dir") if data_dir else "", directory, threads, isa, resume,
            overwrite, tell,
        )
    finally:
        if progress:
            sys.stderr.write("\n")
    return Fit(**members | {"theta": Theta(**members["theta"]), "out": directory})
