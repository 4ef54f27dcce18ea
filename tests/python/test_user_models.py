"""Tests of benchmarks/user_models: its tasks, its optimizers, its file of results and its table."""

import contextlib
import io
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.user_models import (  # noqa: E402
    data, optimizers, results, run, training, versions)

RECOMMENDED = ROOT / "trained/recommended.safetensors"


def adam(lr):
    return lambda params, num_steps: torch.optim.Adam(params, lr=lr)


class Tasks(unittest.TestCase):
    def test_adam_lowers_the_loss_of_each_in_few_steps(self):
        for name, task in run.TASKS.items():
            with self.subTest(task=name):
                if task.apart:  # the error of the solution may grow at first
                    curve = training.train(task, adam(0.01), 0, steps=100)["curve"]
                    self.assertLess(sum(curve[-20:]), 0.9 * sum(curve[:20]))
                else:
                    before = training.train(task, adam(1e-9), 0, steps=1)
                    after = training.train(task, adam(0.01), 0, steps=25)
                    self.assertLess(after["test_loss"], 0.99 * before["test_loss"])

    def test_a_seed_fixes_all_bits(self):
        for name, task in run.TASKS.items():
            with self.subTest(task=name):
                first, again, other = (
                    training.train(task, adam(0.003), seed, steps=2) for seed in (1, 1, 2))
                for key in ("test_loss", "curve"):
                    self.assertEqual(first[key], again[key])
                    self.assertNotEqual(first[key], other[key])

    def test_the_halves_are_alike_and_share_no_task(self):
        development, test = run.HALVES["development"], run.HALVES["test"]
        self.assertEqual(len(run.TASKS), len(development) + len(test))
        self.assertEqual(len(development), len(test))
        for half in (development, test):
            self.assertEqual(sum(task.apart for task in half.values()), 1)
        for task in run.TASKS.values():
            self.assertTrue(40 <= task.steps <= 3000 and task.kind, task)

    def test_held_out_text_is_not_trained_on(self):
        kept, held_out = data.text_windows(data.MAIL_TEXT, 40, 0)
        self.assertGreater(len(held_out), 250)
        rows = set(map(tuple, kept.tolist()))
        shared = sum(tuple(row) in rows for row in held_out.tolist())
        self.assertLess(shared, 0.01 * len(held_out))  # a window of blanks, say
        self.assertLess(int(kept.max()), 128)

    def test_the_solutions_solve_their_equations(self):
        x = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64)[:, None]
        h = 1e-4
        task = run.TASKS["poisson"](3)
        task.weights = task.weights.double()
        with mock.patch("torch.rand", lambda *shape, generator: (x + 1) / 2):
            f = task.batch()[1]
        second = (task.solution(x + h) - 2 * task.solution(x) + task.solution(x - h)) / h ** 2
        self.assertLess((second[:, 0] - f).abs().max(), 1e-3)
        task = run.TASKS["heat"](3)
        task.weights = task.weights.double()
        t = torch.full_like(x, 0.3)
        u_xx = (task.solution(x + h, t) - 2 * task.solution(x, t)
                + task.solution(x - h, t)) / h ** 2
        u_t = (task.solution(x, t + h) - task.solution(x, t - h)) / (2 * h)
        self.assertLess((u_t - 0.1 * u_xx).abs().max(), 1e-4)
        self.assertLess(task.solution(x / x, t).abs().max(), 1e-5)

    def test_a_pole_that_nobody_holds_falls(self):
        from benchmarks.user_models.test_half import CartPole

        world = CartPole(20, torch.Generator().manual_seed(0))
        costs = torch.stack([world.push(torch.ones(20)) for _ in range(100)])
        self.assertTrue((costs[-1] == 1).all())
        self.assertTrue((costs[0] < 0.5).all())
        self.assertTrue((costs[1:][costs[:-1] == 1] == 1).all())  # who has fallen stays so,
        end = world.state
        world.push(torch.zeros(20))
        self.assertTrue(world.state.equal(end))  # and where they are
        # From rest, upright: the acceleration of the cart and of the pole by hand.
        world = CartPole(1, torch.Generator().manual_seed(0))
        world.state = torch.zeros(1, 4)
        with mock.patch("torch.randn", lambda *shape, generator: torch.zeros(shape)):
            world.push(torch.ones(1))
        turn = -(10 / 1.1) / (0.5 * (4 / 3 - 0.1 / 1.1))
        wanted = [0, 0.02 * (10 / 1.1 - 0.05 * turn / 1.1), 0, 0.02 * turn]
        for got, expected in zip(world.state[0].tolist(), wanted):
            self.assertAlmostEqual(got, expected, 5)


