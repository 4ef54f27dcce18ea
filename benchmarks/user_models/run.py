#!/usr/bin/env python3
"""Trains models as users have them with optimizers, and prints how they compare with tuned Adam.

    python3 benchmarks/user_models/run.py --half development recommended AdamW-cosine

Finished trainings are in --results, one JSON line each. The same command goes on after a kill, and
a larger one (more optimizers, seeds, tasks or trials) makes only what is missing.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import threading

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.user_models import (  # noqa: E402
    development_half, optimizers, results, test_half, training, versions)

TASKS = {**development_half.TASKS, **test_half.TASKS}
HALVES = {"development": development_half.TASKS, "test": test_half.TASKS, "both": TASKS}
FIRST_TUNING_SEED = 1000  # judged seeds are 0, 1, ...


def arguments(words):
    """The command line's, checked."""
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__.splitlines()[0],
        epilog="Optimizers are " + ", ".join(optimizers.names()) + ", or NAME=WHAT: "
        "module:callable?key=value, file.py:callable?key=value, theta.safetensors?lr=0.3.")
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER",
                        help="Judged in all three ways.")
    parser.add_argument("--untuned", nargs="+", default=[], metavar="OPTIMIZER",
                        help="Judged with its own learning rate.")
    parser.add_argument("--fixed", nargs="+", default=[], metavar="OPTIMIZER",
                        help="Judged with one rate for all tasks, the best on the development "
                        "half's tuning seeds; with --tasks, on those of the half among them, "
                        "which the table then names.")
    parser.add_argument("--tuned", nargs="+", default=[], metavar="OPTIMIZER",
                        help="Judged with the best rate for each task on the tuning seeds.")
    parser.add_argument("--against", metavar="NAME",
                        help="Compare all others with this one, over all tasks.")
    parser.add_argument("--half", choices=HALVES, help="Whose tasks are trained.")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="TASK",
                        help="These tasks, of either half: " + ", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="Judged trainings of each task (3).")
    parser.add_argument("--trials", type=int, default=7,
                        help="Learning rates that are tried, in equal ratios (7).")
    parser.add_argument("--tuning-seeds", type=int, default=1,
                        help="Trainings of each trial, none with a judged seed (1).")
    parser.add_argument("--steps", type=int, default=0,
                        help="Train for at most so many steps, to try things.")
    parser.add_argument("--jobs", type=int, default=1,
                        help="Trainings at a time, on a thread each (1). Times of steps are best "
                        "measured with one.")
    parser.add_argument("--results", default="runs/user_models.jsonl",
                        help="File of finished trainings (runs/user_models.jsonl).")
    args = parser.parse_args(words)
    for name in ("seeds", "trials", "tuning_seeds", "jobs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got "
                         f"{getattr(args, name)}")
    unknown = [name for name in args.tasks if name not in TASKS]
    if unknown:
        parser.error(f"there is no task {', '.join(unknown)}; valid are {', '.join(TASKS)}")
    if bool(args.half) == bool(args.tasks):
        parser.error("one of --half development, --half test, --half both and --tasks is wanted")
    if not (args.optimizers or args.untuned or args.fixed or args.tuned):
        parser.error("at least one optimizer is wanted")
    return args


def train_one(cell, word):
    """The training of a cell, in this process or another. Raises SystemExit if this process has
    other code or weights than the cell: files may change during a run."""
    task, choice = TASKS[cell["task"]], optimizers.choose(word)
    for what, wanted, got in (
            (cell["task"], cell["task_version"], versions.version_of_task(task)),
            (choice.name, cell["optimizer_version"], choice.version)):
        if got != wanted:
            raise SystemExit(f"user_models: {what} has changed since the run began: version "
                             f"{wanted} wanted, got {got}. The same command trains it anew")
    return training.train(
        task, lambda params, num_steps: choice.make(params, num_steps, cell["lr"]), cell["seed"],
        cell["steps"])


def _end_with_parent():
    """A process that trains ends with the one that waits for it, even if that was killed."""
    def wait():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def rates_of(choice, trials):
    """The learning rates that are tried."""
    low, high = choice.rates
    if trials == 1:
        return [choice.lr]
    return [float(f"{low * (high / low) ** (i / (trials - 1)):.4g}") for i in range(trials)]


