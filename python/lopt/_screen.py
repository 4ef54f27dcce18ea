"""An evaluation on one screen: the verdicts, then the optimizers, best first."""

from __future__ import annotations

import math
from typing import Any

LINES, COLUMNS = 24, 80
_VERDICTS = 4  # lines of them
_NAME = 20  # columns of an optimizer's name
_TASK = 14  # of a task's

Row = dict[str, Any]


def _short(name: str, columns: int) -> str:
    name = " ".join(name.split())
    return name if len(name) <= columns else name[: columns - 1] + "…"


def _loss(row: Row) -> float:
    value = row["test_loss"]["value"]
    return math.inf if math.isnan(value) else value


class _Optimizer:
    """One of them over all tasks, each with one number of steps: a section."""

    def __init__(self, name: str, rows: list[Row], everyone: list[Row]) -> None:
        self.name = _short(name, _NAME)
        self.ours = all(row["learning_rate"] is None for row in rows)
        self.losses = {(row["task"], row["steps"]): _loss(row) for row in rows}
        places = [
            1 + sum(_loss(other) < loss for other in everyone
                    if (other["task"], other["steps"]) == section)
            for section, loss in self.losses.items()
        ]
        self.place = sum(places) / len(places)
        self._rows = rows

    def count(self, key: str, verdict: str) -> int:
        return sum(row[key] == verdict for row in self._rows)

    def verdict(self, key: str, against: str, of: int) -> str:
        judged = sum(bool(row[key]) for row in self._rows)
        if judged == 0:
            return f"{self.name}: place {self.place:.3g} of {of} by test loss, without a verdict"
        better, worse = self.count(key, "better"), self.count(key, "worse")
        if len(self._rows) == 1:
            how = "better than" if better else "worse than" if worse else "unclear against"
            return f"{self.name}: {how} {against}"
        return f"{self.name}: better than {against} on {better} of {judged} tasks, worse on {worse}"


def _table(lines: list[list[str]]) -> list[str]:
    """Its columns, all but the second to the right, as many as fit."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return [
        "  ".join(f"{cell:<{width}}" if c == 1 else f"{cell:>{width}}"
                  for c, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]


def _fitting(columns: list[list[str]], room: int) -> list[list[str]]:
    fitting = []
    for column in columns:
        room -= 2 + max(map(len, column))
        if room < 0:
            break
        fitting.append(column)
    return fitting


def one_screen(rows: list[Row]) -> str:
    """At most LINES lines of at most COLUMNS columns about the rows of an evaluation."""
    if not rows:
        return "<lopt.Evaluation without results>"
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["optimizer"], []).append(row)
    optimizers = sorted((_Optimizer(name, own, rows) for name, own in by_name.items()),
                        key=lambda optimizer: optimizer.place)
    sections = list(dict.fromkeys((row["task"], row["steps"]) for row in rows))
    ours = [optimizer for optimizer in optimizers if optimizer.ours]

    # Tuned Adam is one of the baselines, so that the best one says more where it is known.
    has_best = any(row["best_verdict"] for row in rows)
    key, against = (("best_verdict", "the best baseline") if has_best
                    else ("test_verdict", "tuned Adam"))
    text = [optimizer.verdict(key, against, len(optimizers)) for optimizer in ours[:_VERDICTS]]
    if len(ours) > _VERDICTS:
        text.append(f"and {len(ours) - _VERDICTS} more learned optimizers")
    if not ours:
        text.append(f"{optimizers[0].name} is the best of {len(optimizers)}, all baselines")
    seeds = "/".join(map(str, sorted({row["seeds"] for row in rows})))
    text += ["", f"Test losses, {seeds} seeds; > marks learned optimizers"]

    room = LINES - len(text) - 2  # beside the header and the last line
    best = sorted(optimizers, key=lambda optimizer: not optimizer.ours)[:room]
    shown = [optimizer for optimizer in optimizers if optimizer in best]

    def verdicts(optimizer: _Optimizer) -> str:
        words = ("better", "worse", "unclear")
        if len(sections) == 1:
            return next((word for word in words if optimizer.count(key, word)), "")
        return f"{optimizer.count(key, 'better')}/{optimizer.count(key, 'worse')}"

    lengths = {task: sum(task == other for other, _ in sections) for task, _ in sections}
    columns = [
        ["", *(">" if optimizer.ours else "" for optimizer in shown)],
        ["optimizer", *(optimizer.name for optimizer in shown)],
        ["place", *(f"{optimizer.place:.3g}" for optimizer in shown)],
        ["vs. " + ("best" if has_best else "Adam") if len(sections) == 1 else "better/worse",
         *map(verdicts, shown)],
    ]
    losses = [
        [_short(task, _TASK) if lengths[task] == 1
         else f"{_short(task, _TASK - len(str(steps)) - 1)}@{steps}",
         *(f"{optimizer.losses.get((task, steps), math.nan):.4g}" for optimizer in shown)]
        for task, steps in sections
    ]
    taken = sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)
    fitting = _fitting(losses, COLUMNS - taken)
    text += _table([list(line) for line in zip(*columns, *fitting)])
    left = [f"{number} more {what}{'s' if number > 1 else ''}" for number, what in (
        (len(optimizers) - len(shown), "optimizer"), (len(losses) - len(fitting), "task")) if number]
    more = f", also of {' and '.join(left)}" if left else ""
    return "\n".join([*text, f"print(...) shows all figures{more}"])
