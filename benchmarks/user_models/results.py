"""The file of finished trainings, and the table that is made of it."""

import fcntl
import json
import math
import os
import statistics

KEY = ("task", "task_version", "optimizer", "optimizer_version", "lr", "seed", "steps", "torch")
LAST = 5  # parts of a curve whose mean is its last loss


class Store:
    """A file with one JSON line for each finished training.

    A line is written at once and brought to the disk, so that a kill leaves whole lines; a part of
    one at the end is cut off. A training whose line is there is not made again. Lines of other
    versions of tasks and optimizers stay in the file and are not used.
    """

    def __init__(self, path):
        """Raises SystemExit if the file cannot be read or another process has it open."""
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self.path, self.lines = path, {}
        self.file = open(path, "a+b", buffering=0)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self):
        path = self.path
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"user_models: another process works on {path}") from None
        self.file.seek(0)
        content = self.file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self.file.truncate(len(whole))
        for number, text in enumerate(whole.splitlines(), 1):
            try:
                line = json.loads(text)
                self.lines[self._key(line)] = line
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"user_models: line {number} of {path} is no finished training: "
                                 f"{error}") from None

    @staticmethod
    def _key(cell):
        return tuple(cell[name] for name in KEY)

    def get(self, cell):
        """The line of a cell (a dictionary with KEY); None if it is not there."""
        return self.lines.get(self._key(cell))

    def add(self, cell, result):
        """Writes the line of a finished training."""
        line = {**cell, **result}
        self.file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        os.fsync(self.file.fileno())
        self.lines[self._key(cell)] = line

    def close(self):
        self.file.close()


def test_loss(line):
    """Of a line; infinite where the training diverged."""
    return math.inf if line["test_loss"] is None else line["test_loss"]


def geometric_mean(numbers):
    """Of numbers above 0, of which some may be infinite."""
    numbers = list(numbers)
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def _smooth(curve):
    """The mean of the last LAST parts at each part from the LAST-th on, or of the whole curve."""
    width = min(LAST, len(curve))
    return [sum(curve[i - width:i]) / width for i in range(width, len(curve) + 1)]


def share_of_steps(line, adam):
    """The share of its steps after which a training's loss is no higher than Adam's last one;
    infinite if it never is."""
    if line["curve"] is None or adam["curve"] is None:
        return math.inf
    goal = _smooth(adam["curve"])[-1]
    smooth = _smooth(line["curve"])
    parts = len(line["curve"])
    for part, loss in enumerate(smooth, parts - len(smooth) + 1):
        if loss <= goal:
            return part / parts
    return math.inf


def ratio(lines, adam_lines):
    """The geometric mean over seeds of test losses beside tuned Adam's of the same seeds. Infinite
    if a training diverged; None if Adam's did."""
    if any(line["test_loss"] is None for line in adam_lines):
        return None
    return geometric_mean(test_loss(line) / test_loss(adam)
                          for line, adam in zip(lines, adam_lines))


def signed_rank(differences):
    """The p-value, two-sided and exact, of Wilcoxon's signed-rank test (1945) that differences lie
    evenly around 0. Zeros are left out; equal sizes share the mean of their ranks. 1 if none is
    left.
    """
    rest = sorted((d for d in differences if d), key=abs)
    sizes = [abs(d) for d in rest]
    # Ranks times two, which are whole numbers also where some are shared.
    ranks = [2 * sizes.index(size) + sizes.count(size) + 1 for size in sizes]
    ways = [1] + [0] * sum(ranks)  # of signs, by the sum of the ranks that are positive
    for rank in ranks:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    positive = sum(rank for rank, d in zip(ranks, rest) if d > 0)
    tail = min(sum(ways[: positive + 1]), sum(ways[positive:]))
    return min(1.0, 2 * tail / 2 ** len(ranks))


