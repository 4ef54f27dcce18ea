"""Judging learned optimizers, and reports of runs and evaluations."""

from __future__ import annotations

import html
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _core
from .theta import Theta, trained_path
from .training import MetaTraining, require_config_elsewhere

Trained = Theta | MetaTraining | str | os.PathLike


@dataclass(frozen=True)
class Evaluation:
    """What evaluate found.

    Attributes:
        rows: One dict for each task, optimizer and number of steps, over all seeds: "task",
            "optimizer", "steps", "seeds", how many "diverged" or have "blown_up"; "train_loss",
            "test_loss", "mean_train_loss", "train_accuracy" and "test_accuracy" as interquartile
            means {"value", "low", "high"} with their 95 % intervals, None where there is none (no
            accuracy, or as "low" and "high" of fewer than three seeds); the tuned "learning_rate"
            of a baseline, the tuned "step_multiplier" of a learned optimizer and whether that is
            "at_edge" of those tried; "steps_to_adam"; "train_verdict" and "test_verdict" against
            tuned Adam ("better", "worse", "unclear" or, as of fewer than eight seeds, empty);
            whether it is the "best_baseline" of its task and steps, chosen on inner_valid;
            "best_verdict" and "best_p_value" (None where the verdict is empty) of its test loss
            against that one; whether its meta-training has "trained_on" the task, None if that is
            unknown.
        runs: One dict for each training, as a line of results.jsonl; "train_loss" is an array
            float32 [steps], "test_part_loss" one of [steps judged after * parts of the test split].
        markdown: The table of all rows.
        verdict: Whether the best learned optimizer is ahead of the best baseline, in a sentence.
        narrow: What `lopt eval` prints, in 80 columns: the optimizers, best first, and the verdict.
        out: The output directory; empty if nothing was written.
    """

    rows: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    markdown: str
    verdict: str = ""
    narrow: str = ""
    out: str = ""

    def __str__(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        """The table and the verdict of `lopt eval`."""
        return self.narrow.rstrip()

    def _repr_html_(self) -> str:
        def estimate(e: dict[str, float] | None) -> str:
            if e is None:
                return ""
            interval = "" if e["low"] is None else f" [{e['low']:.4g}, {e['high']:.4g}]"
            return f"{e['value']:.4g}{interval}"

        columns = ["task", "optimizer", "steps", "test loss", "train loss", "test accuracy", "verdict"]
        cells = [
            [r["task"], r["optimizer"], f"{r['steps']:,}", estimate(r["test_loss"]),
             estimate(r["train_loss"]), estimate(r["test_accuracy"]), r["test_verdict"]]
            for r in self.rows
        ]  # fmt: skip
        head = "".join(f"<th>{c}</th>" for c in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in cells
        )
        return (
            f"<pre>{html.escape(self.narrow)}</pre><details><summary>All tasks</summary>"
            f"<table><tr>{head}</tr>{body}</table></details>"
        )


def _contender(name: str, trained: Trained) -> tuple[str, Theta, str]:
    """A name for results, the theta, and where it is from."""
    if isinstance(trained, MetaTraining):
        return name or os.path.basename(trained.out) or "theta", trained.theta, trained.theta_path
    if isinstance(trained, Theta):
        own = (trained.config or {}).get("name") or trained.learned_optimizer["type"]
        return name or own, trained, ""
    path = os.path.abspath(trained_path(trained, "evaluate", "trained"))
    directory, stem = os.path.dirname(path), os.path.basename(path).removesuffix(".safetensors")
    return name or (os.path.basename(directory) if stem == "theta" else stem), Theta.read(path), path


def evaluate(
    trained: Trained | Iterable[Trained] | Mapping[str, Trained] = (),
    config: dict[str, Any] | str | os.PathLike = "image-mlp",
    *,
    baselines: str | Iterable[str] = "all",
    start: bool = False,
    unknown_length: bool = False,
    tune_learned: bool = False,
    out: str | os.PathLike | None = None,
    threads: int | None = None,
    isa: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    allow_isa_change: bool = False,
    progress: bool = False,
) -> Evaluation:
    """Trains tasks with learned optimizers and tuned baselines, as `lopt eval` does, and compares.

    The results, wall-clock times left out, are a function of the arguments: for any number of
    threads, and the same as those of the program.

    Args:
        trained: Whom to judge: a Theta, what meta_train returned, "recommended" or another that comes
            with the package, the path of a theta file, run or checkpoint; several of them in a
            list, or by the names that results are to give them.
        config: A dict (describe() has the keys under "Evaluations"), the name of one of
            presets("evaluate"), or the path of a JSON file.
        baselines: "all", "classic", "strong", "untuned", "none", or their names.
        start: Judge every learned optimizer also untrained, with the weights that its seed draws: as
            "NAME-start", and with its steps times 0.3 as "NAME-start-0.3"; not those that do not say
            how they were made.
        unknown_length: Judge every learned optimizer also without telling it the length of the
            training, as "NAME-unknown": by the average of its last steps.
        tune_learned: Judge every learned optimizer a second time, as "NAME-tuned": what its steps are
            multiplied by is tuned for each task with as many trials as a baseline.
        out: Output directory. None: nothing is written.
        threads: None: one for each core that the process may use.
        isa: Instruction set of the kernels, of the whole process from then on. None: the best, or
            what it is already.
        resume: Go on with the evaluation in `out` after its last finished task.
        overwrite: Replace the evaluation that is in `out`.
        allow_isa_change: Resume one of another instruction set; results may differ in last bits.
        progress: Write a line of progress to standard error.

    Raises:
        Error: The config is wrong, there is no optimizer, two have one name, or `out` holds an
            evaluation and neither resume nor overwrite is set. With start, also if no Theta says how
            it was meta-trained.
        KeyboardInterrupt: Ctrl-C ends it after the running steps; what `out` has of finished
            tasks can be gone on with.
    """
    if isinstance(trained, Mapping):
        optimizers = [_contender(name, each) for name, each in trained.items()]
    elif isinstance(trained, (Theta, MetaTraining, str, os.PathLike)):
        optimizers = [_contender("", trained)]
    elif isinstance(trained, Iterable):
        optimizers = [_contender("", each) for each in trained]
    else:
        raise _core.Error(
            "trained must be a Theta, a MetaTraining or a path, several of them in a list, or a "
            f"dict of names and such, got {type(trained).__name__}"
        )
    directory = _core.path_of(out, "out") if out is not None else ""
    require_config_elsewhere(config, directory)

    def tell(task: str, stage: str, number: int, tasks: int, done: float) -> None:
        if progress:
            line = f"{task} ({number} of {tasks}): {stage}, {done:.0%} done"
            sys.stderr.write(f"\r{line:<78}")
            sys.stderr.flush()

    names = baselines if isinstance(baselines, str) else ",".join(map(str, baselines))
    try:
        members = _core.evaluate(
            config, optimizers, names, start, unknown_length, tune_learned, directory, threads, isa, resume,
            overwrite, allow_isa_change, tell,
        )
    finally:
        if progress:
            sys.stderr.write("\n")
    return Evaluation(**members, out=directory)


@dataclass(frozen=True)
class Report:
    """A report on disk: one HTML page that needs no other file. Notebooks show it."""

    path: str

    def _repr_html_(self) -> str:
        with open(self.path, encoding="utf-8") as page:
            text = html.escape(page.read())
        return f'<iframe srcdoc="{text}" style="width: 100%; height: 40em; border: 0"></iframe>'


def report(
    directories: str | os.PathLike | Iterable[str | os.PathLike],
    out: str | os.PathLike | None = None,
) -> Report:
    """Writes one HTML page of runs and evaluations, as `lopt report` does.

    Args:
        directories: Output directories of meta_train and evaluate, or of the program.
        out: The page. None: report.html in the directory, or here if there are several.

    Raises:
        Error: A directory holds nothing to report.
    """
    if isinstance(directories, (str, os.PathLike)):
        directories = [directories]
    path, damage = _core.write_report(
        [_core.path_of(directory, "a directory") for directory in directories],
        _core.path_of(out, "out") if out is not None else "",
    )
    for text in damage:
        warnings.warn(text, stacklevel=2)
    return Report(path)