class Twice(torch.optim.SGD):
    """Calls its closure twice, as some do."""

    def step(self, closure):
        closure()
        return super().step(closure)


class Blunt(torch.optim.SGD):
    """Takes no closure, and sees weights that are not its own while it is judged."""

    def step(self):
        return super().step()

    def train(self):
        self.modes = ["train"]

    def eval(self):
        self.modes.append("eval")


class Strict(torch.optim.SGD):
    """Refuses gradients that are not finite, and says so in words of its own."""

    def step(self, closure):
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if not p.grad.isfinite().all():
                    raise RuntimeError("no such gradients")
                p.data.sub_(p.grad, alpha=group["lr"])
        return loss


class Root(training.Task):
    """A finite loss whose gradient is not."""

    steps = 5

    def make(self, seed):
        self.model = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(self.model.weight)

    def batch(self):
        return []

    def loss(self):
        return self.model.weight.square().sum().sqrt() + 1

    def test_loss(self):
        return self.loss()


class Training(unittest.TestCase):
    task = run.TASKS["logistic-regression"]

    def test_who_stands_still_does_not_reach_the_training_loss_of_adam(self):
        for name in ("logistic-regression", "table-classification", "batch-4"):
            with self.subTest(task=name):
                trained, still = (training.train(run.TASKS[name], adam(lr), 0, 40)
                                  for lr in (0.01, 0.0))
                self.assertEqual(results.share_of_steps(still, trained), math.inf)
        self.assertEqual([name for name, task in run.TASKS.items() if not task.curve_counts],
                         ["policy-gradient"])

    def test_closures_and_plain_steps_are_the_same(self):
        plain = training.train(self.task, lambda p, n: torch.optim.SGD(p, lr=0.1), 0, 5)
        made = []

        def blunt(params, num_steps):
            made.append(Blunt(params, lr=0.1))
            return made[0]

        for make in (lambda p, n: Twice(p, lr=0.1), blunt):
            got = training.train(self.task, make, 0, 5)
            self.assertEqual(got["test_loss"], plain["test_loss"])
            self.assertEqual(got["curve"], plain["curve"])
        self.assertEqual(made[0].modes, ["train", "eval"])

    def test_what_is_not_finite_is_a_diverged_training(self):
        for make in (lambda p, n: torch.optim.SGD(p, lr=1e38), lambda p, n: Strict(p, lr=1e38)):
            got = training.train(self.task, make, 0, 5)
            self.assertIsNone(got["test_loss"])
            self.assertIsNone(got["curve"])
            self.assertLess(got["made"], 5)
        got = training.train(Root, lambda p, n: Strict(p, lr=0.1), 0)
        self.assertIsNone(got["test_loss"])

    def test_other_errors_of_an_optimizer_end_the_run(self):
        def make(params, num_steps):
            optimizer = torch.optim.SGD(params, lr=0.1)
            optimizer.step = mock.Mock(side_effect=RuntimeError("a bug"))
            return optimizer

        with self.assertRaisesRegex(RuntimeError, "a bug"), mock.patch(
                "inspect.signature", lambda step: mock.Mock(parameters=["closure"])):
            training.train(self.task, make, 0, 5)

    def test_a_test_loss_that_is_not_above_0_is_an_error(self):
        with mock.patch.object(Root, "test_loss", lambda self: -1.0), mock.patch.object(
                Root, "loss", lambda self: self.model.weight.square().sum()):
            with self.assertRaisesRegex(ValueError, "Root: a test loss must be above 0, got -1.0"):
                training.train(Root, lambda p, n: torch.optim.SGD(p, lr=0.1), 0)

    def test_curves_and_states_are_counted(self):
        self.assertEqual(training._curve([4.0, 2.0, 1.0]), [4.0, 2.0, 1.0])
        self.assertEqual(training._curve(list(range(200)))[:2], [0.5, 2.5])
        got = training.train(self.task, adam(0.01), 0, 2)
        self.assertEqual((got["state"], got["params"], got["made"]), (2.0, 246, 2))