def holm(p_values):
    """The p-values of several tests, corrected for their number (Holm 1979): below alpha are those
    that stay significant if the chance of any false one is to be at most alpha."""
    corrected, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for place, i in enumerate(order):
        largest = max(largest, (len(p_values) - place) * p_values[i])
        corrected[i] = min(1.0, largest)
    return corrected


def _difference(lines, others):
    """Of the logarithms of two optimizers' mean test losses on a task; 0 if both diverged."""
    own, other = (geometric_mean(map(test_loss, each)) for each in (lines, others))
    return 0.0 if own == other else math.log(own) - math.log(other)


def _number(x):
    if x is None:
        return "-"
    if math.isinf(x):
        return "diverged"
    return f"{x:.2f}" if 0.095 <= x < 99.5 else f"{x:.2g}" if x < 1 else f"{x:.0f}"


def _mean_cell(ratios):
    """The geometric mean of ratios, and of how many if some diverged."""
    finite = [r for r in ratios if r is not None and math.isfinite(r)]
    if not finite:
        return "diverged" if math.inf in ratios else "-"
    missing = len(finite) < len(ratios)
    return _number(geometric_mean(finite)) + (f" ({len(finite)})" if missing else "")


def _row(cells):
    return "| " + " | ".join(cells) + " |"


