#!/usr/bin/env python3
"""Fits lopt to each training of a half and says whether that was worth it, in one table.

    python3 benchmarks/user_models/fit.py --half development --minutes 4

It needs the package lopt. Each fit has a directory in --out; the same command goes on after a kill,
and only prints what has ended.
"""

import argparse
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import lopt  # noqa: E402

from benchmarks.user_models import (  # noqa: E402
    development_half, fitted_task, results, test_half, versions)

HALVES = {"development": development_half.TASKS, "test": test_half.TASKS}
NEAR = 1.05  # a loss that is larger by more than this is worse
_COLUMNS = "{:<20} {:>8} {:>8} {:<18} {:>5} {:<7} {:>7}"


def arguments(words):
    """The command line's, checked."""
    parser = argparse.ArgumentParser(prog="fit.py", description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--half", choices=HALVES, help="Whose trainings are fitted.")
    which.add_argument("--tasks", nargs="+", metavar="TASK", choices=fitted_task.TASKS,
                       help="These, of either half: " + ", ".join(fitted_task.TASKS))
    parser.add_argument("--minutes", type=float, help="Time for each of them.")
    parser.add_argument("--trials", type=int,
                        help="Trainings that tune each rival, in place of time: as many as fitting "
                        "makes, which does not meta-train then.")
    parser.add_argument("--seeds", type=int, default=3, help="Judged trainings (3).")
    parser.add_argument("--steps", type=int, help="Train for at most so many steps, to try things.")
    parser.add_argument("--threads", type=int, default=1, help="Of each fit (1).")
    parser.add_argument("--out", default="runs/user_models_fit",
                        help="Directory of the fits (runs/user_models_fit).")
    args = parser.parse_args(words)
    if (args.minutes is None) == (args.trials is None):
        parser.error("one of --minutes and --trials is wanted")
    return args


def version_of(name):
    """Of a training and of what makes it a task of lopt."""
    code = versions.code_of(pathlib.Path(fitted_task.__file__).read_text(encoding="utf-8"))
    return versions.digest(versions.version_of_task(fitted_task.TASKS[name]), code)


def run_fit(name, args):
    """The Fit of a training, begun, resumed or read. Ends the program if there is one of other
    options, or of a training that has changed since."""
    out = pathlib.Path(args.out) / name
    record, version_file = out / "fit.json", out / "version.txt"
    version = version_of(name)
    task = fitted_task.fitted_task(name)
    how = {"minutes": args.minutes} if args.trials is None else {
        "trials": args.trials, "updates": 0}
    steps = fitted_task.TASKS[name].steps
    asked = {"steps": steps if args.steps is None else min(steps, args.steps),
             "seeds": args.seeds, **how}
    if record.exists() and "measured" in (found := json.loads(record.read_text(encoding="utf-8"))):
        begun = {option: found["request"].get(option)
                 for option in ("steps", "seeds", "minutes", "trials")}
        wanted = {option: asked.get(option) for option in begun}
        if begun != wanted:
            sys.exit(f"fit.py: {out} holds a fit of {begun}; wanted {wanted}: give another --out")
        fitted = version_file.read_text(encoding="utf-8").strip() if version_file.exists() else "none"
        if fitted != version:
            sys.exit(f"fit.py: {out} holds a fit of another version of {name}: {version_file} must "
                     f"have {version}, got {fitted}: give another --out")
        return lopt.fit(resume=True, out=out, threads=args.threads, progress=sys.stderr.isatty())
    out.mkdir(parents=True, exist_ok=True)
    version_file.write_text(version + "\n", encoding="utf-8")
    return lopt.fit(task, threads=args.threads, out=out, progress=sys.stderr.isatty(), **asked)


def compared(judged):
    """(loss of what a fit keeps, best of the others, its name): what was fitted, or else the start,
    which is the first. A loss is infinite where a training diverged."""
    loss = {row["optimizer"]: row["mean_test_loss"] for row in judged}
    own = "fitted" if "fitted" in loss else next(iter(loss))
    others = {name: value for name, value in loss.items() if name != own}
    best = min(others, key=others.get)
    return loss[own], others[best], best


def ratio(own, other):
    """Of two losses: 1 for equal ones, also where both are 0 or infinite."""
    return 1.0 if own == other else own / other if other else math.inf


def summary(ratios):
    """What the ratios of all fits come to, in a sentence."""
    better = sum(ratio < 1 for ratio in ratios.values())
    worse = [name for name, ratio in ratios.items() if ratio > NEAR]
    mean = results.geometric_mean(ratios.values()) if all(ratios.values()) else 0.0
    return (f"Lower than the best of the others on {better} of {len(ratios)}, geometric mean "
            f"{mean:.2f}; more than 5 % higher on {', '.join(worse) or 'none'}.")


def main(words=None):
    args = arguments(words)
    ratios = {}
    left_out = []
    print(_COLUMNS.format("training", "fit", "other", "the best other", "ratio", "verdict", "seconds"))
    for name in args.tasks or HALVES[args.half]:
        try:
            fitted_task.rows_of(name)
        except lopt.Error as error:
            left_out.append(str(error))
            continue
        fit = run_fit(name, args)
        own, other, which = compared(fit.judged)
        ratios[name] = ratio(own, other)
        # That of what was fitted has the time for fitting.
        seconds = sum(row["seconds"] for row in fit.judged)
        if fit.judged[0]["optimizer"] != "fitted":
            seconds += fit.seconds
        print(_COLUMNS.format(name, f"{own:.3g}", f"{other:.3g}", which, f"{ratios[name]:.2f}",
                              "take it" if fit.take else "do not", f"{seconds:,.0f}"), flush=True)
    if ratios:
        print(summary(ratios))
    for reason in left_out:
        print("Left out:", reason)


if __name__ == "__main__":
    main()