class Optimizers(unittest.TestCase):
    def make(self, word, params, num_steps=10, lr=None):
        choice = optimizers.choose(word)
        return choice.make(params, num_steps, lr or choice.lr)

    def test_the_cosine_falls_to_0(self):
        p = torch.zeros(1, requires_grad=True)
        optimizer = self.make("AdamW-cosine", [p], num_steps=4, lr=0.1)
        rates = []
        for _ in range(4):
            p.grad = torch.ones(1)
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
        for got, wanted in zip(rates, [0.1, 0.1 * (2 + math.sqrt(2)) / 4, 0.05,
                                       0.1 * (2 - math.sqrt(2)) / 4]):
            self.assertAlmostEqual(got, wanted)

    def test_muon_makes_singular_values_nearly_1(self):
        generator = torch.Generator().manual_seed(0)
        for shape in ((6, 20), (20, 6)):
            values = torch.linalg.svdvals(optimizers.orthogonal(
                torch.randn(shape, generator=generator)))
            self.assertTrue(((0.6 < values) & (values < 1.3)).all(), values)
        # Of rank one, by hand: the iteration runs on the one singular value, and the step of 4
        # rows and 1 column is sqrt(4) times as large.
        value = 1.0
        for _ in range(5):
            value = 3.4445 * value - 4.7750 * value ** 3 + 2.0315 * value ** 5
        matrix, vector = (torch.zeros(n, requires_grad=True) for n in ((4, 1), (3,)))
        optimizer = self.make("Muon", [matrix, vector], lr=0.5)
        matrix.grad, vector.grad = torch.full((4, 1), 7.0), torch.ones(3)
        optimizer.step()
        torch.testing.assert_close(matrix.detach(), torch.full((4, 1), -0.5 * 2 * value / 2),
                                   rtol=1e-4, atol=0)
        torch.testing.assert_close(vector.detach(), torch.full((3,), -0.05), rtol=1e-4, atol=0)
        self.assertEqual(training._state_numbers(optimizer), 4 + 2 * 3)

    def test_torch_muon_is_there_where_torch_has_it(self):
        if not hasattr(torch.optim, "Muon"):
            self.assertRegex(optimizers.missing("torch-Muon"), "left out: PyTorch .* has no torch")
        with mock.patch.object(torch.optim, "Muon", torch.optim.SGD, create=True):
            self.assertEqual(optimizers.missing("torch-Muon"), "")
            matrix, vector = (torch.zeros(n, requires_grad=True) for n in ((2, 2), (3,)))
            optimizer = self.make("torch-Muon", [matrix, vector], lr=0.5)
            matrix.grad, vector.grad = torch.ones(2, 2), torch.ones(3)
            optimizer.step()
        self.assertEqual(matrix.detach().tolist(), [[-0.5, -0.5], [-0.5, -0.5]])
        self.assertAlmostEqual(vector[0].item(), -0.05, 5)

    def test_theta_files_are_stepped_by_the_one_file_optimizer(self):
        lopt_optimizer = optimizers._load(str(ROOT / "python/lopt_optimizer.py"), "it")
        ends = []
        for make in (
                lambda p: self.make("recommended", p),
                lambda p: self.make(f"mine={RECOMMENDED}?lr=0.5", p),
                lambda p: lopt_optimizer.LearnedOptimizer.from_file(RECOMMENDED, p, num_steps=10),
                lambda p: lopt_optimizer.LearnedOptimizer.from_file(RECOMMENDED, p, num_steps=10,
                                                                    lr=0.5)):
            p = torch.ones(3, 2, requires_grad=True)
            p.grad = torch.arange(6.0).view(3, 2)
            make([p]).step()
            ends.append(p.detach())
        self.assertTrue(ends[0].equal(ends[2]) and ends[1].equal(ends[3]))
        self.assertFalse(ends[0].equal(ends[1]))

    def test_theta_files_are_stepped_by_the_package_where_it_is_installed(self):
        try:
            import lopt.torch
        except ImportError:
            self.skipTest("lopt is not installed for this interpreter")
        optimizer = self.make(f"kernels=lopt.torch:{RECOMMENDED}?lr=0.5",
                              [torch.ones(3, 2, requires_grad=True)])
        self.assertIs(type(optimizer), lopt.torch.LearnedOptimizer)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.5)

    def test_an_optimizer_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mine.py")
            path.write_text("import torch\n\n\ndef mine(params, num_steps, lr=0.25, times=1):\n"
                            "    return torch.optim.SGD(params, lr=lr * times / num_steps)\n")
            word = f"Mine={path}:mine?times=2"
            choice = optimizers.choose(word)
            self.assertEqual((choice.name, choice.lr), ("Mine", 0.25))
            self.assertEqual(choice.rates, (0.25 / 30, 7.5))
            optimizer = self.make(word, [torch.zeros(1, requires_grad=True)])
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.05)
            other = optimizers.choose(f"Mine={path}:mine?times=3&lr=0.1&rates=0.01:1")
            self.assertEqual((other.lr, other.rates), (0.1, (0.01, 1)))
            self.assertNotEqual(other.version, choice.version)
            for end, wanted in (
                    ("nobody", "has no callable nobody"), ("mine?lr=x", "lr of .* got x"),
                    ("mine?rates=3:2", "LOW:HIGH"), ("mine?times", "key=value wanted")):
                with self.assertRaisesRegex(SystemExit, wanted):
                    optimizers.choose(f"Mine={path}:{end}")

    def test_versions_are_of_the_whole_package(self):
        def version(files, callable="Mine", lr=1, module="inner.steps"):
            """Of an optimizer of a package with these files beside what makes it."""
            with tempfile.TemporaryDirectory() as folder, mock.patch.object(
                    sys, "path", [folder, *sys.path]), mock.patch.dict(sys.modules):
                package = pathlib.Path(folder, "user_models_package", "inner")
                package.mkdir(parents=True)
                classes = "".join(f"class {name}(torch.optim.SGD):\n"
                                  f"    def __init__(self, params, lr={lr}):\n"
                                  "        super().__init__(params, lr)\n"
                                  for name in ("Mine", "Yours"))
                for path, text in {
                        "../__init__.py": "from .inner.steps import Mine, Yours",
                        "__init__.py": "", "steps.py": "import torch\n" + classes,
                        **files}.items():
                    (package / path).write_text(text)
                optimizers.choose.cache_clear()
                versions.version_of_package.cache_clear()
                sys.path_importer_cache.clear()
                choice = optimizers.choose(f"X=user_models_package:{callable}")
                self.assertEqual(choice.lr, lr)
                return choice.version

        plain = version({"more.py": "A = 1"})
        self.assertEqual(version({"more.py": "A = 1"}), plain)
        for other in (version({"more.py": "A = 2"}), version({"others.py": "A = 1"}),
                      version({"more.py": "A = 1"}, "Yours"), version({"more.py": "A = 1"}, lr=2)):
            self.assertNotEqual(other, plain)
        with self.assertRaisesRegex(SystemExit, "a parameter lr with a default above 0"):
            version({}, lr=0)

    def test_unknown_names_are_errors_with_the_valid_ones(self):
        for word, wanted in (
                ("Adamm", "no optimizer Adamm; valid are Adam, AdamW, AdamW-cosine, SGDM, Muon, "
                 "torch-Muon, .*recommended"),
                ("X=no_such_module:Y", "cannot be imported"), ("X=torch.optim", "module:callable"),
                ("X=none.safetensors", "which is no file"), ("X=", "NAME=WHAT wanted"),
                ("X=mine:a.safetensors", "got mine for X")):
            with self.assertRaisesRegex(SystemExit, wanted):
                optimizers.choose(word)
        choice = optimizers.choose("X=torch.optim:NAdam?lr=0.002")
        self.assertEqual((choice.name, choice.lr), ("X", 0.002))