class Benchmark:
    """The trainings that a command line asks for."""

    def __init__(self, args, store):
        self.args, self.store = args, store
        self.tasks = args.tasks or list(HALVES[args.half])
        # What a rate for all tasks is chosen on; the table names it if it is less than the half.
        asked = [task for task in self.tasks if task in HALVES["development"]]
        self.basis = asked or list(HALVES["development"])
        self.seeds = list(range(args.seeds))
        self.tuning_seeds = [FIRST_TUNING_SEED + i for i in range(args.tuning_seeds)]
        self.modes = {}  # of each optimizer that is there, by its word
        left_out = []
        for mode, words in (("untuned", args.untuned), ("fixed", args.fixed),
                            ("tuned", args.tuned)):
            for word in args.optimizers + words:
                if optimizers.missing(word):
                    left_out.append(optimizers.missing(word))
                elif mode not in self.modes.setdefault(word, []):
                    self.modes[word].append(mode)
        for reason in dict.fromkeys(left_out):
            print(reason, file=sys.stderr)
        self.choices = {word: optimizers.choose(word) for word in ["Adam", *self.modes]}
        names = [self.choices[word].name for word in self.modes]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SystemExit(f"user_models: two optimizers are called {twice[0]}")
        if "Adam" in names and "Adam" not in self.modes:
            raise SystemExit("user_models: tuned Adam is in every table; call an optimizer of your "
                             "own something else")
        if args.against and args.against not in names:
            raise SystemExit(f"user_models: --against must be an optimizer of this run, got "
                             f"{args.against}; valid are {', '.join(names)}")

    def cell(self, word, task, lr, seed):
        """What names a training, with what makes it."""
        choice = self.choices[word]
        steps = TASKS[task].steps
        if self.args.steps:
            steps = min(steps, self.args.steps)
        return {"task": task, "task_version": versions.version_of_task(TASKS[task]),
                "optimizer": choice.name, "optimizer_version": choice.version, "lr": lr,
                "seed": seed, "steps": steps, "torch": torch.__version__, "word": word}

    def trials(self, word, task):
        """{rate: cells} of the tuning seeds."""
        return {lr: [self.cell(word, task, lr, seed) for seed in self.tuning_seeds]
                for lr in rates_of(self.choices[word], self.args.trials)}

    def tuning_losses(self, word, task):
        """{rate: mean test loss on the tuning seeds}; infinite where one diverged."""
        return {lr: sum(results.test_loss(self.store.get(cell)) for cell in cells) / len(cells)
                for lr, cells in self.trials(word, task).items()}

    def tuned_rate(self, word, task):
        losses = self.tuning_losses(word, task)
        return min(losses, key=losses.get)

    def counted_basis(self):
        """The tasks that a rate for all is chosen on: those that are set apart do not count."""
        return [task for task in self.basis if not TASKS[task].apart] or self.basis

    def fixed_rate(self, word):
        """The rate that is best for all the tasks of the basis, beside tuned Adam on the same seeds
        and tasks."""
        totals = {}
        for task in self.counted_basis():
            adam = min(self.tuning_losses("Adam", task).values())
            for lr, loss in self.tuning_losses(word, task).items():
                totals.setdefault(lr, []).append(loss / adam)
        means = {lr: results.geometric_mean(ratios) for lr, ratios in totals.items()}
        return min(means, key=means.get)

    def judged(self, word, mode, task):
        """The cells of a judged optimizer, in the order of seeds; its trials must be finished."""
        lr = {"untuned": lambda: self.choices[word].lr, "fixed": lambda: self.fixed_rate(word),
              "tuned": lambda: self.tuned_rate(word, task)}[mode]()
        return [self.cell(word, task, lr, seed) for seed in self.seeds]

    def first_cells(self):
        """All that must be trained before rates can be chosen, and the untuned trainings."""
        fixed = [word for word, modes in self.modes.items() if "fixed" in modes]
        tuned = [word for word, modes in self.modes.items() if "tuned" in modes]
        for task in dict.fromkeys(self.tasks + (self.basis if fixed else [])):
            here = dict.fromkeys(["Adam", *(tuned if task in self.tasks else []),
                                  *(fixed if task in self.basis else [])])
            for word in here:
                for cells in self.trials(word, task).values():
                    yield from cells
        for word, modes in self.modes.items():
            if "untuned" in modes:
                for task in self.tasks:
                    yield from self.judged(word, "untuned", task)

    def last_cells(self):
        """The judged trainings with chosen rates, and Adam's."""
        for task in self.tasks:
            yield from self.judged("Adam", "tuned", task)
            for word, modes in self.modes.items():
                for mode in modes:
                    yield from self.judged(word, mode, task)

    def _finished(self, cell, result):
        self.store.add(cell, result)
        loss = result["test_loss"]
        print(f"{cell['task']}, {cell['optimizer']}, lr {cell['lr']:g}, seed {cell['seed']}: "
              + ("diverged" if loss is None else f"{loss:.4g}"), file=sys.stderr, flush=True)

    def train(self, cells):
        """Makes the trainings that are missing."""
        missing = {}
        for cell in cells:
            word = cell.pop("word")
            if self.store.get(cell) is None:
                missing[tuple(cell.values())] = cell, word
        if self.args.jobs == 1:
            for cell, word in missing.values():
                self._finished(cell, train_one(cell, word))
            return
        with concurrent.futures.ProcessPoolExecutor(
                self.args.jobs, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
            running = {pool.submit(train_one, cell, word): cell for cell, word in missing.values()}
            try:
                for future in concurrent.futures.as_completed(running):
                    self._finished(running[future], future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def table(self):
        """The Table, of trainings that are all finished."""
        def lines(cells):
            return [self.store.get(cell) for cell in cells]

        judged = {self.choices[word].name:
                  {mode: {task: lines(self.judged(word, mode, task)) for task in self.tasks}
                   for mode in modes} for word, modes in self.modes.items()}
        edges = []
        for word in dict.fromkeys(["Adam", *self.modes]):
            if word == "Adam" or "tuned" in self.modes[word]:
                rates = rates_of(self.choices[word], self.args.trials)
                edges += [(self.choices[word].name, task) for task in self.tasks
                          if self.args.trials > 1
                          and self.tuned_rate(word, task) in (rates[0], rates[-1])]
        fixed = {self.choices[word].name: self.fixed_rate(word)
                 for word, modes in self.modes.items() if "fixed" in modes}
        basis = self.counted_basis() if set(self.basis) != set(HALVES["development"]) else []
        return results.Table(judged, {task: lines(self.judged("Adam", "tuned", task))
                                      for task in self.tasks},
                             [task for task in self.tasks if TASKS[task].apart], edges, fixed,
                             self.args.against,
                             [task for task in self.tasks if not TASKS[task].curve_counts], basis)


def main(words=None):
    args = arguments(words)
    store = results.Store(args.results)
    try:
        benchmark = Benchmark(args, store)
        benchmark.train(benchmark.first_cells())
        benchmark.train(benchmark.last_cells())
        print(benchmark.table().text(), end="")
    except KeyboardInterrupt:
        print(f"Stopped; {args.results} has what is finished, and the same command goes on.",
              file=sys.stderr)
        return 75
    finally:
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
