"""The metrics of a run for other tools, made from its directory without a network.

    python -m lopt.offline RUN_DIRECTORY --csv metrics.csv
    python -m lopt.offline RUN_DIRECTORY --wandb DIRECTORY
    wandb sync DIRECTORY/wandb/offline-run-*      # from where there is a network

It takes runs of lopt meta-train and lopt train, running or finished.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from ._core import Error
from .callbacks import Callback, WandB

__all__ = ["tell", "to_csv", "to_wandb"]

_log = logging.getLogger("lopt.offline")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}; wanted the directory of a run") from error


def _records(directory: Path) -> list[tuple[int, dict[str, float]]]:
    """Steps and numbers. What stands behind the last end of a line is not whole yet.

    Lines that are no records, as a full disk leaves them, are left out with a warning.
    """
    path = directory / "metrics.jsonl"
    records = []
    for number, line in enumerate(_read(path).split("\n")[:-1], start=1):
        try:
            record = json.loads(line)
            step = int(record.pop("step"))
            numbers = {name: float(value) for name, value in record.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            _log.warning(
                "%s, line %d: wanted a record of a step and numbers, got %r; it is left out",
                path, number, line[:60],
            )
            continue
        records.append((step, numbers))
    return records


def tell(directory: str | os.PathLike, callback: Callback) -> None:
    """Tells a callback of the run in a directory: on_start, then on_metrics for each record.

    Raises:
        Error: There is no run.
    """
    run = Path(directory)
    _tell(run, _records(run), callback)


def _tell(run: Path, records: list[tuple[int, dict[str, float]]], callback: Callback) -> None:
    path = run / "config.json"
    try:
        config = json.loads(_read(path))
    except ValueError as error:
        raise Error(f"{path} is damaged: {error}") from error
    callback.on_start(config)
    for step, metrics in records:
        callback.on_metrics(step, metrics)


def to_csv(directory: str | os.PathLike, path: str | os.PathLike) -> None:
    """Writes a row for each record, with columns step and all metrics. "nan" is not a number;
    a cell is empty if the record lacks the metric.

    Raises:
        Error: There is no run.
    """
    rows = [{"step": step} | metrics for step, metrics in _records(Path(directory))]
    columns = dict.fromkeys(name for row in rows for name in row)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def to_wandb(directory: str | os.PathLike, out: str | os.PathLike, project: str = "lopt") -> None:
    """Writes an offline run of Weights & Biases, named after the directory, into `out`/wandb.

    Raises:
        Error: There is no run, or no package wandb.
    """
    try:
        import wandb
    except ImportError as error:
        raise Error("an offline run needs wandb, which is not installed here: pip install wandb") from error
    run = Path(directory)
    records = _records(run)  # first of all: there may be none
    os.makedirs(out, exist_ok=True)
    target: Any = wandb.init(mode="offline", dir=os.fspath(out), project=project, name=run.resolve().name)
    try:
        _tell(run, records, WandB(target))
    finally:
        target.finish()


def main(arguments: list[str] | None = None) -> int:
    """The command line of `python -m lopt.offline`; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lopt.offline",
        description="Writes the metrics of a run for other tools, without a network.",
    )
    parser.add_argument("run_directory", help="that of --out")
    parser.add_argument("--csv", metavar="FILE", help="a table: a row for each record")
    parser.add_argument(
        "--wandb",
        metavar="DIR",
        help="an offline run of Weights & Biases in DIR/wandb, for `wandb sync`",
    )
    parser.add_argument("--project", default="lopt", help="of the run of Weights & Biases (lopt)")
    given = parser.parse_args(arguments)
    if not (given.csv or given.wandb):
        parser.error("nothing to write: give --csv FILE or --wandb DIR")
    try:
        if given.csv:
            to_csv(given.run_directory, given.csv)
        if given.wandb:
            to_wandb(given.run_directory, given.wandb, given.project)
    except (Error, OSError) as error:
        print(f"lopt.offline: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