def line(loss, curve=(1.0,), **others):
    return {"test_loss": loss, "curve": None if loss is None else list(curve), "made": 10,
            "optimizer_us": 2.0, "step_us": 10.0, "state": 2.0, **others}


class Tables(unittest.TestCase):
    def rows(self, table):
        return [[cell.strip() for cell in row.strip("|").split("|")]
                for row in table.text().splitlines() if row and "---" not in row]

    def test_numbers_by_hand(self):
        adam_lines = {"a": [line(1.0), line(2.0)], "b": [line(4.0), line(1.0)],
                      "far": [line(1.0), line(1.0)]}
        mine = {"untuned": {"a": [line(2.0), line(4.0)],      # 2
                            "b": [line(2.0), line(0.5)],      # 1/2: with a, 1
                            "far": [line(1e-4), line(1e-6)]},  # 1e-5
                "tuned": {"a": [line(0.5), line(2.0)],        # sqrt(1/2)
                          "b": [line(4.0, optimizer_us=8.0), line(None)],
                          "far": [line(9.0), line(1.0)]}}     # 3
        table = results.Table({"Mine": mine}, adam_lines, ["far"], [("Mine", "a"), ("Adam", "b")])
        summary, by_task = self.rows(table)[:2], self.rows(table)[2:]
        self.assertEqual(dict(zip(*summary)), {
            "optimizer": "Mine", "untuned": "1.00", "fixed": "-", "tuned": "0.71 (1)",
            "worst": "2.00 / - / diverged", "physics": "1e-05 / - / 3.00",
            "steps to Adam's loss": "100 % (6) / - / 100 % (5)", "diverged": "0 / - / 1",
            "optimizer's time": f"{4 ** (1 / 12):.2f}", "whole step's": "1.00", "state": "2.0"})
        self.assertEqual(by_task, [
            ["task", "Adam's test loss", "Mine"], ["a", "1.5", "2.00 / - / 0.71*"],
            ["b", "2.5*", "0.50 / - / diverged"], ["far", "1", "1e-05 / - / 3.00"]])

    def test_what_says_nothing_is_left_out(self):
        adam_lines = {"a": [line(1.0)], "cost": [line(1.0, [-1.0])]}
        judged = {"Mine": {"fixed": {"a": [line(None, made=1, optimizer_us=900.0)],
                                     "cost": [line(1.0, [5.0], optimizer_us=6.0)]}}}
        table = results.Table(judged, adam_lines, [], rates={"Mine": 0.1}, no_curve=["cost"],
                              basis=["a"])
        summary = dict(zip(*self.rows(table)[:2]))
        self.assertEqual(
            [summary[name] for name in ("fixed", "steps to Adam's loss", "optimizer's time")],
            ["1.00 (1), lr 0.1 of a", "- / never (0) / -", "3.00"])
        del judged["Mine"]["fixed"]["a"], adam_lines["a"]
        summary = dict(zip(*self.rows(table)[:2]))
        self.assertEqual(summary["steps to Adam's loss"], "- / - / -")
        judged["Mine"]["fixed"]["cost"] = [line(None, made=0)]
        self.assertEqual(dict(zip(*self.rows(table)[:2]))["optimizer's time"], "-")

    def test_signed_ranks(self):
        # Darwin's cross- and self-fertilized maize, the example of SciPy's wilcoxon.
        maize = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
        self.assertEqual(results.signed_rank(maize), 0.041259765625)
        self.assertEqual(results.signed_rank([-d for d in maize] + [0]), 0.041259765625)
        # Ranks 1.5, 1.5 and 3: five of eight choices of signs have a positive sum of at most 3.
        self.assertEqual(results.signed_rank([1, 1, -1.5]), 1)
        self.assertEqual(results.signed_rank([1, 1, 1.5, math.inf]), 2 / 16)
        self.assertEqual(results.signed_rank([]), 1)
        # p.adjust(c(0.03, 0.01, 0.04, 0.02), "holm") of R.
        for got, wanted in zip(results.holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06]):
            self.assertAlmostEqual(got, wanted, 15)

    def test_comparisons_with_one_optimizer(self):
        tasks = "abcdef"
        adam_lines = {task: [line(1.0)] for task in tasks}
        adam_lines["far"] = [line(None)]

        def of(losses):
            return {task: [line(loss)] for task, loss in zip([*tasks, "far"], losses)}

        judged = {"Mine": {"untuned": of([.5, .6, .7, .8, .9, .95, 1]), "tuned": of([1] * 7)},
                  "Other": {"untuned": of([.5, 1, 1, 1, 1, None, 2])}}
        table = results.Table(judged, adam_lines, [], against="Mine")
        # Six of six: 2 / 64, seven of seven: 2 / 128; three comparisons.
        self.assertEqual(table.comparisons(), [
            ("Mine", "tuned", 6, 0, 2 * 2 / 64), ("Other", "untuned", 6, 0, 2 * 2 / 64),
            ("Adam", "tuned", 7, 0, 3 * 2 / 128)])
        self.assertEqual(self.rows(table)[-4:], [
            ["Mine, untuned, against", "mode", "lower loss", "higher loss",
             "p (signed ranks, Holm)"], ["Mine", "tuned", "6", "0", "0.062"],
            ["Other", "untuned", "6", "0", "0.062"], ["Adam", "tuned", "7", "0", "0.047"]])
        # Nothing is compared with itself.
        judged = {"Adam": {"tuned": of([1] * 6 + [None])}, "Other": judged["Other"]}
        table = results.Table(judged, adam_lines, [], against="Adam")
        self.assertEqual(table.comparisons(), [("Other", "untuned", 1, 2, 1.0)])

    def test_nothing_is_compared_with_an_adam_that_diverged(self):
        table = results.Table({"Mine": {"fixed": {"a": [line(1.0)]}}}, {"a": [line(None)]}, [],
                              rates={"Mine": 0.5})
        summary = dict(zip(*self.rows(table)[:2]))
        self.assertEqual((summary["fixed"], summary["worst"]), ("-, lr 0.5", "- / - / -"))

    def test_steps_to_the_loss_of_adam(self):
        adam_line = line(1.0, [5.0] * 10 + [1.0] * 10)
        self.assertEqual(results.share_of_steps(adam_line, adam_line), 0.75)
        slow = line(1.0, [5.0] * 14 + [1.0] * 6)
        self.assertEqual(results.share_of_steps(slow, adam_line), 0.95)
        self.assertEqual(results.share_of_steps(line(1.0, [1.1] * 20), adam_line), math.inf)
        self.assertEqual(results.share_of_steps(line(None), adam_line), math.inf)


