"""Tests of the trainings of benchmarks/user_models as tasks of lopt, and of the table of their fits."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import lopt

try:
    import torch
except ImportError:
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.user_models import fit, fitted_task, training  # noqa: E402


class Dropping(training.Task):
    """A model with dropout, on 40 rows."""

    steps, batch_size = 40, 8

    def make(self, seed):
        numbers = torch.Generator().manual_seed(seed)
        self.data = [torch.randn(40, 3, generator=numbers), torch.arange(40) % 2]
        self.test = [part[:20] for part in self.data]
        self.model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(3, 2))


class Acting(Dropping):
    """Batches that the model makes."""

    def batch(self):
        return [self.model(torch.zeros(1, 3))]


class Drawing(Dropping):
    """Numbers of rows, and noise beside them."""

    def make(self, seed):
        super().make(seed)
        self.data = [torch.arange(40.0)]

    def batch(self):
        return [*super().batch(), torch.randn(2, generator=self.draws)]


class Constant(Dropping):
    """All of 40 numbers in each step."""

    def batch(self):
        return [torch.arange(40.0)]


class Shared(Dropping):
    """A matrix that two layers share."""

    def make(self, seed):
        super().make(seed)
        first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        second.weight = first.weight
        self.model = torch.nn.Sequential(first, second)


def with_tasks(**tasks):
    return mock.patch.dict(fitted_task.TASKS, tasks)


class Tasks(unittest.TestCase):
    def test_a_task_on_rows_has_the_loss_and_the_gradients_of_its_training(self):
        with with_tasks(shared=Shared):
            for name in ("table-regression", "embeddings", "fine-tuning", "shared"):
                with self.subTest(task=name):
                    task = fitted_task.fitted_task(name)
                    params = {key: value.requires_grad_()
                              for key, value in task.init(lopt.Key(3)).items()}
                    batch = [part[:8] for part in task.data()]
                    loss = task.loss(params, batch, "train")
                    found = torch.autograd.grad(loss, list(params.values()))
                    own = fitted_task.TASKS[name](0)
                    own.model.load_state_dict(params, strict=False)
                    wanted = own.loss(*batch[:-1])
                    self.assertEqual(float(loss), float(wanted))
                    named = dict(own.model.named_parameters())
                    self.assertEqual(list(named), list(params))
                    for one, other in zip(found, torch.autograd.grad(wanted, list(named.values()))):
                        self.assertTrue(torch.equal(one, other))

    def test_the_key_draws_the_start_and_not_the_data(self):
        task = fitted_task.fitted_task("table-regression")
        first, again, other = (task.init(lopt.Key(seed)) for seed in (1, 1, 2))
        for name in first:
            self.assertTrue(torch.equal(first[name], again[name]))
            self.assertFalse(torch.equal(first[name], other[name]))
        self.assertTrue(torch.equal(task.data()[0], fitted_task.TASKS["table-regression"](0).data[0]))

    def test_a_task_that_draws_batches_is_judged_by_its_own_test_loss(self):
        task = fitted_task.fitted_task("poisson")
        params = task.init(lopt.Key(0))
        batch = [part[0] for part in task.batch(lopt.Keys([lopt.Key(5)]), "train")]
        own = fitted_task.TASKS["poisson"](0)
        own.model.load_state_dict(params)
        self.assertEqual(float(task.loss(params, batch, "test")), float(own.test_loss()))
        for split in ("train", "inner_valid"):
            self.assertEqual(float(task.loss(params, batch, split)), float(own.loss(*batch[:-1])))

    def test_rows_of_drawn_or_constant_batches_are_held_out(self):
        with with_tasks(drawing=Drawing, constant=Constant):
            tasks = {name: fitted_task.fitted_task(name) for name in ("drawing", "constant")}
        for name, task in tasks.items():
            seen = {}
            for split in ("train", "inner_valid", "outer_valid"):
                drawn = [task.batch(lopt.Keys([lopt.Key(i)]), split)[0] for i in range(40)]
                seen[split] = set(torch.stack(drawn).flatten().int().tolist())
            with self.subTest(task=name):
                self.assertEqual(sum(map(len, seen.values())), 40)
                self.assertEqual(set.union(*seen.values()), set(range(40)))
                self.assertEqual(len(seen["train"]), 32)

    def test_what_a_model_draws_is_a_function_of_the_batch(self):
        with with_tasks(dropping=Dropping):
            task = fitted_task.fitted_task("dropping")
            params = task.init(lopt.Key(0))
        first, second = ([part[rows] for part in task.data()] for rows in (slice(8), slice(8, 16)))
        loss = float(task.loss(params, first, "train"))
        task.loss(params, second, "train")
        self.assertEqual(float(task.loss(params, first, "train")), loss)
        moved = [*first[:-1], first[-1] + 1]
        self.assertNotEqual(float(task.loss(params, moved, "train")), loss)
        self.assertEqual(float(task.loss(params, moved, "test")),
                         float(task.loss(params, first, "test")))

    def test_what_cannot_be_a_task_says_why(self):
        with self.assertRaisesRegex(lopt.Error, "residual-net: BatchNorm2d keeps running statistics"):
            fitted_task.fitted_task("residual-net")
        with with_tasks(acting=Acting):
            with self.assertRaisesRegex(lopt.Error, "acting: its batches depend on what the model"):
                fitted_task.fitted_task("acting")


class Table(unittest.TestCase):
    def test_the_best_of_the_others_is_that_of_the_lowest_mean_loss(self):
        judged = [{"optimizer": name, "mean_test_loss": loss}
                  for name, loss in (("fitted", 2.0), ("recommended", 4.0), ("AdamW", 2.5))]
        self.assertEqual(fit.compared(judged), (2.0, 2.5, "AdamW"))
        # Where nothing was fitted the start is what one gets.
        self.assertEqual(fit.compared(judged[1:]), (4.0, 2.5, "AdamW"))

    def test_the_summary_counts_what_is_better_and_names_what_is_worse(self):
        self.assertEqual(
            fit.summary({"a": 0.5, "b": 1.04, "c": 2.0, "d": 1.0}),
            "Lower than the best of the others on 1 of 4, geometric mean 1.01; more than 5 % higher "
            "on c.")

    def test_the_program_prints_a_line_for_each_and_goes_on_with_what_has_ended(self):
        with tempfile.TemporaryDirectory() as directory:
            words = ["--tasks", "fine-tuning", "residual-net", "--trials", "2", "--steps", "20",
                     "--out", os.path.join(directory, "fits")]
            texts = []
            for _ in range(2):
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    fit.main(words)
                texts.append(output.getvalue())
            with mock.patch.object(fit.versions, "version_of_task", lambda task: "another"):
                with self.assertRaisesRegex(SystemExit, "a fit of another version of fine-tuning: "
                                            "[^ ]*version.txt must have [0-9a-f]{12}, got "):
                    with contextlib.redirect_stdout(io.StringIO()):
                        fit.main(words)
        self.assertEqual(texts[0], texts[1])
        lines = texts[0].splitlines()
        self.assertRegex(lines[1], r"^fine-tuning +\d\S* +\d\S* \S+ +\d\.\d\d (take it|do not) +\d+$")
        self.assertLessEqual(max(map(len, lines[:2])), 80)
        self.assertRegex(lines[2], "^Lower than the best of the others on [01] of 1, ")
        self.assertTrue(lines[3].startswith("Left out: residual-net: BatchNorm2d"))


if __name__ == "__main__":
    unittest.main()