class Table:
    """What is printed of judged trainings.

    judged: {optimizer: {mode: {task: lines}}}, where a mode is one of MODES and the lines are in
    the order of seeds; adam: {task: lines} of tuned Adam; apart: tasks that no mean counts; edges:
    (optimizer, task) whose tuned rate is the lowest or highest of the trials; rates: {optimizer:
    lr} of the mode fixed; against: the optimizer that all others are compared with, in the first of
    its modes; no_curve: tasks whose curve does not count; basis: names of the tasks that the fixed
    rates were chosen on, where that was not the whole development half.
    """

    MODES = ("untuned", "fixed", "tuned")

    def __init__(self, judged, adam, apart, edges=(), rates=None, against=None, no_curve=(),
                 basis=()):
        self.judged, self.adam = judged, adam
        self.apart, self.edges, self.rates = apart, set(edges), rates or {}
        self.against, self.no_curve, self.basis = against, no_curve, basis

    def ratios(self, optimizer, mode, apart=False):
        """{task: ratio} of the tasks that are set apart, or of the others."""
        return {task: ratio(lines, self.adam[task])
                for task, lines in self.judged[optimizer].get(mode, {}).items()
                if (task in self.apart) == apart}

    def _in_modes(self, cell, optimizer):
        """cell(optimizer, mode) for each mode that there is, with slashes."""
        return " / ".join(cell(optimizer, mode) if mode in self.judged[optimizer] else "-"
                          for mode in self.MODES)

    def _mean(self, optimizer, mode):
        if mode not in self.judged[optimizer]:
            return "-"
        rate = ""
        if mode == "fixed":
            rate = f", lr {self.rates[optimizer]:g}"
            if self.basis:
                rate += f" of {', '.join(self.basis)}"
        return _mean_cell(list(self.ratios(optimizer, mode).values())) + rate

    def _worst(self, optimizer, mode):
        ratios = [r for r in self.ratios(optimizer, mode).values() if r is not None]
        return _number(max(ratios)) if ratios else "-"

    def _mean_apart(self, optimizer, mode):
        return _mean_cell(list(self.ratios(optimizer, mode, apart=True).values()))

    def _pairs(self, optimizer, mode, without=()):
        """Each line with Adam's of the same task and seed."""
        return [pair for task, lines in self.judged[optimizer][mode].items()
                if task not in without for pair in zip(lines, self.adam[task])]

    def _steps(self, optimizer, mode):
        shares = [share_of_steps(line, adam)
                  for line, adam in self._pairs(optimizer, mode, self.no_curve)]
        if not shares:
            return "-"
        middle = statistics.median_high(shares)
        reached = sum(map(math.isfinite, shares))
        share = f"{100 * middle:.0f} %" if math.isfinite(middle) else "never"
        return f"{share} ({reached})"

    def _diverged(self, optimizer, mode):
        return str(sum(line["test_loss"] is None for line, _ in self._pairs(optimizer, mode)))

    def _per_step(self, optimizer, what):
        """The geometric mean of a quantity of each step beside Adam's, over all trainings but those
        that diverged in their first steps, which take longer than others; None if there is none.
        """
        pairs = [pair for mode in self.judged[optimizer] for pair in self._pairs(optimizer, mode)
                 if not any(line["test_loss"] is None and line["made"] < 2 for line in pair)]
        return geometric_mean(max(line[what], 1e-3) / max(adam[what], 1e-3)
                              for line, adam in pairs) if pairs else None

    def _state(self, optimizer):
        lines = [line for mode in self.judged[optimizer]
                 for line, _ in self._pairs(optimizer, mode) if line["made"]]
        return f"{max((line['state'] for line in lines), default=0):.1f}"

    def _summary(self):
        yield _row(["optimizer", *self.MODES, "worst", "physics", "steps to Adam's loss",
                    "diverged", "optimizer's time", "whole step's", "state"])
        yield "|" + "---|" * 11
        for name in self.judged:
            means = [self._mean(name, mode) for mode in self.MODES]
            yield _row([name, *means, self._in_modes(self._worst, name),
                        self._in_modes(self._mean_apart, name),
                        self._in_modes(self._steps, name), self._in_modes(self._diverged, name),
                        _number(self._per_step(name, "optimizer_us")),
                        _number(self._per_step(name, "step_us")), self._state(name)])

    def _of_task(self, task, optimizer):
        def cell(name, mode):
            lines = self.judged[name][mode].get(task)
            if lines is None:
                return "-"
            mark = "*" if mode == "tuned" and (name, task) in self.edges else ""
            return _number(ratio(lines, self.adam[task])) + mark

        return self._in_modes(cell, optimizer)

    def _tasks(self):
        yield _row(["task", "Adam's test loss", *self.judged])
        yield "|" + "---|" * (2 + len(self.judged))
        for task, lines in self.adam.items():
            losses = [test_loss(line) for line in lines]
            mark = "*" if ("Adam", task) in self.edges else ""
            yield _row([task, f"{sum(losses) / len(losses):.3g}{mark}",
                        *[self._of_task(task, name) for name in self.judged]])

    def _own(self):
        """The optimizer that others are compared with, and the first of its modes."""
        return self.against, next(mode for mode in self.MODES if mode in self.judged[self.against])

    def comparisons(self):
        """[(optimizer, mode, tasks with a lower loss of `against`, with a higher one, p-value after
        Holm's correction)] of all others and tuned Adam: signed-rank tests over the tasks, as
        Benavoli et al. 2016 advise ("Should we really use post-hoc tests based on mean-ranks?").
        """
        judged = {(name, mode): tasks for name, modes in self.judged.items()
                  for mode, tasks in modes.items()}
        judged.setdefault(("Adam", "tuned"), self.adam)
        own = judged.pop(self._own())
        counts, p_values = [], []
        for other, tasks in judged.items():
            differences = [_difference(own[task], tasks[task]) for task in self.adam]
            counts.append((*other, sum(d < 0 for d in differences),
                           sum(d > 0 for d in differences)))
            p_values.append(signed_rank(differences))
        return [(*count, p) for count, p in zip(counts, holm(p_values))]

    def _against(self):
        name, mode = self._own()
        yield _row([f"{name}, {mode}, against", "mode", "lower loss", "higher loss",
                    "p (signed ranks, Holm)"])
        yield "|" + "---|" * 5
        for name, mode, lower, higher, p in self.comparisons():
            yield _row([name, mode, str(lower), str(higher), f"{p:.2g}"])

    def text(self):
        """The table in Markdown: one row for each optimizer, one for each task, then one for each
        comparison with `against`."""
        parts = [self._summary(), self._tasks(), *([self._against()] if self.against else [])]
        return "\n\n".join("\n".join(part) for part in parts) + "\n"