def without_times(text):
    """The table without the columns of times, which differ each time."""
    rows = [row.split(" | ") for row in text.splitlines()]
    return [row[:8] + row[10:] if len(row) == 11 else row for row in rows]


class Runs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, "results.jsonl")
        self.words = ["--tasks", "logistic-regression", "table-classification", "--steps", "6",
                      "--seeds", "2", "--trials", "3", "AdamW-cosine", "--untuned", "recommended"]

    def run_it(self, words, path=None):
        """(exit status, standard output, the lines of standard error that tell of a training)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run.main([*words, "--results", str(path or self.path)])
        trainings = [line for line in err.getvalue().splitlines() if ", seed " in line]
        return code, out.getvalue(), trainings

    def test_a_run_that_was_killed_goes_on_to_the_same_table(self):
        whole = self.path.with_name("whole.jsonl")
        _, table, trained = self.run_it(self.words, whole)
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks/user_models/run.py"), *self.words,
             "--results", str(self.path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with process:
            for _ in range(9):
                process.stderr.readline()
            process.send_signal(signal.SIGKILL)
            process.stderr.read()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        kept = self.path.read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        self.assertGreaterEqual(kept.count(b"\n"), 9)
        self.path.write_bytes(kept + b'{"task": "logis')  # as a kill may leave it
        _, again, made = self.run_it(self.words)
        self.assertEqual(without_times(again), without_times(table))
        self.assertEqual(len(made), len(trained) - kept.count(b"\n"))
        content = self.path.read_bytes()
        self.assertTrue(content.startswith(kept))
        self.assertEqual(content.count(b"\n"), len(trained))
        # What is there is not made again, and a table of less needs no more.
        code, third, made = self.run_it(self.words)
        self.assertEqual((code, third, made), (0, again, []))
        self.assertEqual(self.run_it(["--tasks", "logistic-regression", *self.words[3:]])[2], [])

    def test_tuning_takes_the_best_trial_and_no_judged_seed(self):
        _, table, _ = self.run_it(self.words)
        lines = list(map(json.loads, self.path.read_text().splitlines()))
        for task in self.words[1:3]:
            trials = {line["lr"]: line["test_loss"] for line in lines if line["seed"] == 1000
                      and (line["task"], line["optimizer"]) == (task, "Adam")}
            self.assertEqual(sorted(trials), [1e-4, 0.003162, 0.1])
            best = min(trials, key=trials.get)
            judged = [line["test_loss"] for line in lines if line["seed"] < 1000 and
                      (line["task"], line["optimizer"], line["lr"]) == (task, "Adam", best)]
            self.assertEqual(len(judged), 2)
            mark = "*" if best != 0.003162 else ""
            self.assertIn(f"| {task} | {sum(judged) / 2:.3g}{mark} |", table)

    def test_a_diverged_training_is_listed_and_the_others_go_on(self):
        code, table, trained = self.run_it([
            "--tasks", "logistic-regression", "--steps", "6", "--seeds", "1", "--trials", "2",
            "--untuned", "Wild=torch.optim:SGD?lr=1e38", "SGDM"])
        self.assertEqual(code, 0)
        self.assertRegex(table, r"\n\| Wild \| diverged \| - \| - \| diverged / - / - \|.*"
                         r"\| 1 / - / - \|")
        self.assertRegex(table, r"\n\| SGDM \| \d\.\d\d \| - \| - \|.*\| 0 / - / - \|")
        self.assertTrue(any(re.search("Wild.*: diverged", line) for line in trained))

    def test_a_diverged_training_is_not_made_again(self):
        words = ["--tasks", "logistic-regression", "--steps", "6", "--seeds", "1", "--trials", "1",
                 "--untuned", "Wild=torch.optim:SGD?lr=1e38"]
        _, table, trained = self.run_it(words)
        self.assertTrue(any("Wild" in text for text in trained))
        lines = list(map(json.loads, self.path.read_text().splitlines()))
        self.assertEqual({line["steps"] for line in lines}, {6})
        self.assertEqual([line["made"] < 6 for line in lines],
                         [line["test_loss"] is None for line in lines])
        self.assertEqual(self.run_it(words), (0, table, []))

    def test_what_changes_during_a_run_ends_it(self):
        words = ["--tasks", "logistic-regression", "--steps", "3", "--seeds", "1", "--trials", "1",
                 "--untuned", "SGDM"]
        with mock.patch.object(versions, "version_of_task", lambda task: "another"):
            with self.assertRaisesRegex(SystemExit, "logistic-regression has changed since the run "
                                        "began: version another wanted, got "):
                self.run_it([*words, "--jobs", "2"])
        benchmark = run.Benchmark(run.arguments(words), mock.Mock())
        cell = benchmark.cell("SGDM", "logistic-regression", 0.1, 0)
        cell["optimizer_version"] = "another"
        with self.assertRaisesRegex(SystemExit, "SGDM has changed since the run began"):
            run.train_one(cell, "SGDM")

    def test_changed_code_and_settings_are_trained_anew(self):
        words = ["--tasks", "logistic-regression", "--steps", "3", "--seeds", "1", "--trials", "1",
                 "--untuned", "SGDM"]
        self.assertEqual(len(self.run_it(words)[2]), 3)
        self.assertEqual(self.run_it(words)[2], [])
        with mock.patch.object(versions, "version_of_task", lambda task: "another"):
            self.assertEqual(len(self.run_it(words)[2]), 3)
        words[3] = "2"
        self.assertEqual(len(self.run_it(words)[2]), 3)

    def test_versions_are_of_what_a_task_uses(self):
        self.assertEqual(versions.code_of("def f(x):\n    '''Says it.'''\n    return x  # why\n"),
                         versions.code_of("def f( x ):\n    return x"))
        self.assertNotEqual(versions.code_of("x = 1"), versions.code_of("x = 2"))
        path = self.path.with_name("some.py")
        path.write_text("WIDTH = 3\n\ndef model():\n    return WIDTH\n\nclass T:\n"
                        "    def __init__(self):\n        self.m = model()\n\nOTHER = 4\n")
        behind = versions.code_behind("T", str(path))
        self.assertIn("WIDTH = 3", behind)
        self.assertNotIn("OTHER", behind)
        self.assertEqual(len(set(map(versions.version_of_task, run.TASKS.values()))),
                         len(run.TASKS))

    def test_a_rate_for_all_is_chosen_on_the_development_half(self):
        args = run.arguments(["--half", "test", "--fixed", "SGDM", "--trials", "3"])
        benchmark = run.Benchmark(args, mock.Mock())
        cells = list(benchmark.first_cells())
        tried = {cell["task"] for cell in cells if cell["optimizer"] == "SGDM"}
        self.assertEqual(tried, set(run.HALVES["development"]))
        self.assertEqual({cell["task"] for cell in cells}, set(run.TASKS))  # Adam's everywhere
        losses = {"Adam": {1e-3: 4.0, 1e-2: 2.0}}
        for task in run.HALVES["development"]:
            losses[task] = {0.1: 2.0, 0.2: 1.0, 0.3: math.inf}
        losses["poisson"] = {0.1: 1e-9, 0.2: 1.0, 0.3: 1.0}  # which does not count
        with mock.patch.object(benchmark, "tuning_losses", lambda word, task: losses.get(
                word, losses[task])):
            self.assertEqual(benchmark.fixed_rate("SGDM"), 0.2)

    def test_two_processes_make_the_same_trainings(self):
        words = ["--tasks", "logistic-regression", "--steps", "3", "--seeds", "1", "--trials", "2",
                 "--untuned", "SGDM"]
        _, table, _ = self.run_it(words)
        _, again, _ = self.run_it([*words, "--jobs", "2"], self.path.with_name("two.jsonl"))
        self.assertEqual(without_times(again), without_times(table))

    def test_wrong_words_are_errors(self):
        for words, wanted in (
                (["Adam", "--tasks", "mnist"], "no task mnist; valid are byte-gpt, "),
                (["Adam"], "--half test, --half both and --tasks is wanted"),
                (["--half", "test"], "at least one optimizer"),
                (["--half", "all", "Adam"], "invalid choice"),
                (["--half", "test", "--trials", "0", "Adam"], "must be at least 1, got 0")):
            with self.assertRaises(SystemExit) as raised, contextlib.redirect_stderr(
                    io.StringIO()) as err:
                run.main([*words, "--results", str(self.path)])
            self.assertEqual(raised.exception.code, 2)
            self.assertIn(wanted, err.getvalue())
        with self.assertRaisesRegex(SystemExit, "--against must be .*, got Y; valid are SGDM"):
            run.main(["--half", "test", "SGDM", "--against", "Y", "--results", str(self.path)])
        with self.assertRaisesRegex(SystemExit, "tuned Adam is in every table"):
            run.main(["--half", "test", "Adam=torch.optim:SGD?lr=1", "--results", str(self.path)])
        with self.assertRaisesRegex(SystemExit, "two optimizers are called X"):
            run.main(["--half", "test", "X=torch.optim:SGD?lr=1", "X=torch.optim:SGD?lr=2",
                      "--results", str(self.path)])

    def test_a_file_that_is_in_use_or_damaged_is_an_error(self):
        store = results.Store(self.path)
        with self.assertRaisesRegex(SystemExit, "another process works on"):
            results.Store(self.path)
        store.close()
        self.path.write_text('{"task": "a"}\n')
        with self.assertRaisesRegex(SystemExit, "line 1 of .* is no finished training"):
            results.Store(self.path)


if __name__ == "__main__":
    unittest.main()
