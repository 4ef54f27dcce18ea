"""Tests of fitting an optimizer to a task from Python."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

import lopt

try:
    import torch  # noqa: F401
except ImportError:
    torch = None

PROGRAM = os.environ.get("LOPT_PROGRAM")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@lopt.task
class Line:
    """A line through 40 noisy points of one's own, in NumPy, which notes the rows that it sees."""

    normalizer_maximum = 100.0
    batch_size = 4
    seen = set()

    def init(self, key):
        return {"w": key.normal(2)}

    def data(self):
        rows = np.arange(40, dtype=np.float32)
        x = np.sin(rows)
        return np.stack([rows, x, 3 * x + 1 + 0.1 * np.cos(7 * rows)], 1)

    def loss_and_grad(self, params, batch):
        self.seen.update(batch[..., 0].astype(int).ravel().tolist())
        x = np.stack([batch[..., 1], np.ones_like(batch[..., 1])], -1)
        error = (x @ params["w"][:, :, None])[..., 0] - batch[..., 2]
        return np.square(error).mean(1), {"w": 2 * np.einsum("nb,nbk->nk", error, x) / error.shape[1]}


@lopt.task
class ShiftedLine(Line):
    shift = np.float32(0)

    def data(self):
        return super().data() + self.shift


class Fits(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = os.path.join(directory.name, "fit")

    def fit(self, task, **arguments):
        given = {"steps": 24, "updates": 2, "trials": 2, "out": self.out, "threads": 2} | arguments
        return lopt.fit(task, **given)

    def test_a_task_of_ones_own_is_fitted_without_a_look_at_its_test_rows(self):
        seen = {}
        phases = ["before"]

        def note(phase, done, left):
            self.assertTrue(0 <= done <= 1)
            seen.setdefault(phases[-1], set()).update(Line.seen)
            Line.seen.clear()
            phases.append(phase)

        Line.seen.clear()
        fit = self.fit(Line(), on_progress=note)
        names = ["AdamW-cosine-decay", "Muon-cosine", "random-search"]
        self.assertEqual([row["optimizer"] for row in fit.judged][-3:], names)
        self.assertEqual(fit.updates, 2)
        self.assertIn(fit.verdict, fit.report)
        self.assertEqual(fit.theta.learned_optimizer["type"], "LearnedScheduler")
        self.assertTrue(os.path.exists(os.path.join(self.out, "theta.safetensors")))
        # Of 40 rows the last 4 are the split test.
        fitting = set().union(*(seen[phase] for phase in seen if not phase.startswith("judging")))
        self.assertEqual(fitting, set(range(36)))
        self.assertTrue(set(range(36, 40)) <= seen["judging random-search"] | Line.seen)

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_a_loss_is_the_task_that_a_class_with_it_is(self):
        rows = Line().data()

        def init(key):
            return {"w": key.normal(2)}

        def loss(params, batch):
            error = params["w"][0] * batch[:, 1] + params["w"][1] - batch[:, 2]
            return error.square().mean()

        @lopt.task
        class TorchLine:
            batch_size = 4

            def init(self, key):
                return init(key)

            def data(self):
                return rows

            def loss(self, params, batch):
                return loss(params, batch)

        given = {"updates": 0, "data": rows, "batch_size": 4}
        fit = self.fit(loss, init=init, **given)
        other = self.fit(TorchLine(), updates=0, out=self.out + "-class")
        np.testing.assert_array_equal(fit.theta.values, other.theta.values)
        self.assertEqual([row["test_loss"] for row in fit.judged],
                         [row["test_loss"] for row in other.judged])
        # What tuning chose is told, of those that are tuned.
        self.assertEqual([sorted(row["tuned"]) for row in fit.judged][-3:],
                         [["learning_rate", "weight_decay"]] * 2 +
                         [["beta1", "beta2", "learning_rate", "weight_decay"]])  # fmt: skip
        with self.assertRaisesRegex(lopt.Error, "fit: a loss wants init="):
            self.fit(loss, overwrite=True, **given)
        with self.assertRaisesRegex(lopt.Error, "data and batch_size go together"):
            self.fit(loss, init=init, data=rows, overwrite=True)
        with self.assertRaisesRegex(lopt.Error, "about a loss; .* this is the class TorchLine"):
            self.fit(TorchLine, init=init, overwrite=True)

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_a_fit_of_a_loss_goes_on_with_its_own_loss(self):
        given = {"updates": 0, "init": lambda key: {"w": key.normal(2)}}

        def loss(params):
            return (params["w"] - 1).square().sum()

        def other(params):
            return (params["w"] + 3).abs().sum()

        def end(phase, done, left):
            if phase == "searching":
                raise KeyboardInterrupt

        whole = self.fit(loss, out=self.out + "-whole", **given)
        with self.assertRaises(KeyboardInterrupt):
            self.fit(loss, on_progress=end, **given)
        self.fit(other, out=self.out + "-other", **given)
        resumed = lopt.fit(resume=True, out=self.out)
        np.testing.assert_array_equal(resumed.theta.values, whole.theta.values)
        self.assertEqual([row["test_loss"] for row in resumed.judged],
                         [row["test_loss"] for row in whole.judged])

    def test_it_is_that_of_the_program(self):
        if not PROGRAM:
            self.skipTest("LOPT_PROGRAM is not set")
        fit = self.fit(lopt.FixedDimQuadraticFamily(dim=3))
        out = self.out + "-program"
        subprocess.run(
            [PROGRAM, "fit", '{"type": "FixedDimQuadraticFamily", "dim": 3}', "--steps", "24", "--updates", "2",
             "--trials", "2", "--out", out, "--start", str(ROOT / "trained/recommended.safetensors")],
            check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        theirs = lopt.Theta.read(os.path.join(out, "theta.safetensors"))
        np.testing.assert_array_equal(theirs.values, fit.theta.values)

    def test_what_a_listener_raises_ends_it_and_it_can_be_resumed(self):
        whole = self.fit(lopt.FixedDimQuadraticFamily(dim=3), out=self.out + "-whole")

        def end(phase, done, left):
            if phase == "meta-training":
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.fit(lopt.FixedDimQuadraticFamily(dim=3), on_progress=end)
        lopt.Theta.read(os.path.join(self.out, "theta.safetensors"))
        resumed = lopt.fit(resume=True, out=self.out)
        np.testing.assert_array_equal(resumed.theta.values, whole.theta.values)
        self.assertEqual([row["test_loss"] for row in resumed.judged],
                         [row["test_loss"] for row in whole.judged])

    def test_a_fit_goes_on_only_with_the_data_that_it_began_with(self):
        def end(phase, done, left):
            if phase != "measuring":
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.fit(ShiftedLine(), on_progress=end)
        self.addCleanup(setattr, ShiftedLine, "shift", ShiftedLine.shift)
        ShiftedLine.shift = np.float32(1)
        with self.assertRaisesRegex(lopt.Error, "was computed on the data of ShiftedLine "):
            lopt.fit(resume=True, out=self.out)

    def test_errors_say_what_is_wanted(self):
        with self.assertRaisesRegex(lopt.Error, "wanted a task, or resume=True without one"):
            lopt.fit()
        with self.assertRaisesRegex(lopt.Error, "wanted at least 20 steps, got 3"):
            self.fit(lopt.FixedDimQuadraticFamily(), steps=3)
        with self.assertRaisesRegex(
            lopt.Error, "resume=True goes on with what the fit began with; without steps, seed$"
        ):
            lopt.fit(resume=True, out=self.out, steps=50, seed=0)
        with self.assertRaisesRegex(lopt.Error, "holds no fit"):
            lopt.fit(resume=True, out=self.out)


if __name__ == "__main__":
    unittest.main()
